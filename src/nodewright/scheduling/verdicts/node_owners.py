"""Which of several processes answers for a node."""

import hashlib
from collections.abc import Iterable

MAX_KNOWN = 100_000


class NodeOwners:
    """Gives each node one of several owners, by rendezvous hashing.

    Every process computes the same owner from the name alone, and another number of owners moves as few nodes as
    possible: from n to n + 1 owners, one node of n + 1.
    """

    def __init__(self, count: int) -> None:
        assert count > 0
        self.count = count
        self._known: dict[str, int] = {}

    def owner(self, name: str) -> int:
        """The number of the owner, from 0.

        >>> [NodeOwners(3).owner(f"worker-{at}") for at in range(8)]
        [1, 1, 2, 1, 2, 2, 2, 1]
        """
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            # The number decides between equal weights.
            known = self._known[name] = max(
                range(self.count), key=lambda owner: (_weight(name, owner), owner)
            )
        return known

    def split(self, names: Iterable[str]) -> dict[int, list[str]]:
        """The names by owner, each in its order; without owners of none."""
        shares: dict[int, list[str]] = {}
        for name in names:
            shares.setdefault(self.owner(name), []).append(name)
        return shares


def _weight(name: str, owner: int) -> bytes:
    return hashlib.blake2b(f"{owner}/{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
