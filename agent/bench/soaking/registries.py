"""The sizes of all containers that a server holds, so that a soak sees which of them grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sized
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary

CONTAINERS = (dict, list, set, deque, WeakSet, WeakKeyDictionary, WeakValueDictionary)
"""Types that can grow."""
OWN_PREFIX = "rejoinder."
"""Beginning of the modules whose objects are searched."""
MOST_MEMBERS = 50
"""Most members of a container that are searched in turn."""
DEEPEST = 8
"""Most attributes from the root to a container."""


def registries(root: object) -> dict[str, int]:
    """Return the sizes of the containers that an object reaches, by the attributes on the way there."""
    found: dict[str, int] = {}
    seen, pending = {id(root)}, deque([("", root, 0)])
    while pending:
        path, holder, depth = pending.popleft()
        for name, value in _members(holder):
            if id(value) in seen or depth > DEEPEST:
                continue
            place = f"{path}.{name}".lstrip(".")
            if isinstance(value, CONTAINERS):
                seen.add(id(value))
                found[place] = len(value)
                pending.append((place, value, depth + 1))
            elif type(value).__module__.startswith(OWN_PREFIX):
                seen.add(id(value))
                pending.append((place, value, depth + 1))
    return found


def _members(holder: object) -> Iterator[tuple[str, Any]]:
    """Yield what an object holds, by name; the first members of a container by their place."""
    if isinstance(holder, CONTAINERS):
        if isinstance(holder, Sized) and len(holder) <= MOST_MEMBERS:
            values = [*holder.values()] if isinstance(holder, dict) else [*holder]
            yield from ((str(place), value) for place, value in enumerate(values))
        return
    yield from getattr(holder, "__dict__", {}).items()
    for class_ in type(holder).__mro__:
        slots = getattr(class_, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and (value := getattr(holder, name, None)) is not None:
                yield name, value
