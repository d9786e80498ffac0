"""The words for a voice, from the text of a language model."""

import re
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rejoinder.models.tts.spoken import spoken

PLAIN = [
    ("", ""),
    ("   \n ", ""),
    ("!?", ""),
    ("***", ""),
    ("😀👍🏽", ""),
    ("Sure, I can help with that.", "Sure, I can help with that."),
    ("You’re right, don't worry!", "You're right, don't worry!"),
    ("Wait...", "Wait..."),
    ("It (the dog) barked — loudly.", "It, the dog, barked, loudly."),
    ("“Hi,” she said.", "Hi, she said."),
    ("Crème brûlée 🍮 is lovely ❤️.", "Crème brûlée is lovely."),
    ("\ud800Hi\x00 there", "Hi there"),
]

MARKDOWN = [
    ("**Sure", "Sure"),
    ("thing**", "thing"),
    ("A **bold** and *soft* word.", "A bold and soft word."),
    ("~~old~~ new", "old new"),
    ("## Steps", "Steps"),
    ("# Soup\n\nIt is hot.", "Soup. It is hot."),
    ("- milk\n- eggs", "milk. eggs"),
    ("1. Mix\n2. Bake", "one. Mix. two. Bake"),
    ("1984.", "nineteen eighty four."),
    ("> quoted", "quoted"),
    ("See [the docs](https://example.com/a) here.", "See the docs here."),
    ("see [docs](https", "see docs"),
    ("Look: ![a cat](cat.png)", "Look: a cat"),
    ("It is true[1].", "It is true."),
    ("Run `pip install x` now.", "Run pip install x now."),
    ("```python\nprint(1)\n```", ""),
    ("```python\nprint(1)", ""),
    ("```\nThere you go.", "There you go."),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a, b. one, two"),
    ("| milk | eggs |", "milk, eggs"),
    ("|---|:--|", ""),
    ("<b>Hi</b> &amp; bye", "Hi and bye"),
    ("use snake_case", "use snake case"),
    ("2*3*4", "two times three times four"),
]

WORDS = [
    ("It's 7:30 pm now.", "It's seven thirty p m now."),
    ("Meet me at 9:05 a.m. tomorrow.", "Meet me at nine oh five a m tomorrow."),
    ("That costs $12.50.", "That costs twelve dollars fifty cents."),
    ("They raised $3.5 million.", "They raised three point five million dollars."),
    ("It is $5/month.", "It is five dollars per month."),
    ("It's the 3rd time.", "It's the third time."),
    ("The date is 2026-11-21.", "The date is the twenty first of November twenty twenty six."),
    ("On 12/25/2026 we met.", "On the twenty fifth of December twenty twenty six we met."),
    ("The 1990s were fun.", "The nineteen nineties were fun."),
    ("About 50% of it.", "About fifty percent of it."),
    ("It's 20°C outside.", "It's twenty degrees Celsius outside."),
    ("It's -1°F here.", "It's minus one degrees Fahrenheit here."),
    ("It's 72° today.", "It's seventy two degrees today."),
    ("Add 1 tbsp of oil.", "Add one tablespoon of oil."),
    ("Add 2½ cups.", "Add two and a half cups."),
    ("Run 5 km today.", "Run five kilometers today."),
    ("Drive 60 mph.", "Drive sixty miles per hour."),
    ("It has 16 GB of RAM.", "It has sixteen gigabytes of RAM."),
    ("He is 5'11\".", "He is five foot eleven."),
    ("Call 555-0199.", "Call five five five, zero one nine nine."),
    ("Call (212) 555-0199.", "Call two one two, five five five, zero one nine nine."),
    ("Call 911 now.", "Call nine one one now."),
    ("Ask Dr. Smith.", "Ask doctor Smith."),
    ("Fruit, e.g. apples, etc.", "Fruit, for example apples, et cetera."),
    ("Main St. is near St. Mary.", "Main Street is near saint Mary."),
    ("There are 1,250 people.", "There are one thousand two hundred and fifty people."),
    ("Pi is 3.14.", "Pi is three point one four."),
    ("Salt & pepper.", "Salt and pepper."),
    ("5+3=8", "five plus three equals eight"),
    ("10 - 3 = 7", "ten minus three equals seven"),
    ("Take 5–10 minutes.", "Take five to ten minutes."),
    ("It's 3 - 5 days.", "It's three to five days."),
    ("It's 3x faster.", "It's three times faster."),
    ("A 16:9 screen.", "A sixteen to nine screen."),
    ("Mail me@example.com.", "Mail me at example dot com."),
    ("See https://www.example.com/a?b=1, ok?", "See example dot com, ok?"),
    ("and/or TCP/IP", "and or TCP slash IP"),
    ("We are #1 in C# & C++.", "We are number one in C sharp and C plus plus."),
    ("E = mc² on 20 m²", "E equals mc squared on twenty square meters"),
    ("World War II ended.", "World War two ended."),
    ("你好5, v3.11.2, ٣", "你好 five, v three point eleven point two, three"),
]


@pytest.mark.parametrize(("written", "said"), PLAIN + MARKDOWN + WORDS)
def test_text_is_read_as_expected(written: str, said: str) -> None:
    assert spoken(written) == said


def test_spoken_text_is_read_unchanged() -> None:
    for _, said in WORDS:
        assert spoken(said) == said


# Text that resembles an answer: random code points would rarely match a rule.
PIECES = st.sampled_from(
    [
        *"*_`#|[]()<>~-+=&@%/\\$€£°²½.,:;!?'\"^{}0123456789 \n",
        "```",
        "http://",
        "am",
        "km",
        "Dr.",
        "word",
        "٣",
        "①",
    ]
)
TEXT = st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=40).map("".join))


@settings(max_examples=400)
@given(TEXT)
@example("ﷺ" * 5)
def test_any_text_becomes_speakable_words(text: str) -> None:
    said = spoken(text)
    assert not re.search(r"[\d*_`#|\[\](){}<>~\\/&@%+=$^\"\n]", said)
    assert all(c in " .,;:!?'-…" or unicodedata.category(c)[0] in "LM" for c in said)
    assert said == said.strip()
    assert said == "" or any(map(str.isalpha, said))
    assert len(said) <= 40 * len(text)
