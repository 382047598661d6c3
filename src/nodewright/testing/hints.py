"""Hypothesis strategies for what resource managers say of NUMA nodes."""

from hypothesis import strategies as st

from nodewright.model.hints import Fitting, Hint, HintList
from nodewright.values.idset import NUMASet
from nodewright.values.search import Distances
from nodewright.values.subsets import Demand


@st.composite
def listed(draw: st.DrawFn, nodes: int) -> HintList | None:
    """Hints one by one, of so many NUMA nodes; None: no opinion."""
    sets = st.integers(0, (1 << nodes) - 1).map(NUMASet)
    hints = st.builds(Hint, st.one_of(st.none(), sets, sets, sets, sets), st.booleans())
    return draw(st.one_of(st.none(), st.lists(hints, max_size=6).map(lambda found: HintList(tuple(found)))))


@st.composite
def demands(draw: st.DrawFn, nodes: int) -> Demand:
    """What sets of NUMA nodes must have."""
    shares = draw(st.lists(st.tuples(st.integers(1, (1 << nodes) - 1), st.integers(0, 4)), max_size=5))
    return Demand(draw(st.integers(0, 8)), tuple(shares))


@st.composite
def fittings(draw: st.DrawFn, nodes: int) -> Fitting:
    """Rules that stand for many hints."""
    among = draw(st.integers(1, (1 << nodes) - 1))
    halves = (0b0011, 0b1100)
    return Fitting(
        NUMASet(among),
        tuple(draw(st.lists(demands(nodes), max_size=2))),
        draw(st.integers(1, nodes)),
        touching=tuple(draw(st.lists(st.integers(1, (1 << nodes) - 1), max_size=1))),
        at_least=draw(st.integers(1, 2)),
        sockets=draw(st.sampled_from(((), (), halves))),
        preferred_sockets=draw(st.integers(1, 2)),
    )


@st.composite
def rules(draw: st.DrawFn, nodes: int) -> HintList:
    """A rule, and hints beside it."""
    sets = st.integers(1, (1 << nodes) - 1).map(NUMASet)
    beside = draw(st.lists(st.builds(Hint, sets, st.booleans()), max_size=2))
    return HintList(tuple(beside), draw(fittings(nodes)))


@st.composite
def distance_tables(draw: st.DrawFn, nodes: int) -> Distances | None:
    """Distances between so many NUMA nodes; None: they do not count."""
    if draw(st.booleans()):
        return None
    row = st.lists(st.sampled_from((10, 12, 20, 21)), min_size=nodes, max_size=nodes)
    return {node: draw(row) for node in range(nodes)}
