"""What the words at the start of an outgoing call say about who answered. English only.

The phrases are common ones of greetings in English; none was taken from the texts that ``rejoinder bench
answered`` judges with.
"""

from __future__ import annotations

import re
from enum import StrEnum

DIGIT_WORDS = "zero|one|two|three|four|five|six|seven|eight|nine"
"""A pattern of a spoken digit."""
DIGIT = rf"(?:\d|{DIGIT_WORDS}|star|pound|hash|any key|the (?:pound|star|hash))"
"""A pattern of a key of a telephone."""
NOT = r"\b(?:\w*n't|not|unable|cannot)"
"""A pattern of a negation."""


class AnsweredBy(StrEnum):
    """Who answered a call.

    HUMAN: a person. VOICEMAIL: a machine that takes a message. IVR: a menu. UNAVAILABLE: an announcement that
    neither the call nor a message can be taken. UNKNOWN: none of these for certain.
    """

    HUMAN = "human"
    VOICEMAIL = "voicemail"
    IVR = "ivr"
    UNAVAILABLE = "unavailable"
    UNKNOWN = "unknown"


class Sign(StrEnum):
    """What words are a sign of. SURE_VOICEMAIL says a tone follows; RECORDED: a machine, of whatever kind."""

    SURE_VOICEMAIL = "voicemail with a tone"
    IVR = "ivr"
    VOICEMAIL = "voicemail"
    UNAVAILABLE = "unavailable"
    RECORDED = "recorded"
    HUMAN = "human"


SIGNS: dict[Sign, tuple[str, ...]] = {
    Sign.SURE_VOICEMAIL: (
        r"(?:after|at|following|wait for|hear) the (?:\w+ )?(?:beep|tone|signal|bleep)",
        r"record (?:your|a) (?:\w+ )?message",
        r"(?:voice ?mail|voice messag\w+|answering) (?:box|system|service|machine)",
        r"\b(?:reached|this is|forwarded to)\b.{0,40}\b(?:voice ?mail|mailbox)\b(?! (?:is|box is) full)",
    ),
    Sign.IVR: (
        rf"\b(?:press|dial|push|touch|hit) (?:or say )?{DIGIT}\b",
        r"\b(?:please|now) (?:enter|select|choose|key in)\b",
        r"\b(?:enter|say) (?:or enter )?your (?:\w+ ){0,3}(?:number|pin|code|zip|extension|date|password)",
        r"\b(?:main menu|menu options|following options|your options|touch[- ]?tone|pound (?:key|sign))\b",
        r"\bcalls? (?:may|will|can|could) be (?:recorded|monitored)",
        r"\byour call (?:is (?:important|now|being)|will be)\b",
        r"\b(?:next|first) available (?:\w+ )?(?:agent|representative|operator|advisor|associate|person)",
        r"\ball (?:of )?(?:our |the )?(?:\w+ )?(?:agents|representatives|operators|advisors|lines|associates)"
        r" (?:\w+ ){0,6}(?:are|busy)\b",
        r"\b(?:stay|remain) on the line\b|\bplease (?:continue to )?hold (?:while|for the|and your)",
        r"\bplease wait while\b|\bcontinue to hold\b",
        r"\b(?:in a few words|you can say things like|which department)\b|\ba few words\b",
        r"\b(?:state|say|record) your name\b|\bscreening (?:service|calls)\b",
        r"\bknow your party'?s? extension\b|\bdirectory\b",
    ),
    Sign.VOICEMAIL: (
        r"(?<!to )\bleave (?:me |us |him |her |them )?(?:a |an |your |the )?(?:\w+ ){0,5}"
        r"(?:message|name|number|voice ?mail|details|note)\b",
        rf"{NOT} (?:able )?(?:to )?(?:come|get|make it) to (?:the|my) phone",
        rf"{NOT} (?:able )?(?:to )?(?:take|answer|pick up|get) (?:the|your|my|this) (?:phone|call)",
        rf"\b(?:i|we)(?:'m| am|'re| are)? {NOT} (?:available|here|around|in|home|at home)\b"
        r".{0,40}\b(?:but|so)\b",
        r"\b(?:get|call|ring) (?:right )?back to you\b|\breturn your call\b",
        r"\bcall you (?:right )?back (?:as soon|when|at my|at our|just as)",
        r"\b(?:nobody|no one) (?:is|can)\b.{0,30}\b(?:call|phone)\b",
        r"\bmissed your call\b|\bsorry (?:i|we)(?:'ve| have)? missed you",
    ),
    Sign.UNAVAILABLE: (
        r"\b(?:number|person|customer|subscriber|party|user|member|mobile|extension|caller|called)\b"
        r"(?: that)? (?:you|your)\b"
        r".{0,50}\b(?:not|\w+n't|no longer|unavailable|disconnected|changed|"
        r"switched off|turned off|busy|cannot|out of|invalid|unassigned|restricted)\b",
        r"\bis (?:currently |temporarily |presently )?(?:switched off|turned off|out of service)",
        r"\bout of coverage\b",
        r"\b(?:not|no longer) in service\b|\bhas been (?:disconnected|changed)\b|\bdisconnected or\b",
        r"\bcannot be (?:completed|connected|reached|put through)\b|\bcould not be (?:completed|connected)\b",
        r"\bcan't be (?:completed|connected|reached|put through)\b",
        r"\bcheck the number\b|\bnot a (?:valid|working) (?:number|extension)\b",
        r"\b(?:mailbox|voice ?mail(?: box)?) (?:is (?:full|not)|has not|hasn't|that has not)\b",
        r"\b(?:circuits|lines) are (?:currently |now )?busy\b|\bnot accepting calls\b",
        r"\btemporarily unavailable\b",
        r"\b(?:call|try)(?: your call| your number| the number)? again later\b",
        r"\b(?:office|offices|store|shop|we|clinic|practice) (?:is|are|'re) (?:now |currently )?closed\b",
    ),
    Sign.RECORDED: (
        r"\byou(?:'ve| have) reached\b",
        r"\b(?:thank you|thanks) for calling\b",
        r"\bwelcome to\b|^welcome\b",
        r"\b(?:opening|business|office) hours\b",
        r"\bnot available\b|\bunavailable\b",
        r"\bplease (?:call|visit|try)\b|\bgoodbye\b",
        r"\b(?:transfer|connect)(?:red|ed|ing)? (?:you|your call)\b|\btransferred\b",
    ),
    Sign.HUMAN: (
        r"^(?:hello|hi|hey|yes|yeah|yep|who|what|sorry)\b[^.!?]{0,12}\?$",
        r"\b(?:can|may|could) i help\b|\bwhat can i (?:do|get)\b|\bhow (?:can|may) (?:i|we) (?:help|assist)",
        r"\bspeaking[.?!]*$",
        r"\bwho(?:'s| is| am i) (?:this|that|calling|speaking|there|it)\b",
        r"\b(?:can|could|may) i (?:call you back|take a message|ask who)\b",
    ),
}
"""The phrases of each sign, in the order in which they are tried."""

_COMPILED = {sign: [re.compile(each) for each in phrases] for sign, phrases in SIGNS.items()}


def signs(text: str) -> dict[Sign, str]:
    """Return the signs in a transcript, with the words that gave each, in the order of ``SIGNS``."""
    plain = " ".join(text.lower().replace("’", "'").replace(",", "").replace("-", " ").split())
    found = {}
    for sign, phrases in _COMPILED.items():
        for phrase in phrases:
            if match := phrase.search(plain):
                found[sign] = match.group().strip()
                break
    return found
