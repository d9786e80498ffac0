"""Audio formats of the OpenAI Realtime protocol: 16-bit samples at 24 kHz, or G.711 at 8 kHz."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field

from rejoinder.agent.wires import g711
from rejoinder.agent.wires.realtime.shapes import Base
from rejoinder.pipeline import ProtocolError

PCM_RATE = 24_000
"""Sample rate of ``audio/pcm``, in hertz: the only one that the published type allows."""
TELEPHONE_RATE = 8_000
"""Sample rate of ``audio/pcmu`` and ``audio/pcma``, in hertz."""
LAWS: dict[str, g711.Law] = {"audio/pcmu": "mulaw", "audio/pcma": "alaw"}
"""The G.711 law of each format."""


class Pcm(Base):
    """Signed 16-bit little-endian mono at 24 kHz."""

    type: Literal["audio/pcm"] = "audio/pcm"
    rate: Literal[24000] = 24000


class G711(Base):
    """Telephone audio, mono at 8 kHz: mu-law or A-law."""

    type: Literal["audio/pcmu", "audio/pcma"]


Format = Annotated[Pcm | G711, Field(discriminator="type")]
PCM = Pcm()
"""The default format."""


def rate_of(format_: Format) -> int:
    """Return the sample rate, in hertz."""
    return PCM_RATE if isinstance(format_, Pcm) else TELEPHONE_RATE


def width_of(format_: Format) -> int:
    """Return the bytes per sample on the wire."""
    return 2 if isinstance(format_, Pcm) else 1


def check_whole(size: int, format_: Format, param: str) -> None:
    """Raise ProtocolError if ``size`` bytes end with half a sample."""
    if size % width_of(format_):
        reason = f"{param}: 16-bit samples need an even number of bytes, not {size}"
        raise ProtocolError(reason, "invalid_value", param)


def decoded(data: bytes, format_: Format, param: str) -> bytes:
    """Return audio of the wire as 16-bit samples at the format's rate.

    Raises ProtocolError for half a sample.
    """
    check_whole(len(data), format_, param)
    return data if isinstance(format_, Pcm) else g711.decode(data, LAWS[format_.type])


def encoded(pcm: bytes, format_: Format) -> bytes:
    """Return 16-bit samples at the format's rate in the format of the wire."""
    return pcm if isinstance(format_, Pcm) else g711.encode(pcm, LAWS[format_.type])


def length_ms(size: int, format_: Format) -> int:
    """Return the duration of ``size`` bytes on the wire, in milliseconds, rounded up."""
    return math.ceil(size * 1000 / (rate_of(format_) * width_of(format_)))
