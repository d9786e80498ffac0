"""Decides whether a sound over the agent is an interruption, from its length and its words.

Listeners say "mm-hm" without wanting the floor. Yngve, "On getting a word in edgewise" (1970), calls such
words backchannels. For a cough, a recogniser returns no words, or one of a few that it typically makes up.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.turns.turn_end import wants_more
from rejoinder.pipeline.words import normalise

SHORT_MS = 130
"""A voice shorter than this is no word, and the words recognised in it are made up."""
SHORT_ECHO_MS = 250
"""``SHORT_MS`` where the microphone picks up the agent: an echo has short rests (docs/design/echo.md)."""
SHORT_NEW_ECHO_MS = 500
"""The limit ``SHORT_MS`` in the agent's first seconds, while the echo path is not learnt yet."""
QUIET_MS = 96
"""Silence after which a sound that is too short for a word has ended."""
YIELD_MS = 1_600
"""Voice that stops an agent of assertiveness 1, whatever its words; scaled by the assertiveness."""
GOES_ON_YIELD_MS = 800
"""``YIELD_MS`` for a user who goes on with a turn whose end was decided too soon."""
HARMLESS = 2.0
"""Factor of the length that stops the agent, for laughter and the like: the agent speaks on under it."""
HARMLESS_OF_ECHO = 1.25
"""``HARMLESS`` where the microphone picks up the agent: then the agent waits in silence meanwhile."""
FRAGMENT_MS = 500
"""A voice at most this long, with words that want more, is a fragment: a hum is recognised as "If I..."."""
FRAGMENT_WAIT_MS = 700
"""Silence after which a fragment was no interruption. Who wants the floor goes on, since the agent waits."""

_WORDS = (
    "m|mm+|h+m+|mhm+|mm+h+m+|uh|huh|um+|ah|aha|oh|ooh|okay|ok|k|yeah|yea|yep|yup|yes|ya|right|sure|alright"
    "|good|great|cool|nice|fine|wow|really|exactly|true|indeed|absolutely|definitely|interesting|perfect"
)
_PHRASES = "i see|got it|all right|of course|(?:that )?makes? sense|go on|fair enough|no way|i know"
_HUM = "(?!no )[hmnuoa]*m[hmnuoa]*"
"""A hummed sound has no fixed spelling: Whisper writes Mama or NMO for "mm-hm"."""
_LAUGHTER = "(?:ha|he|hah|heh)+h?"
_MADE_UP = "you|thank you|thanks|thanks for watching|thank you for watching"
_LISTENING = f"{_WORDS}|{_PHRASES}|{_HUM}|{_LAUGHTER}"
_BACKCHANNEL = re.compile(f"(?:(?:{_LISTENING}|{_MADE_UP}) )*")
_TRUE_BACKCHANNEL = re.compile(f"(?:(?:{_LISTENING}) )+")
_COMMAND = re.compile("(?:no|stop|wait|what|how|why|where|when|hey|hello|sorry|excuse|hold|but|don't)\\b")
"""Words that stop the agent, whatever else they want."""
_LAUGHS = re.compile(f"(?:{_LAUGHTER} )*")
_TIC = re.compile(f"(?:(?:u+m+|u+h+|e+r+m*|h+m+|{_LAUGHTER}) )*")
_ANNOTATION = re.compile(r"\([^)]*\)|\[[^]]*\]|\*[^*]*\*")
"""How recognisers annotate sounds that are not speech: (coughs), [LAUGHTER], *sighs*."""


ECHOED_SHARE = 0.6
"""Share of the recognised words that must be the agent's, in their order, to be its echo."""
SCRAMBLED = 3
"""Up to this many words may come in any order: a recogniser turned "On day one" into "One day"."""


