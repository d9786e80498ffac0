"""Rules that notice likely prompt injections in a transcript.

They were chosen by one half of a set of 200 sentences and judged by the other (docs/guides/guardrails.md).
A caller who wants to get past them can: they mark, they do not protect.
"""

from __future__ import annotations

import re

_ORDERS = (
    r"(?:instructions?|directions?|directives?|rules?|guidelines?|guard ?rails?|programming|prompts?"
    r"|polic(?:y|ies)"
    r"|restrictions?|limits?|limitations?|safety|filters?|settings|ethics)"
)
_PROMPT = (
    r"(?:(?:system|initial|original|secret|hidden|confidential|developer) (?:\w+ )?(?:prompts?|messages?|"
    r"instructions?)|your (?:\w+ ){0,2}(?:prompt|instructions|configuration|context)|(?:text"
    r"|everything|words?) above"
    r"|the prompt)"
)
_FREE = (
    r"(?:no|without|any|evil|unrestricted|unfiltered|uncensored|jail ?broken|hacker|terminal|shell"
    r"|never refuses?|"
    r"free ai|dan)"
)
INJECTION_RULES = {
    name: re.compile(pattern)
    for name, pattern in {
        "cancels instructions": (
            r"\b(?:ignore|disregard|override|overrule|bypass|drop|disable|remove|break|turn off|replace"
            r"|erase|wipe)\b"
            rf"(?: \w+){{0,4}}? (?:your|previous|prior|earlier|all|any|the (?:above|system)|my|these"
            rf"|those)(?: \w+)"
            rf"{{0,3}}? {_ORDERS}\b"
            r"|\bforget (?:\w+ ){0,2}?(?:your|all)(?: \w+){0,2}? (?:instructions|rules|prompt|programming"
            r"|guidelines)\b"
            r"|\b(?:ignore|disregard|forget)(?: \w+){0,2} (?:everything|all|what)(?: \w+){0,2} (?:told"
            r"|taught|above)\b"
            r"|\b(?:ignore|disregard) (?:the |all )?(?:the )?above\b"
            r"|\bforget (?:that )?you are\b"
            rf"|\b(?:do not|don'?t|stop|quit)(?: follow(?:ing)?| obey(?:ing)?)(?: \w+){{0,3}} {_ORDERS}\b"
            rf"|\b(?:not|no longer) bound by(?: \w+){{0,2}} {_ORDERS}\b"
            rf"|\b(?:your|previous|earlier)(?: \w+){{0,2}} {_ORDERS}(?: \w+)? (?:no longer|do not"
            rf"|don'?t) apply\b"
            r"|\b(?:overrides?|priority over) (?:all )?(?:the )?(?:earlier|previous|ones|others)\b"
            r"|\byour safety\b(?: \w+){0,2} (?:off|down)\b"
        ),
        "asks for the prompt": (
            r"\b(?:reveal|tell|show|print|repeat|read|recite|say|translate|summari[sz]e|output|copy|give"
            r"|leak|list|"
            rf"expose|spell|dump|what)\b(?: \w+){{0,8}}? {_PROMPT}\b"
            r"|\b(?:list|what)\b(?: \w+){0,4} (?:tools|functions) (?:that )?you (?:can|have)\b"
            r"|\bwhat you were told before\b|\bwords in your (?:context|prompt)\b"
        ),
        "changes the role": (
            r"\b(?:you are now|you're now|now you are|act as|act like|pretend|assume the role|role ?play"
            r"|simulate|"
            rf"imagine you|where you are|become|respond only as)\b(?: \w+){{0,8}}? {_FREE}\b"
            r"|\b(?:stop being|you are not) an? (?:\w+ ){0,3}(?:agent|assistant)\b"
        ),
        "names a mode": (
            r"\b(?:developer|debug|god|admin|unrestricted|unlocked|dan|jailbreak) mode\b(?! on (?:this|my))"
            r"|\bdo anything now\b|\byou have been jail ?broken\b"
        ),
        "claims authority": (
            r"\b(?:your (?:developer|creator|programmer|administrator)|system administrator|root access|"
            rf"administrator i order)\b.*\b(?:{_ORDERS}|override|disable|activate|mode|reveal|obey)\b"
            r"|\bsystem: "
            r"|\boverride (?:code|now)\b|\bemergency override\b"
        ),
        "gives new instructions": (
            r"\b(?:obey|answer to|listen to) (?:only|no one but) me\b"
            r"|\b(?:your )?new (?:instructions|rules):? (?:you|always|never|only)\b"
            r"|\byour instructions to the following\b"
            r"|\byou work for me\b"
        ),
    }.items()
}
"""The rules by name, on lower-case words without commas."""

INJECTION_CHARACTERS = 2_000
"""Characters of a turn that the rules read."""

_BLANKS = re.compile(r"[\s,;.!?\"“”—–-]+")


def suspected(text: str) -> str:
    """Return the rule that a caller's words match, "" for none."""
    words = _BLANKS.sub(" ", text[:INJECTION_CHARACTERS].lower().replace("’", "'"))
    return next((name for name, rule in INJECTION_RULES.items() if rule.search(words)), "")
