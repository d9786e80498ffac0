"""Decides whether a question depends on nothing that was said before, or on when it is asked. English."""

from __future__ import annotations

import re

from rejoinder.models.caching.meaning import QUESTION_KINDS, meaning

WHEN_ASKED = frozenset(
    "today tonight now tomorrow yesterday currently current latest recent recently nowadays ago weather news"
    " date week weekend month yet already still soon later earlier".split()
)
"""Words whose answer changes with time. "What time is it" has them in a phrase of its own."""
POINTS_BACK = frozenset(
    "it its he him his she her hers they them their theirs this that these those one ones here there such"
    " same other others another else more again too also either neither both instead former latter previous"
    " last next before earlier above back then rest otherwise anyway my mine our ours me us say said"
    " mention mentioned mean meant talking repeat spell sure".split()
)
"""Words that may point to something said before: in doubt, the question does not stand alone."""
OPENERS = frozenset("and but or because if although though what's yes no yeah nope right sure".split())
"""First words that join a sentence to the one before."""
ASKS = QUESTION_KINDS | frozenset(
    "which is are was were do does did could would will shall may might am tell explain".split()
)
"""First words of a question or of a request to explain."""
LEAST_WORDS = 2
"""Words of meaning beside the kind of the question: with fewer, it may be an ellipsis such as "how much"."""
UNIQUE = frozenset(
    "sky moon sun earth world internet ocean sea equator universe government president weather police hotel"
    " restaurant museum airport station office bank shop store company website app wifi emergency".split()
)
"""Nouns with "the" that are known without having been mentioned: there is one, or the agent is its own."""
COMPLEMENTS = frozenset("of between for from to in on with".split())
"""Prepositions that say which one is meant, as in "the price of a ticket"."""
_PHRASES = re.compile(r"\b(what|how) about\b")
_CLOCK = re.compile(r"\bwhat (time|day) is it\b|\bwhat is the time\b")
_ASKING = re.compile(
    r"^(can|could|would|will) you (tell|explain|give)( to)? me\b|^(tell|give|explain to) me\b|^can i\b"
)
_COMPARED = re.compile(r"\b(\w{3,}er|more|less|better|worse)\b")
_NOT_COMPARED = frozenset(
    "number water other after over under her computer printer paper dinner order never ever weather winter"
    " summer mother father brother sister teacher center letter offer answer customer user member river tower"
    " flower power september october november december either neither whether however together remember"
    " consider enter per".split()
)


def depends_on_time(text: str) -> bool:
    """Return whether the answer changes with the time at which the question is asked."""
    plain = _plain(text)
    return bool(WHEN_ASKED & set(plain.split())) or _CLOCK.search(plain) is not None


def stands_alone(text: str) -> bool:
    """Return whether a question means the same whatever was said before it.

    It has to be a whole question, with at least ``LEAST_WORDS`` words of meaning, and with nothing in it that
    may point back: pronouns, first persons, joining words, comparatives without "than", or a definite noun
    such as "the price" without what it belongs to.
    """
    plain = _plain(text)
    words = plain.split()
    asked = re.sub(r"^(please |can you |could you |would you |hello |hi |excuse |me )+", "", plain).split()
    if not asked or asked[0] not in ASKS or words[0] in OPENERS:
        return False
    if POINTS_BACK & set(_ASKING.sub("", plain).split()) or _PHRASES.search(plain):
        return False
    compared = set(_COMPARED.findall(plain)) - _NOT_COMPARED
    if compared and "than" not in words:
        return False
    return _is_definite(text) and len(meaning(text).words) >= LEAST_WORDS


def _is_definite(text: str) -> bool:
    """Return whether each noun with "the" says by itself which one it means."""
    words = re.findall(r"[\w']+", text)
    for place, word in enumerate(words):
        following = words[place + 1 : place + 5]
        if word.lower() != "the" or not following:
            continue
        noun = following[0].lower()
        known = noun in UNIQUE or noun.endswith("est") or noun == "most" or following[0][0].isupper()
        if not known and not COMPLEMENTS & {each.lower() for each in following[1:]}:
            return False
    return True


def _plain(text: str) -> str:
    return " ".join(re.sub(r"[^\w\s']", " ", text.lower().replace("’", "'").replace("'s ", " is ")).split())
