"""Finds personal data in a text: card numbers, IBANs, e-mail addresses and telephone numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from rejoinder.models.hints import require
from rejoinder.pipeline.guarding.rules import Redactor

PERSONAL_DATA = ("card", "email", "iban", "phone")
"""The kinds of personal data that can be found."""
SPOKEN = dict.fromkeys(PERSONAL_DATA, "a private number") | {"email": "a private address"}
"""What the voice says in place of each kind."""
REGION = "US"
"""The country of telephone numbers without a country code."""

_APART = r"[\s,\u2010-\u2015-]{0,2}"
"""What may stand between two groups of a number. Models write blanks and hyphens that do not break, too."""
_CARD = re.compile(rf"(?<![\w.])\d(?:{_APART}\d){{11,18}}(?![\w]|\.\d)")
_IBAN = re.compile(rf"(?<!\w)[A-Z]{{2}}\d{{2}}(?:{_APART}[A-Z0-9]){{11,30}}(?!\w)", re.IGNORECASE)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}\w{2,24}(?!\w)")


def redactors(kinds: Sequence[str], region: str = REGION, placeholder: str = "") -> list[Redactor]:
    """Return a finder for each kind of personal data.

    kinds: of ``PERSONAL_DATA``. region: country of telephone numbers without a country code, such as "DE".
    placeholder: what replaces each place, with {} for its kind; "" for the words of ``SPOKEN``.
    Raises ModelError if the package that finds telephone numbers is missing, ValueError for an unknown kind.
    """
    if unknown := sorted(set(kinds) - set(PERSONAL_DATA)):
        raise ValueError(f"{unknown[0]!r} cannot be redacted: there are {', '.join(PERSONAL_DATA)}")
    finders: dict[str, Callable[[str], Iterable[tuple[int, int]]]] = {
        "card": cards,
        "email": emails,
        "iban": ibans,
        "phone": partial(phones, region=region),
    }
    if "phone" in kinds:
        require("redact phone", ["phonenumbers"], "guard")
        list(phones("+1 202 555 0100", region))  # loads the numbering plan now, not in a call
    # Telephone numbers come last: the beginning of a card number may look like one.
    return [_redactor(finders[kind], placeholder.format(kind) or SPOKEN[kind]) for kind in sorted(kinds)]


def _redactor(find: Callable[[str], Iterable[tuple[int, int]]], replacement: str) -> Redactor:
    def redact(text: str) -> Iterable[tuple[int, int, str]]:
        return [(start, end, replacement) for start, end in find(text)]

    return redact


def cards(text: str) -> Iterable[tuple[int, int]]:
    """Yield the places of payment card numbers: 12 to 19 digits with a right check digit (ISO/IEC 7812-1)."""
    for found in _CARD.finditer(text):
        if _luhn([int(digit) for digit in found[0] if digit.isdigit()]):
            yield found.span()


def _luhn(digits: list[int]) -> bool:
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def ibans(text: str) -> Iterable[tuple[int, int]]:
    """Yield the places of bank account numbers whose check digits are right (ISO 13616, ISO 7064 MOD 97-10).

    An IBAN has 15 to 34 characters. A word of letters behind one is not taken into it.
    """
    for found in _IBAN.finditer(text):
        parts = list(re.finditer(r"[A-Za-z0-9]+", found[0]))
        for last in reversed(parts):
            number = "".join(part[0] for part in parts if part.end() <= last.end()).upper()
            if 15 <= len(number) <= 34 and _mod97(number):
                yield found.start(), found.start() + last.end()
                break


def _mod97(number: str) -> bool:
    turned = number[4:] + number[:4]
    return int("".join(str(int(sign, 36)) for sign in turned)) % 97 == 1


def emails(text: str) -> Iterable[tuple[int, int]]:
    """Yield the places of e-mail addresses."""
    return (found.span() for found in _EMAIL.finditer(text)) if "@" in text else ()


def phones(text: str, region: str) -> Iterable[tuple[int, int]]:
    """Yield the places of telephone numbers that exist in the numbering plan of their country."""
    if sum(map(str.isdigit, text)) < 5:  # the library looks at each digit: most clauses have none
        return
    from phonenumbers import PhoneNumberMatcher

    for found in PhoneNumberMatcher(text, region):
        yield found.start, found.end
