"""The names that a server's one voice goes by, on the wires on which clients name a voice."""

from __future__ import annotations

from rejoinder.agent.wires.realtime.shapes import Base
from rejoinder.pipeline import ProtocolError

DEFAULT = "default"
OPENAI = ("alloy", "ash", "ballad", "coral", "echo", "sage", "shimmer", "verse", "marin", "cedar")
"""The voices of OpenAI's Realtime API, as openai-python lists them in ``RealtimeAudioConfigOutput``.

Stock clients send one of them whether or not their user has chosen it, so each is the server's voice here.
"""


class CustomVoice(Base):
    """A voice by its identifier, as clients of OpenAI name those that they have made themselves."""

    id: str

    def __str__(self) -> str:
        return self.id


def check_voice(voice: str | CustomVoice, own: str, param: str, code: str = "invalid_value") -> None:
    """Raise ProtocolError, which lists the names, for a voice that there is not.

    own: the name of the server's voice.
    """
    names = dict.fromkeys((DEFAULT, own, *OPENAI))
    if str(voice) not in names:
        reason = f"{param}: there is no voice {str(voice)[:40]!r}; this server has one, and its names are: "
        raise ProtocolError(reason + ", ".join(names), code, param)
