"""What a network and a broken peer make of good messages: hypothesis strategies that tests draw from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

Frame = str | bytes
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


def places(message: Any) -> list[tuple[Any, Any]]:
    """Return where the values of a message are: what holds each, and under which key."""
    found: list[tuple[Any, Any]] = []
    if isinstance(message, dict | list):
        for key in list(message) if isinstance(message, dict) else range(len(message)):
            found += [(message, key), *places(message[key])]
    return found


@st.composite
def damaged(draw: st.DrawFn, frame: Frame) -> Frame:
    """Return a message with something wrong in it: a value, a field that is gone, its end, or a byte."""
    try:
        message = json.loads(frame)
    except ValueError:
        message = None
    what = draw(st.sampled_from(["value", "gone", "more", "cut", "bytes", "nothing"]))
    found = places(message)
    if what == "cut" or (what in ("value", "gone") and not found):
        return frame[: draw(st.integers(0, len(frame)))]
    if what == "bytes":
        raw = frame.encode() if isinstance(frame, str) else frame
        return raw if draw(st.booleans()) else raw.decode("latin-1")
    if what == "nothing":
        return draw(st.sampled_from(["", b"", "{}", "[]", "null"]))
    if what == "more" and isinstance(message, dict):
        message[draw(st.text(max_size=8))] = draw(JSON)
    elif found:
        holder, key = draw(st.sampled_from(found))
        if what == "gone":
            del holder[key]
        else:
            holder[key] = draw(JSON | st.sampled_from(["\ud800", "😀" * 40, 10**400, "1e999", -1, "²"]))
    return json.dumps(message)


@st.composite
def scrambled(draw: st.DrawFn, frames: Sequence[Frame]) -> list[Frame]:
    """Return messages of which some are lost, doubled, late, early or damaged; often it is all of them."""
    came = list(frames)
    for _ in range(draw(st.integers(0, 8))):
        if not came:
            break
        place = draw(st.integers(0, len(came) - 1))
        match draw(st.sampled_from(["lost", "doubled", "moved", "damaged", "restart"])):
            case "lost":
                del came[place]
            case "doubled":
                came.insert(draw(st.integers(0, len(came))), came[place])
            case "moved":
                came.insert(draw(st.integers(0, len(came) - 1)), came.pop(place))
            case "damaged":
                came[place] = draw(damaged(came[place]))
            case "restart":
                came[place:place] = frames[:2]
    return came
