"""Merging hints: the quick ways agree with the kubelet's slow one, which tries every combination."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.topology.hint_merge import merged_hint, merged_lists
from nodewright.engine.core.topology.manager_config import TopologyManager
from nodewright.engine.core.topology.sparse_merge import (
    SearchBounds,
    best_common,
    best_common_by_search,
    best_intersection,
    best_intersection_by_search,
)
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import NUMADistances, StepBudget, minimum_size, nonempty_subsets
from nodewright.model.values.topology_hints import Fitting, Hint, HintList, Offer, resource_hint_lists
from nodewright.testing.strategies import (
    distance_tables,
    hint_lists,
    hint_rules,
    numa_demands,
    rule_hint_lists,
)

POLICIES = ("best-effort", "restricted", "single-numa-node")
MOST_NODES = 4


@st.composite
def questions(draw: st.DrawFn, *, with_rules: bool) -> tuple[TopologyManager, list[Offer]]:
    nodes = draw(st.integers(1, MOST_NODES))
    hints = st.one_of(hint_lists(nodes), rule_hint_lists(nodes)) if with_rules else hint_lists(nodes)
    items = draw(st.lists(st.dictionaries(st.sampled_from(("cpu", "gpu")), hints, max_size=2), max_size=3))
    return TopologyManager(
        policy=draw(st.sampled_from(POLICIES)),
        # Lists may name nodes that the machine does not have, as devices do; rules come from managers that know its nodes.
        numa=NUMASet((1 << draw(st.integers(nodes if with_rules else max(1, nodes - 1), nodes))) - 1),
        distances=draw(distance_tables(nodes)),
    ), [Offer(str(at), hints) for at, hints in enumerate(items)]


@given(questions(with_rules=False))
def test_folding_lists_gives_what_every_combination_gives(
    question: tuple[TopologyManager, list[Offer]],
) -> None:
    manager, offers = question
    merged = merged_hint(manager, offers)
    assert (merged.hint, merged.admit, merged.proved) == (*by_every_combination(manager, offers), True)


@given(questions(with_rules=True))
def test_a_rule_stands_for_the_list_that_it_expands_to(question: tuple[TopologyManager, list[Offer]]) -> None:
    manager, offers = question
    written_out = [
        Offer(
            offer.provider,
            {name: hints and HintList(tuple(hints)) for name, hints in (offer.hints or {}).items()},
        )
        for offer in offers
    ]
    merged = merged_hint(manager, offers)
    assert merged == merged_hint(manager, written_out)
    assert (merged.hint, merged.admit) == by_every_combination(manager, written_out)


def test_a_rule_names_nodes_of_the_machine() -> None:
    rule = Fitting.of(nodes=NUMASet.of(0, 3), needed=1, free={0: 0, 3: 4}, total={0: 4, 3: 4})
    offers = [Offer("custom", {"cpu": HintList(fitting=rule)})]
    with pytest.raises(
        ValueError, match="custom: the rule for hints of cpu names the NUMA nodes 0,3; the machine has 0-2"
    ):
        merged_hint(TopologyManager(policy="best-effort", numa=NUMASet.of(0, 1, 2)), offers)


@given(questions(with_rules=True))
def test_a_node_that_all_prefer_alone_is_what_the_lists_merge_to(
    question: tuple[TopologyManager, list[Offer]],
) -> None:
    manager, offers = question
    assert merged_hint(manager, offers) == merged_lists(manager, resource_hint_lists(offers))


@given(hint_rules(MOST_NODES))
def test_the_preferred_single_nodes_of_a_rule_are_those_that_it_fits_and_prefers(rule: Fitting) -> None:
    single = [1 << node for node in range(MOST_NODES)]
    assert rule.preferred_single_nodes() == sum(
        mask for mask in single if rule.fits(mask) and rule.prefers(mask)
    )


@given(st.data())
def test_searching_and_writing_out_all_sets_find_the_same_preferred_set(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 5))
    some = data.draw(st.lists(hint_rules(nodes), min_size=1, max_size=3))
    far = data.draw(distance_tables(nodes))
    common, sizes = (1 << nodes) - 1, range(1, nodes + 1)
    for fitting in some:
        common &= fitting.nodes.mask
    if common:
        number = best_common_by_search(some, common, sizes, far, StepBudget())
        assert number == best_common(some, common, sizes, far)


@given(st.data())
def test_searching_and_writing_out_all_sets_find_the_same_common_set(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 5))
    some = data.draw(st.lists(rule_hint_lists(nodes), min_size=1, max_size=3))
    narrowest = data.draw(st.integers(1, nodes))
    far = data.draw(distance_tables(nodes))
    lists = resource_hint_lists([Offer("some", {str(at): one for at, one in enumerate(some)})])
    common = (1 << nodes) - 1
    for each in lists:
        reach = each.named_nodes()
        common &= common if reach is None else reach
    if common and all(hints for hints in some):
        order = [*range(narrowest, 0, -1), *range(narrowest + 1, nodes + 1)]
        expected = best_intersection(lists, common, order, far)
        numbers = [
            mask
            for mask in best_intersection_by_search(
                lists, common, SearchBounds(narrowest, far, StepBudget(), small=0)
            )
            if mask
        ]
        ranked = min(
            numbers, key=lambda mask: (order.index(mask.bit_count()), span(mask, far), mask), default=0
        )
        assert ranked == expected


@given(st.data())
def test_the_fewest_places_are_those_of_the_smallest_set_that_has_enough(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(1, 5))
    places = data.draw(st.integers(1, (1 << nodes) - 1))
    wanted = data.draw(st.lists(numa_demands(nodes), max_size=3))
    sizes = [
        mask.bit_count() for mask in nonempty_subsets(places) if all(demand.met_by(mask) for demand in wanted)
    ]
    result = minimum_size(places, wanted)
    assert (result.size, result.proved) == (min(sizes, default=places.bit_count()), True)


# ---------------------------------------------------------------- the slow way


def by_every_combination(manager: TopologyManager, offers: Sequence[Offer]) -> tuple[Hint, bool]:
    everything = manager.numa.mask
    lists = written_out(offers)
    single = manager.policy == "single-numa-node"
    if single:
        lists = [
            [hint for hint in some if hint.preferred and (hint.numa is None or len(hint.numa) == 1)]
            for some in lists
        ]
    neediest = max(
        (min(sizes) for some in lists if (sizes := [len(h.numa) for h in some if h.numa is not None])),
        default=0,
    )
    survivors: set[tuple[bool, int]] = set()
    for combination in product(*lists):
        named = [hint.numa.mask for hint in combination if hint.numa is not None]
        mask = everything
        for number in named:
            mask &= number
        if mask:
            survivors.add((all(hint.preferred for hint in combination) and len(set(named)) <= 1, mask))

    def worse(result: tuple[bool, int]) -> tuple[object, ...]:
        preferred, mask = result
        size = mask.bit_count()
        fit = (0, size) if preferred else (1, -size) if size <= neediest else (2, size)
        return (*fit, span(mask, None if single else manager.distances), mask)

    preferred, mask = min(survivors, key=worse, default=(False, everything))
    hint = Hint(None if single and mask == everything else NUMASet(mask), preferred)
    return hint, preferred or manager.policy == "best-effort"


def written_out(offers: Sequence[Offer]) -> list[list[Hint]]:
    lists: list[list[Hint]] = []
    for offer in offers:
        if not offer.hints:
            lists.append([Hint(None, True)])
        lists += [
            [Hint(None, True)] if hints is None else list(hints) or [Hint(None, False)]
            for hints in (offer.hints or {}).values()
        ]
    return lists


def span(mask: int, distances: NUMADistances | None) -> int:
    if distances is None:
        return 0
    return sum(distances[number][other] for number in NUMASet(mask) for other in NUMASet(mask))
