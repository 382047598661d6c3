"""Owners of nodes: even shares, and few nodes that move when there is one more."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from nodewright.scheduling.verdicts.node_owners import NodeOwners

NAMES = [f"worker-{at}" for at in range(4000)]


@given(st.integers(1, 12))
def test_one_more_owner_only_takes_nodes_over(count: int) -> None:
    before, after = NodeOwners(count), NodeOwners(count + 1)
    moved = [name for name in NAMES if before.owner(name) != after.owner(name)]
    assert {after.owner(name) for name in moved} == {count}
    assert abs(len(moved) - len(NAMES) / (count + 1)) < len(NAMES) / 20


def test_shares_are_even_and_in_order() -> None:
    shares = NodeOwners(4).split(NAMES)
    assert sum(map(len, shares.values())) == len(NAMES)
    assert max(map(len, shares.values())) < 1.1 * len(NAMES) / 4
    assert all(share == sorted(share, key=NAMES.index) for share in shares.values())
    assert Counter(name for share in shares.values() for name in share) == Counter(NAMES)
