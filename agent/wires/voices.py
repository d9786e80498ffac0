"""The names of the server's one voice, for wires on which clients name a voice."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from rejoinder.pipeline import ProtocolError

DEFAULT_VOICE = "default"
"""The name of the server's own voice."""
OPENAI = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar")
"""The voices of OpenAI's Realtime API, as openai-python lists them in ``RealtimeAudioConfigOutput``.

Standard clients send one of them even where their user has chosen none, so each one names the server's voice.
"""


class CustomVoice(BaseModel):
    """A voice by its identifier: OpenAI's clients name their custom voices this way."""

    model_config = ConfigDict(extra="allow")  # it is echoed to the client

    id: str

    def __str__(self) -> str:
        return self.id


def check_voice(voice: str | CustomVoice, own: str, param: str, code: str = "invalid_value") -> None:
    """Raise ProtocolError, which lists the names, for a voice that the server does not have.

    own: the name of the server's voice. param: the field that names the voice. code: of the error.
    """
    names = dict.fromkeys((DEFAULT_VOICE, own, *OPENAI))
    if str(voice) not in names:
        reason = f"{param}: there is no voice {str(voice)[:40]!r}; this server has one, and its names are: "
        raise ProtocolError(reason + ", ".join(names), code, param)