@dataclass(frozen=True, slots=True)
class OverlapEvidence:
    """What is known of a sound that began while the agent spoke.

    voiced_ms: duration of the voice in it so far.
    silent_ms: silence since the voice ended, 0 while it goes on.
    text: the newest transcript, None before the first one. is_final: whether it covers all of the voice.
    agent_finishing: whether the agent was at its last words, so that "yeah" is an answer.
    goes_on: whether the user goes on with a turn whose end was decided too soon.
    agent_audible: whether the microphone may pick up the agent.
    echo_learnt: whether the echo path from the agent to the microphone is learnt.
    is_echo: whether the text repeats the agent's words.
    """

    voiced_ms: float
    silent_ms: float = 0.0
    text: str | None = None
    is_final: bool = False
    agent_finishing: bool = False
    goes_on: bool = False
    agent_audible: bool = False
    echo_learnt: bool = True
    is_echo: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the voice has ended, and the transcript covers all of it."""
        return self.silent_ms > 0.0 and self.is_final

    @property
    def short_ms(self) -> int:
        """The length below which the voice is no word."""
        if not self.agent_audible:
            return SHORT_MS
        return SHORT_ECHO_MS if self.echo_learnt else SHORT_NEW_ECHO_MS


def is_backchannel(text: str) -> bool:
    """Return whether the text has only backchannels such as "mm-hm", or no words at all."""
    return _BACKCHANNEL.fullmatch(f"{normalise(_ANNOTATION.sub(' ', text))} ".lstrip()) is not None


def is_vocal_tic(text: str, asked: str = "") -> bool:
    """Return whether the text has only hesitations such as "um", laughter, or notes such as "(coughs)".

    They want no answer. asked: the agent's words before; after a question, a hesitation may be a word of
    another language ("um" is "one" in Portuguese), so it counts as words.
    """
    tics = _LAUGHS if asked.rstrip().endswith("?") else _TIC
    return tics.fullmatch(f"{normalise(_ANNOTATION.sub(' ', text))} ".lstrip()) is not None


def prefer_backchannel(transcript: Transcript) -> str:
    """Return an alternative that is a backchannel, if there is one; otherwise the text.

    Recognisers often mishear a single word, and listeners mostly say backchannels. An alternative that only
    leaves out words of the text does not count ("right" of "not right"), nor do words that recognisers make
    up for noises.
    """
    if is_backchannel(transcript.text):
        return transcript.text
    likeliest = f" {normalise(transcript.text)} "
    different = (text for text in transcript.alternatives if f" {normalise(text)} " not in likeliest)
    return next(
        (text for text in different if _TRUE_BACKCHANNEL.fullmatch(f"{normalise(text)} ")), transcript.text
    )


def is_echo(text: str, saying: str, least: int = 1) -> bool:
    """Return whether the text is mostly the agent's words, and at least ``least`` of them."""
    said, words = normalise(saying).split(), normalise(text).split()
    if len(words) <= SCRAMBLED:
        own = (Counter(said) & Counter(words)).total()
    else:
        blocks = SequenceMatcher(None, said, words, autojunk=False).get_matching_blocks()
        own = sum(block.size for block in blocks)
    return own >= max(1, least, ECHOED_SHARE * len(words))


def is_fragment(text: str) -> bool:
    """Return whether these are one or two words that want more, and no command such as "wait"."""
    words = normalise(text)
    return words.count(" ") < 2 and wants_more(text) and not _COMMAND.match(words)


def is_interruption(overlap: OverlapEvidence, start_ms: float, assertiveness: float) -> bool | None:
    """Return whether the agent must yield; None while that is unknown.

    It yields to words that are not a backchannel. It also yields to a voice that lasts ``assertiveness``
    times ``YIELD_MS``, or ``HARMLESS`` times as long while the transcript has only backchannels. A short
    fragment is an interruption only if more follows, or if it goes on with the turn. To a user who goes on
    with the turn it yields after half that time.
    assertiveness: from 0, which yields to any voice of ``start_ms``, to 1.
    """
    if overlap.is_echo:  # unknown while it goes on: the user may speak too, in a later transcript
        return False if overlap.is_over else None
    only_backchannels = overlap.text is not None and is_backchannel(overlap.text)
    yield_ms = GOES_ON_YIELD_MS if overlap.goes_on and not overlap.agent_audible else YIELD_MS
    patience = max(start_ms, assertiveness * yield_ms)
    harmless = HARMLESS_OF_ECHO if overlap.agent_audible else HARMLESS
    if overlap.voiced_ms >= (harmless * patience if only_backchannels else patience):
        return True
    if overlap.voiced_ms < overlap.short_ms and overlap.silent_ms >= QUIET_MS:
        return False
    if overlap.text is None or not overlap.is_over:
        return None
    if overlap.agent_finishing:
        return normalise(_ANNOTATION.sub(" ", overlap.text)) != ""
    is_short = overlap.voiced_ms <= FRAGMENT_MS and not overlap.goes_on
    if is_short and is_fragment(overlap.text) and not only_backchannels:
        return None if overlap.silent_ms < FRAGMENT_WAIT_MS else False
    return not only_backchannels
