"""Convert text of a language model into words for a voice.

markdown-it-py parses Markdown; damga's compiled English grammars read numbers, dates, money, units and
abbreviations. The tables here cover what these two leave; docs/design/spoken-text.md says why.
``spoken`` is a function of one clause, which may be half of a bold phrase.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # an extra brings the package, and a voice is looked up without it
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

# Units that damga does not know, and their words.
_UNITS = {
    "°C": "degrees Celsius", "°F": "degrees Fahrenheit", "°": "degrees",
    "tbsp": "tablespoons", "tsp": "teaspoons", "ml": "milliliters", "mL": "milliliters",
}  # fmt: skip


def _unit(match: re.Match[str]) -> str:
    words = _UNITS[match[2]]
    return f"{match[1]} " + (re.sub(r"s\b", "", words, count=1) if match[1] == "1" else words)


def _spaced(match: re.Match[str]) -> str:
    return " ".join(match[0].replace("-", ","))


_Rules = list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]

# Before Markdown is parsed: citations are removed, and a product is kept from becoming emphasis ("2*3*4").
_RAW: _Rules = [
    (re.compile(r"\[\^?\d+\](?:\(\S*?\))?"), ""),
    (re.compile(r"(?<=\d) ?\* ?(?=\d)"), " × "),
]

# Before damga: forms that damga does not know are rewritten as forms that it knows.
_BEFORE: _Rules = [
    (re.compile(r"\]\([^)\s]*\)?"), " "),  # the tail of a link cut off by a clause boundary
    (re.compile(r"https?://(?:www\.)?([^\s/?#]*[^\s/?#.,;:!)])[/?#]?[^\s]*?(?=[.,;:!?)]*(?:\s|$))"), r"\1"),
    (re.compile(r"([-=~*_#+])\1{2,}"), " "),
    (re.compile(r"[-=]+>"), " → "),
    (re.compile(r"(?<=\d) [-–−] (?=\d+ ?(?:=|is\b|equals\b))"), " minus "),
    (re.compile(r"(?<=\d) ?[-–−] ?(?=\d)"), "-"),
    (re.compile(r"\s[-–]+\s|\s*—\s*"), ", "),
    (re.compile(r"\b(0?[1-9]|1[0-2])/(\d\d?)/(\d{4})\b"), r"\3-\1-\2"),  # a slashed date is American
    (re.compile(r"\b(\d{4})-(\d)(?=-)"), r"\1-0\2"),
    (re.compile(r"\b(\d{4}-\d\d)-(\d)\b"), r"\1-0\2"),
    (re.compile(r"(?<![\w)-])(?<![\d)] )\d{3}-\d{4}(?![\w-])|(?<=\b[Cc]all )\d{3}\b"), _spaced),
    (re.compile(r"(?<![\d.,:/])(-?\d[\d.,/]*) ?(°[CF]?|tbsp|tsp|m[lL])(?!\w)"), _unit),
    (re.compile(r"\b(\d+):(\d(?!\d)|[6-9]\d)"), r"\1 to \2"),  # a ratio: no clock shows these minutes
    (re.compile(r"\b(\d)'(\d\d?)(?:\"|''|\b)"), r"\1 foot \2"),
    (re.compile(r"(?<=\d)x\b(?! ?\d)"), " times"),
    (re.compile(r"#(?=\d)"), "number "),
    (re.compile(r"\b([CF])#"), r"\1 sharp"),
    (re.compile(r"\band/or\b"), "and or"),
    (re.compile(r"(?<=[\w)])\s*([+=×÷])\s*(?=[\w(])"), r" \1 "),
]  # fmt: skip

# After damga: the remaining symbols are read as words. _drop removes symbols without words.
_SYMBOLS = str.maketrans({
    "&": " and ", "+": " plus ", "=": " equals ", "@": " at ", "%": " percent ", "/": " slash ",
    "~": " about ", "≈": " about ", "×": " times ", "÷": " divided by ", "±": " plus or minus ",
    "<": " is less than ", ">": " is greater than ", "≤": " is at most ", "≥": " is at least ",
    "≠": " is not ", "→": " to ", "°": " degrees ", "²": " squared ", "³": " cubed ",
    "$": " dollars ", "€": " euros ", "£": " pounds ",
    "(": ", ", ")": ", ", "|": ", ", "–": ", ", "’": "'", "‘": "'", "\ufe0f": "",
})  # fmt: skip
_DIGITS = "zero one two three four five six seven eight nine".split()
_TIDY: _Rules = [
    (re.compile(r"\s+"), " "),
    (re.compile(r" +(?=[.,;:!?])"), ""),
    (re.compile(r",+(?=[.,;:!?])|[\s,-]+$"), ""),
    (re.compile(r"(?<=[.;:!?]),"), ""),
    (re.compile(r"^[\s.,;:!?-]+"), ""),
]


@lru_cache(maxsize=256)  # short clauses such as "Yes." recur often, and are the first of a reply
def spoken(text: str) -> str:
    """Return the words in which a voice should read `text`, or "" if there is nothing to say.

    The first call loads the grammars, which takes about 60 ms; a voice's warm-up makes that call.
    """
    text = _apply(_RAW, text.encode("utf-8", "ignore").decode("utf-8"))
    text = re.sub(r"(?<=\d)(?=[¼-¾⅐-⅞])", " ", _plain(text))
    # Compatibility forms (a full-width digit, "½", "℃") become plain ones, but "²" must not become a 2.
    text = "".join(c if c in "²³…" else unicodedata.normalize("NFKC", c) for c in text).replace("⁄", "/")
    text = _words(_apply(_BEFORE, text))
    if re.search(r"\d", text):  # damga skips a number next to characters that it does not know
        text = _words(re.sub(r"\d+(?:[.,]\d+)*", r" \g<0> ", text))
        text = re.sub(r"\d", lambda digit: f" {_DIGITS[int(digit[0])]} ", text)
    text = _apply(_TIDY, "".join(map(_drop, text.translate(_SYMBOLS)))).strip()
    return text if any(map(str.isalpha, text)) else ""


def _apply(rules: _Rules, text: str) -> str:
    for pattern, replacement in rules:
        text = pattern.sub(replacement, text)
    return text


def _plain(markdown: str) -> str:
    """Return the text of `markdown`, with each block ended like a sentence."""
    parts: list[str] = []
    for token in _markdown().parse(markdown):
        if token.type == "inline":
            parts.extend(map(_inline, token.children or ()))
        elif token.type == "list_item_open" and token.info:
            parts.append(f"{token.info}. ")  # kept, because "1984." alone may be a year and not a list
        elif token.type in ("td_close", "th_close"):
            parts.append(", ")
        elif token.type in ("paragraph_close", "heading_close", "tr_close"):
            parts.append("\n")
        elif token.type == "fence" and not token.info and markdown.count(token.markup) % 2:
            parts.append(
                _plain(token.content)
            )  # a single fence ends code of an earlier clause: prose follows
    text = "".join(parts).strip()
    return re.sub(r"\s*\n\s*", " ", re.sub(r"([^\s.,:;!?…])[\s,]*\n", r"\1. ", text))


def _inline(token: Token) -> str:
    if token.type in ("text", "code_inline", "image"):
        return token.content
    return " " if token.type in ("softbreak", "hardbreak") else ""


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Rules for whole documents are off: a clause that only looks like indented code, an underlined heading,
    # an HTML block or a link definition would be lost.
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    return parser.disable(["code", "lheading", "html_block", "reference"])


@cache
def _reader() -> Callable[[str], str]:
    from damga import TextNormalizer

    normalize: Callable[[str], str] = TextNormalizer(lang="en", backend="native").normalize
    return normalize


def _words(text: str) -> str:
    return _reader()(text)


def _drop(char: str) -> str:
    """Return `char` if a voice can read it, or a space for an emoji, a bracket or a control character."""
    return char if char in " .,;:!?'-…" or unicodedata.category(char) in _SPEAKABLE else " "


_SPEAKABLE = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mc", "Mn"}
