"""Caches that are bounded in bytes, whatever their keys and values come from."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
ENTRY_BYTES = 256
"""What an entry counts besides its content."""
MAX_TEXT_LENGTH = 512
"""Longer texts are no names, keys, times or amounts that occur again."""


class BoundedCache(Generic[Key, Value]):
    """Values by key, together at most ``max_bytes``; those that were used longest ago are dropped first.

    The size of an entry is that of its content as JSON, which its objects in memory exceed a few times.

    >>> cache = BoundedCache[str, int](2 * (ENTRY_BYTES + 10))
    >>> for key in "abc":
    ...     cache.put(key, 1, 10)
    >>> cache.get("a"), cache.get("c"), len(cache)
    (None, 1, 2)
    """

    def __init__(self, max_bytes: int, max_entries: int = 1 << 20) -> None:
        self.max_bytes, self.max_entries, self.used_bytes = max_bytes, max_entries, 0
        self._entries: OrderedDict[Key, tuple[int, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """The value, which then counts as used; None: it is not in the cache."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[1]

    def put(self, key: Key, value: Value, size: int) -> None:
        """Sets the value; one that is larger than a quarter of the cache is not kept.

        Units: bytes.
        """
        self.drop(key)
        if size > self.max_bytes // 4:
            return
        self._entries[key] = ENTRY_BYTES + size, value
        self.used_bytes += ENTRY_BYTES + size
        while self.used_bytes > self.max_bytes or len(self._entries) > self.max_entries:
            self.used_bytes -= self._entries.popitem(last=False)[1][0]

    def drop(self, key: Key) -> None:
        """Forgets the value, if there is one."""
        if (entry := self._entries.pop(key, None)) is not None:
            self.used_bytes -= entry[0]

    def clear(self) -> None:
        """Forgets all values."""
        self._entries.clear()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)


def cached_texts(max_entries: int) -> Callable[[Callable[[str], Value]], Callable[[str], Value]]:
    """Caches a function of a text; of a long text its value is computed each time."""

    def decorator(function: Callable[[str], Value]) -> Callable[[str], Value]:
        cached = lru_cache(max_entries)(function)

        @wraps(function)
        def value_of(text: str) -> Value:
            # Amounts may be numbers.
            is_long = isinstance(text, str) and len(text) > MAX_TEXT_LENGTH
            return function(text) if is_long else cached(text)

        return value_of

    return decorator
