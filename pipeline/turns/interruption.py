"""Whether what is heard while the agent speaks is meant to stop it: a plain function of sound and words.

Listeners say "mm-hm" without wanting the floor: Yngve, "On getting a word in edgewise" (1970), calls these
backchannels. A recogniser that is given a cough hears no words, or one of a few that it is known to make up.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher

from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.listening.agreement import normalise

SHORT_MS = 130
"""So little voice is no word: what recognisers hear in it is made up."""
SHORT_ECHO_MS = 250
"""The same where the microphone hears the agent: what is left of it is shorter than words
(docs/design/echo.md)."""
SHORT_NEW_ECHO_MS = 500
"""The same while the way of the echo has not been learnt yet: in the agent's first seconds."""
QUIET_MS = 96
"""Silence after which a sound that is too short for a word is over."""
YIELD_MS = 1_600
"""Voice that stops the most assertive agent whatever is said; others yield to their share of it."""

_WORDS = (
    "m|mm+|h+m+|mhm+|mm+h+m+|uh|huh|um+|ah|aha|oh|ooh|okay|ok|k|yeah|yea|yep|yup|yes|ya|right|sure|alright"
    "|good|great|cool|nice|fine|wow|really|exactly|true|indeed|absolutely|definitely|interesting|perfect"
)
_PHRASES = "i see|got it|all right|of course|(?:that )?makes? sense|go on|fair enough|no way|i know"
_HUM = "(?!no )[hmnuoa]*m[hmnuoa]*"
"""A murmur through the nose has no letters: Whisper writes Mama or NMO for "mm-hm"."""
_LAUGHTER = "(?:ha|he|hah|heh)+h?"
_MADE_UP = "you|thank you|thanks|thanks for watching|thank you for watching"
_LISTENING = f"{_WORDS}|{_PHRASES}|{_HUM}|{_LAUGHTER}"
_BACKCHANNEL, _SAID_SO = (
    re.compile(f"(?:(?:{_LISTENING}|{_MADE_UP}) )*"),
    re.compile(f"(?:(?:{_LISTENING}) )+"),
)
_ASIDE = re.compile(r"\([^)]*\)|\[[^]]*\]|\*[^*]*\*")
"""How recognisers write what is no speech: (coughs), [LAUGHTER], *sighs*."""


ECHOED = 0.6
"""Share of the words of an echo that are the agent's own, in their order: some are misheard."""
SCRAMBLED = 3
"""So few words of it may come in any order: of "On day one" the recogniser made "One day"."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """What is known of a sound that began while the agent spoke.

    voiced_ms: voice in it so far. silent_ms: silence since the last of it, 0 while it goes on.
    text: the newest transcript, None before the first one. is_final: whether that has all of the voice.
    ending: whether the agent was at its last words, so that "yeah" is an answer.
    echoing: whether the microphone may hear the agent, and unlearnt: whether nobody knows yet how.
    echo: whether the text is what the agent says itself.
    """

    voiced_ms: float
    silent_ms: float = 0.0
    text: str | None = None
    is_final: bool = False
    ending: bool = False
    echoing: bool = False
    unlearnt: bool = False
    echo: bool = False


def is_backchannel(text: str) -> bool:
    """Tell whether the words, if there are any, only say that somebody listens."""
    return _BACKCHANNEL.fullmatch(f"{normalise(_ASIDE.sub(' ', text))} ".lstrip()) is not None


def kindest(transcript: Transcript) -> str:
    """Return the words over the agent: of what they may be, a backchannel, else the likeliest.

    A word by itself is often misheard, and whoever listens says few others. What only leaves out some of the
    likeliest words is no other hearing of them: "right" of "not right". Nor is what recognisers make up.
    """
    if is_backchannel(transcript.text):
        return transcript.text
    likeliest = f" {normalise(transcript.text)} "
    others = (text for text in transcript.others if f" {normalise(text)} " not in likeliest)
    return next((text for text in others if _SAID_SO.fullmatch(f"{normalise(text)} ")), transcript.text)


def is_echo(text: str, saying: str, least: int = 1) -> bool:
    """Tell whether the words are mostly those that the agent says; fewer than ``least`` never are."""
    said, words = normalise(saying).split(), normalise(text).split()
    if len(words) <= SCRAMBLED:
        own = (Counter(said) & Counter(words)).total()
    else:
        blocks = SequenceMatcher(None, said, words, autojunk=False).get_matching_blocks()
        own = sum(block.size for block in blocks)
    return own >= max(1, least, ECHOED * len(words))


def is_interruption(overlap: Overlap, start_ms: float, assertiveness: float) -> bool | None:
    """Tell whether the agent has to yield, None while that cannot be known yet.

    It yields to words that are no backchannel, and to a voice that goes on: for its share of ``YIELD_MS``,
    for a quarter longer where the transcript so far has no such words. assertiveness: from 0, yield to any
    voice of ``start_ms``, to 1.
    """
    if overlap.echo:  # it is over, or the next transcript has the words of somebody else too
        return False if overlap.silent_ms and overlap.is_final else None
    meant = overlap.text is None or not is_backchannel(overlap.text)
    patience = max(start_ms, assertiveness * YIELD_MS)
    if overlap.voiced_ms >= (patience if meant else 1.25 * patience):
        return True
    short_ms = SHORT_NEW_ECHO_MS if overlap.unlearnt else SHORT_ECHO_MS
    if overlap.voiced_ms < (short_ms if overlap.echoing else SHORT_MS) and overlap.silent_ms >= QUIET_MS:
        return False
    if overlap.silent_ms and overlap.is_final and overlap.text is not None:
        answered = overlap.ending and bool(normalise(_ASIDE.sub(" ", overlap.text)))
        return answered or meant
    return None
