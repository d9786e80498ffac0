"""Audio formats of the OpenAI Realtime protocol: 16-bit samples at 24 kHz, or G.711 at 8 kHz."""

from __future__ import annotations

import binascii
import math
from typing import Annotated, ClassVar, Literal

import pybase64
from pydantic import Field

from rejoinder.agent.wires import g711
from rejoinder.agent.wires.realtime.shapes import EchoedModel
from rejoinder.pipeline import ProtocolError

PCM_RATE = 24_000
"""Sample rate of ``audio/pcm``, in hertz: the only one that the published type allows."""
TELEPHONE_RATE = 8_000
"""Sample rate of ``audio/pcmu`` and ``audio/pcma``, in hertz."""
LAWS: dict[str, g711.Law] = {"audio/pcmu": "mulaw", "audio/pcma": "alaw"}
"""The G.711 law of each format."""


class Pcm(EchoedModel):
    """Signed 16-bit little-endian mono at 24 kHz."""

    sample_rate: ClassVar[int] = PCM_RATE
    sample_bytes: ClassVar[int] = 2
    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] = 24000


class G711(EchoedModel):
    """Telephone audio, mono at 8 kHz: mu-law or A-law."""

    sample_rate: ClassVar[int] = TELEPHONE_RATE
    sample_bytes: ClassVar[int] = 1
    type: Literal["audio/pcmu", "audio/pcma"]


Format = Annotated[Pcm | G711, Field(discriminator="type")]
DEFAULT_FORMAT = Pcm()
"""The default format."""


def half_a_sample(size: int, param: str) -> ProtocolError:
    """Return the error for audio of ``size`` bytes that ends with half a sample."""
    reason = f"{param}: 16-bit samples need an even number of bytes, not {size}"
    return ProtocolError(reason, "invalid_value", param)


def not_base64(param: str) -> ProtocolError:
    """Return the error for audio that is not base64."""
    return ProtocolError(f"{param} is not valid base64", "invalid_value", param)


def decoded(audio: str, format_: Format, param: str) -> bytes:
    """Return audio of the wire, in base64, as 16-bit samples at the format's rate.

    Raises ProtocolError for invalid base64 and for half a sample.
    """
    try:
        data = pybase64.b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise not_base64(param) from None
    if len(data) % format_.sample_bytes:
        raise half_a_sample(len(data), param)
    return data if isinstance(format_, Pcm) else g711.decode(data, LAWS[format_.type])


def length_ms(size: int, format_: Format) -> int:
    """Return the duration of ``size`` bytes on the wire, in milliseconds, rounded up."""
    return math.ceil(size * 1000 / (format_.sample_rate * format_.sample_bytes))
