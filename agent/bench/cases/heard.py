"""Replies for ``rejoinder bench heard``: words as they are written, each with its spoken form.

The spoken form is written by hand, so that the bench does not depend on the code that it measures.
``[$5|five dollars]`` is one written word and its spoken form. A word without brackets is spoken as written.
"""

from __future__ import annotations

import re

Word = tuple[str, str]
"""A word as it is written, and its spoken form, which may be empty."""

WRITTEN = """
It costs [$12.50|twelve dollars fifty cents] in total, and the delivery is free.
You have [3|three] new messages and [12|twelve] missed calls since yesterday.
The meeting is on March [3rd|third] at [10:30|ten thirty] [AM|a m] in the big room.
We moved here in [1984|nineteen eighty four,] [—|] or so I have been told by my sister.
[Dr.|doctor] Smith lives on the [3rd|third] floor, next to the lift.
That is [**really**|really] good, and [*very*|very] cheap for what it does.
[1.|one.] First you mix [200|two hundred] [ml|milliliters] of milk with [2|two] [tbsp|tablespoons] of sugar.
It is [21|twenty one] degrees outside, and it will rain at about [5|five] in the afternoon.
The train leaves in [15|fifteen] minutes from platform [7|seven], so you should hurry.
About [75%|seventy five percent] of the people who tried it said that they would do it again.
It has been one of the best years that we have had since [2015|two thousand fifteen].
There are [365|three hundred and sixty five] days in a year, and one more in a leap year.
I found [2|two] places that are open now: one in the old town, and one at the end of the road.
Your order [#42|number forty two] has been sent, and it should be with you in [2-3|two to three] days.
The bridge is [1,280|one thousand two hundred and eighty] meters long, and quite old.
Sure! [🎉|] I can do that for you. When would you like me to call?
That depends on what you want to do with it, [e.g.|for example] whether it has to be in the house.
He was born in [1879|eighteen seventy nine], and he died in [1955|nineteen fifty five].
The bill is [$250|two hundred and fifty dollars], or [5|five] parts of [$50|fifty dollars] each.
It was a good one, and it is a pity that it has been over for such a long time.
You can reach them at [555-0134|five five five, zero one three four] until [6|six] [PM|p m] on weekdays.
The answer is [2|two] [+|plus] [2|two] [=|equals] [4|four], as you would expect.
The file is [3.5|three point five] [GB|gigabytes], so it will take a while to download.
[Mr.|mister] [&|and] [Mrs.|missus] Brown have been here for [10|ten] years, and they are not going to leave.
On [2024-05-17|the seventeenth of May twenty twenty four] it was [-3|minus three] degrees at night.
"""
"""Sentences, one per line, with ``[written|spoken]`` where the two forms differ."""

_WORD = re.compile(r"\[([^|]*)\|([^]]*)\]([^\s\[]*)|(\S+)")


def written() -> list[list[Word]]:
    """Return the replies in which the spoken form of some words differs."""
    return [words(line) for line in WRITTEN.strip().splitlines()]


def words(line: str) -> list[Word]:
    """Return the words of one reply in the notation."""
    return [
        (match[4], match[4]) if match[4] else (match[1] + match[3], match[2] + match[3])
        for match in _WORD.finditer(line)
    ]
