"""Word tables of the guard: they bring English questions of one meaning to one form."""

from __future__ import annotations

FILLERS = frozenset("um uh er really actually kindly any some a an the of".split())
"""Words that change nothing about the answer."""

_DIGITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
)
SPOKEN_NUMBERS = {
    word: str(number) for number, word in enumerate(f"{_DIGITS} seventeen eighteen nineteen twenty".split())
} | {
    word: str(30 + 10 * place)
    for place, word in enumerate("thirty forty fifty sixty seventy eighty ninety".split())
}
"""Number words by their digits. Ordinals and fractions are words like all others: they must match too."""

_GROUPS = """
big large
biggest largest
cost costs charge
start begin begins starts
end finish ends finishes
buy purchase
photo picture image
phone telephone
tv television
movie film
accept take
allowed permitted
required needed necessary
airplane plane aeroplane
children kids kid child
repair fix
delete erase
safe secure
doctor physician
shop store
invoice bill
speak talk
person human
nearest closest
fastest quickest
often frequently
abroad internationally overseas
author writer wrote written
painter painted
inventor invented
founder founded
built build
mean meaning meant
wifi wlan
kilometer kilometre km
meter metre
liter litre
center centre
color colour
mother mom mum
father dad
i my me mine myself
you your yours
we our us
he his him
she her hers
they their them
height tall high
is are am be been
was were
has have
"""
FIRST_SYNONYMS = {word: group.split()[0] for group in _GROUPS.strip().splitlines() for word in group.split()}
"""Words of one meaning, each by the first word of its group."""

MOVABLE = frozenset("cost height size age has author painter inventor founder is was".split())
"""Canonical words that stand before or behind what they belong to: a ticket's cost, the cost of a ticket."""

EMPTY = frozenset("is do does there".split())
"""Canonical words that add nothing to the kind of their question."""

REWRITES = (
    # contractions and spellings
    (r"\b(what|where|who|how|when|why|that|it|there|here)'s\b", r"\1 is"),
    (r"\bcan't\b|\bcannot\b", "can not"),
    (r"\bwon't\b", "will not"),
    (r"n't\b", " not"),
    (r"'re\b", " are"),
    (r"'ve\b", " have"),
    (r"'ll\b", " will"),
    (r"\bi'm\b", "i am"),
    (r"\bi'd\b", "i would"),
    (r"'s?\b", ""),
    (r"\bwi fi\b|\bwi-fi\b", "wifi"),
    (r"\be mail\b|\be-mail\b", "email"),
    (r"\b(\d+) ?a ?m\b", r"\1 am."),
    (r"\b(\d+) ?p ?m\b", r"\1 pm."),
    # what the caller says around the question
    (
        r"^((excuse me|good (morning|afternoon|evening)|hello|hi|hey|okay|ok|so|well|um|uh|please)\b *)+"
        r"(?=.)",
        "",
    ),
    (r"(?<=.)( (please|thank you|thanks))+$", ""),
    (r"\b(can|could|would|will) you (tell|explain|give|show|teach)( to)?( me| us)?\b", r"\2"),
    (r"\bi (would like|want) to (know|hear)\b", "tell"),
    (r"\bdo you know\b", "tell"),
    (
        r"^ *(tell|explain|give|show|teach)( to)?( me| us)? (what|when|where|who|why|how|which|if|whether)\b",
        r"\4",
    ),
    (r"^ *(tell|give)( me| us)? (the|your|about)\b", r"what is \3"),
    (r"^ *explain( to)?( me| us)?\b", "what is"),
    (r"\b(tell|give|show|teach) (me|us)\b", r"\1"),
    # one form for each kind of question
    (
        r"\bat (what|which) time\b(?! did| was| were)|\bwhat time (?=is|are|do|does|can|will)",
        "when ",
    ),
    (r"\bat what\b|\bin what\b|\bfor how\b", lambda found: found[0].split()[-1]),
    (r"\bis it possible to\b", "can i"),
    (r"\bmay i\b|\bcould i\b", "can i"),
    (r"\b(do|can) i get\b", "can i get"),
    (r"\b(is|are) there\b", "has"),
    (r"^ *do you (have|got)\b", "has"),
    (r"\bhave (got )?to\b|\bmust\b", "need"),
    (r"\bwhat is (the )?(best way|way) to\b|\bhow (do|can|should|could) i\b", "how"),
    (r"\bhow (do|can|should|could) you\b", "how you"),
    (r"\bhow to\b", "how"),
    (r"\bhow much (is|are|does|do)\b(?=.*\b(plus|minus|times|divided|percent|half|third)\b)", "what"),
    (r"\bhow much (is|are)\b|\bhow much (do|does|will|did)\b(?=.*\bcost)", "what cost"),
    (r"\b(what|which) (do|does) (.*) cost\b", r"what cost \3"),
    (r"^ *what cost(.*) cost\b", r"what cost \1"),
    (r"\bprices?\b", "cost"),
    (r"\bhow (tall|high)\b", "what height"),
    (r"\bhow (big|large)\b", "what size"),
    (r"\bhow old\b", "what age"),
    (r"\bhow (often|frequently)\b", "howoften"),
    (r"\bhow (many|much|long|far)\b", r"how\1"),
    (r"\b(howmany .*) (is|are|has) in\b", r"\1"),
    (r"^ *howmany (.*) (has|have|got)$", r"howmany \1"),
    (r"^ *howmany (.*) (has|have)\b", r"howmany \1"),
    (r"^ *what (does|do) (.*) mean$", r"what is \2"),
    (r"^ *who (is|was) (the )?(author|writer|painter|inventor|founder) of\b", r"who \3"),
    (r"\bwhich\b", "what"),
    (r"\b(per|a|each|every) (second|minute|hour|day|week|month|year)\b", r"per \2"),
    (r"\b(turn|switch) on\b", "turnon"),
    (r"\b(turn|switch) off\b", "turnoff"),
    (r"\b(log|sign) in\b", "login"),
    (r"\b(log|sign) (out|off)\b", "logout"),
    (r"\bcheck (in|out)\b", r"check\1"),
    (r"\bcapital city\b", "capital"),
    (r"\b(reserve|book)(?= (the |a |an )?(table|room|flight|seat))", "reserve"),
    (r"\bon (?=(mon|tues|wednes|thurs|fri|satur|sun)days?\b)", ""),
)
"""Regular expressions and their replacements, in order, on a question in lower case without punctuation."""
