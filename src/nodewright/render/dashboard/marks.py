"""Marks by which pods are told apart at a glance: a number each, which is a colour, a pattern and letters."""

from collections.abc import Iterable, Mapping


def marks(uids: Iterable[str], before: Mapping[str, int] | None = None) -> dict[str, int]:
    """A number for each pod, the least that is free; a pod that was there keeps the one that it had.

    >>> marks(["a", "b"])
    {'a': 0, 'b': 1}
    >>> marks(["b", "c", "d"], {"a": 0, "b": 1})
    {'b': 1, 'c': 0, 'd': 2}
    """
    known = before or {}
    wanted = list(dict.fromkeys(uids))
    kept = {uid: known[uid] for uid in wanted if uid in known}
    taken, free, found = set(kept.values()), 0, dict[str, int]()
    for uid in wanted:
        if uid not in kept:
            while free in taken:
                free += 1
            taken.add(free)
        found[uid] = kept.get(uid, free)
    return found


def letters(mark: int) -> str:
    """The mark as people read it.

    >>> [letters(mark) for mark in (0, 25, 26, 109)]
    ['A', 'Z', 'AA', 'DF']
    """
    text = ""
    mark += 1
    while mark:
        mark, rest = divmod(mark - 1, 26)
        text = chr(ord("A") + rest) + text
    return text
