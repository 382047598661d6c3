"""The topology manager: options, merging, the policies, and why a hint is not preferred."""

from itertools import product

import pytest

from nodewright.engine.core.topology.hint_merge import combination_count, merged_hint, numa_affinity
from nodewright.engine.core.topology.manager_config import TopologyManager, topology_manager
from nodewright.engine.core.topology.sparse_merge import best_common_by_search
from nodewright.model.hardware import NUMANode
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.reasons.topology import (
    HintsMerged,
    NoCommonNUMA,
    NothingPreferred,
    PreferencesDiffer,
    obstacles,
    resource_hints,
)
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.subsets import Demand, StepBudget
from nodewright.model.values.topology_hints import (
    IMPOSSIBLE,
    Fitting,
    Hint,
    HintList,
    Offer,
    demand_by_numa_node,
)

ALL_POLICIES = ("best-effort", "restricted", "single-numa-node")


def hints(text: str) -> HintList:
    """Hints from masks as they are written in documents, node 0 on the right: `01 pref, 10 pref, 11 not`."""
    words = [part.split() for part in text.split(",")]
    return HintList(tuple(Hint(NUMASet(int(mask, 2)), word == "pref") for mask, word in words))


def manager(policy: str, nodes: int) -> TopologyManager:
    return TopologyManager(policy=policy, numa=NUMASet((1 << nodes) - 1))


def uniform(nodes: int, needed: int, *, free: int, total: int) -> HintList:
    everywhere = range(nodes)
    rule = Fitting.of(
        nodes=NUMASet.from_ids(everywhere),
        needed=needed,
        free=dict.fromkeys(everywhere, free),
        total=dict.fromkeys(everywhere, total),
    )
    return HintList(fitting=rule)


# ---------------------------------------------------------------- the worked case

CPU, GPU, NIC = hints("01 pref, 10 pref, 11 not"), hints("01 pref, 10 pref"), hints("01 pref, 10 pref")

EVERY_COMBINATION = """
    cpu 01  gpu 01  nic 01  ->  01 pref
    cpu 01  gpu 01  nic 10  ->  void
    cpu 01  gpu 10  nic 01  ->  void
    cpu 01  gpu 10  nic 10  ->  void
    cpu 10  gpu 01  nic 01  ->  void
    cpu 10  gpu 01  nic 10  ->  void
    cpu 10  gpu 10  nic 01  ->  void
    cpu 10  gpu 10  nic 10  ->  10 pref
    cpu 11  gpu 01  nic 01  ->  01 not
    cpu 11  gpu 01  nic 10  ->  void
    cpu 11  gpu 10  nic 01  ->  void
    cpu 11  gpu 10  nic 10  ->  10 not
"""


def test_the_table_has_every_combination() -> None:
    rows = [line.split() for line in EVERY_COMBINATION.strip().splitlines()]
    masks = [tuple(int(row[at], 2) for at in (1, 3, 5)) for row in rows]
    lists = [[hint.numa.mask for hint in some if hint.numa] for some in (CPU, GPU, NIC)]
    assert masks == list(product(*lists))


@pytest.mark.parametrize("line", EVERY_COMBINATION.strip().splitlines())
def test_one_hint_of_each_list_gives_what_they_have_in_common(line: str) -> None:
    _, cpu, _, gpu, _, nic, _, *result = line.split()
    chosen = [
        HintList(tuple(hint for hint in some if hint.numa == NUMASet(int(mask, 2))))
        for some, mask in ((CPU, cpu), (GPU, gpu), (NIC, nic))
    ]
    merged = merged_hint(
        manager("best-effort", 2), [Offer(str(at), {"some": one}) for at, one in enumerate(chosen)]
    )
    nothing = Hint(NUMASet(0b11), preferred=False)
    expected = nothing if result == ["void"] else Hint(NUMASet(int(result[0], 2)), result[1] == "pref")
    assert merged.hint == expected


@pytest.mark.parametrize("policy", ALL_POLICIES)
def test_the_first_node_that_all_prefer_wins(policy: str) -> None:
    offers = [Offer("cpu", {"cpu": CPU}), Offer("devices", {"gpu": GPU, "nic": NIC})]
    merged = merged_hint(manager(policy, 2), offers)
    assert (merged.hint, merged.admit) == (Hint(NUMASet(0b01), preferred=True), True)


def test_a_request_whose_smallest_fitting_set_has_two_of_four_nodes() -> None:
    rule = Fitting(NUMASet(0b1111), (demand_by_numa_node(4, {0: 2, 1: 2, 2: 1, 3: 1}),), preferred_size=2)
    assert {format(hint.numa.mask, "04b"): hint.preferred for hint in rule if hint.numa} == {
        "0011": True,
        "0111": False,
        "1011": False,
        "1101": False,
        "1110": False,
        "1111": False,
    }
    on_first_two = Fitting(NUMASet(0b1111), (demand_by_numa_node(4, {0: 2, 1: 2}),), preferred_size=2)
    assert {format(hint.numa.mask, "04b"): hint.preferred for hint in on_first_two if hint.numa} == {
        "0011": True,
        "0111": False,
        "1011": False,
        "1111": False,
    }


FRAGMENTED = """
    best-effort       ->  admitted
    restricted        ->  refused
    single-numa-node  ->  refused
"""


@pytest.mark.parametrize("line", FRAGMENTED.strip().splitlines())
def test_one_free_cpu_on_each_of_two_nodes_is_not_what_two_cpus_prefer(line: str) -> None:
    policy, _, outcome = line.split()
    offers = [Offer("cpu", {"cpu": uniform(2, 2, free=1, total=4)})]
    verdict = numa_affinity(manager(policy, 2), offers, container="app")
    if outcome == "admitted":
        assert isinstance(verdict, Granted)
        assert verdict.value == Hint(NUMASet(0b11), preferred=False)
    else:
        assert isinstance(verdict, Refused)
        assert kubelet_text(verdict.because[0]) == (
            "TopologyAffinityError",
            "Resources cannot be allocated with Topology locality",
        )


# ---------------------------------------------------------------- messages and evidence

POD_LEVEL = """
    container  ->  Pod Scope pod with pod-level resources failed admission with a container-level topology manager
    pod        ->  Pod Scope pod with pod-level resources failed admission under pod-scope topology manager
"""


@pytest.mark.parametrize("line", POD_LEVEL.strip().splitlines())
def test_pods_with_resources_of_their_own_are_refused_in_other_words(line: str) -> None:
    scope, _, text = (word.strip() for word in line.partition("->"))
    settings = TopologyManager(policy="restricted", scope=scope, numa=NUMASet(0b11))
    verdict = numa_affinity(settings, [Offer("cpu", {"cpu": IMPOSSIBLE})], pod_level=True)
    assert isinstance(verdict, Refused)
    assert kubelet_text(verdict.because[0]) == ("TopologyAffinityError", text)


def evidence(policy: str, offers: list[Offer]) -> HintsMerged:
    verdict = numa_affinity(manager(policy, 2), offers)
    (reason,) = verdict.because
    if isinstance(reason, NoCommonNUMA):
        return reason.merged
    assert isinstance(reason, HintsMerged)
    return reason


def test_a_preferred_hint_has_no_obstacles() -> None:
    seen = evidence("restricted", [Offer("cpu", {"cpu": CPU}), Offer("memory", None)])
    assert obstacles(seen) == ()
    assert [(hint.provider, hint.resource, hint.says) for hint in resource_hints(seen)] == [
        ("cpu", "cpu", "hints"),
        ("memory", "", "no opinion"),
    ]
    assert kubelet_text(seen) == ("", "merged hint: {0} preferred")


def test_a_resource_without_a_preferred_hint_is_named() -> None:
    offers = [Offer("cpu", {"cpu": uniform(2, 2, free=1, total=4)}), Offer("devices", {"gpu": GPU})]
    (obstacle,) = obstacles(evidence("restricted", offers))
    assert isinstance(obstacle, NothingPreferred)
    assert (obstacle.hints.resource, obstacle.hints.narrowest) == ("cpu", NUMASet(0b11))


def test_what_is_impossible_is_named() -> None:
    (obstacle,) = obstacles(evidence("single-numa-node", [Offer("devices", {"gpu": IMPOSSIBLE, "nic": NIC})]))
    assert isinstance(obstacle, NothingPreferred)
    assert (obstacle.hints.resource, obstacle.hints.says) == ("gpu", "impossible")


def test_preferences_that_differ_are_shown_side_by_side() -> None:
    offers = [Offer("cpu", {"cpu": hints("01 pref")}), Offer("devices", {"gpu": hints("10 pref")})]
    (obstacle,) = obstacles(evidence("restricted", offers))
    assert isinstance(obstacle, PreferencesDiffer)
    assert [hint.preferred for hint in obstacle.hints] == [(NUMASet(0b01),), (NUMASet(0b10),)]


def test_under_single_numa_node_only_single_nodes_count_as_preferred() -> None:
    (obstacle,) = obstacles(evidence("single-numa-node", [Offer("cpu", {"cpu": hints("11 pref")})]))
    assert isinstance(obstacle, NothingPreferred)
    assert obstacle.hints.preferred == ()


def test_the_combinations_that_the_kubelet_would_try_are_counted() -> None:
    rule = uniform(2, 2, free=4, total=4)
    offers = [Offer("cpu", {"cpu": CPU}), Offer("devices", {"gpu": GPU, "nic": rule}), Offer("memory", None)]
    assert combination_count(evidence("best-effort", offers)) == 3 * 2 * 3
    assert combination_count(evidence("single-numa-node", offers)) == 2 * 2 * 2
    wide = HintsMerged(
        policy="best-effort",
        numa=NUMASet((1 << 20) - 1),
        offers=(Offer("cpu", {"cpu": uniform(20, 2, free=4, total=4)}),),
        hint=Hint(None, preferred=False),
    )
    assert combination_count(wide) == 2**20 - 1


# ---------------------------------------------------------------- starting

NODES = tuple(NUMANode(node_id=node, distances=(10,) * 9) for node in range(9))
STARTS = """
    none             container  unknown=1                          ->  starts
    restricted       container  unknown=1                          ->  unknown Topology Manager Policy option: "unknown"
    restricted       container  prefer-closest-numa-nodes=yes      ->  bad value for option "prefer-closest-numa-nodes": strconv.ParseBool: parsing "yes": invalid syntax
    restricted       container  max-allowable-numa-nodes=many      ->  unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: parsing "many": invalid syntax
    restricted       container  max-allowable-numa-nodes=99999999999999999999  ->  unable to convert policy option to integer "max-allowable-numa-nodes": strconv.Atoi: parsing "99999999999999999999": value out of range
    restricted       container  max-allowable-numa-nodes=7         ->  the minimum value of "max-allowable-numa-nodes" should not be less than 8
    restricted       container  max-allowable-numa-nodes=8         ->  unsupported on machines with more than 8 NUMA Nodes
    restricted       container  prefer-closest-numa-nodes=true     ->  unsupported on machines with more than 8 NUMA Nodes
    strict           container  max-allowable-numa-nodes=9         ->  unknown policy: "strict"
    restricted       node       max-allowable-numa-nodes=9         ->  unknown scope: "node"
    restricted       pod        max-allowable-numa-nodes=+16       ->  starts
"""


@pytest.mark.parametrize("line", STARTS.strip().splitlines())
def test_a_manager_starts_or_says_what_is_wrong(line: str) -> None:
    left, _, outcome = line.partition("->")
    policy, scope, option = left.split()
    verdict = topology_manager(policy, scope, dict([option.split("=")]), NODES)
    text = "starts" if isinstance(verdict, Granted) else kubelet_text(verdict.because[0]).message
    assert text == outcome.strip()


def test_a_limit_of_any_length_is_compared() -> None:
    verdict = topology_manager("restricted", "pod", {"max-allowable-numa-nodes": "9" * 5000}, NODES)
    assert isinstance(verdict, Refused)
    assert kubelet_text(verdict.because[0]).message.endswith("value out of range")


def test_distances_that_count_must_be_known() -> None:
    verdict = topology_manager("restricted", "pod", {"prefer-closest-numa-nodes": "T"}, [NUMANode(node_id=0)])
    assert isinstance(verdict, Refused)
    assert kubelet_text(verdict.because[0]).message == (
        "cannot discover NUMA topology: error getting NUMA distances from cadvisor"
    )


# ---------------------------------------------------------------- many NUMA nodes


def test_two_nodes_with_cpus_among_34_decide_alone() -> None:
    cpu = Fitting.of(nodes=NUMASet(0b11), needed=2, free={0: 0, 1: 8}, total={0: 8, 1: 8})
    memory = uniform(34, 2, free=4, total=4)
    merged = merged_hint(
        manager("restricted", 34),
        [Offer("cpu", {"cpu": HintList(fitting=cpu)}), Offer("memory", {"memory": memory})],
    )
    assert (merged.hint, merged.proved) == (Hint(NUMASet(0b10), preferred=True), True)


def test_a_search_that_runs_out_of_its_budget_says_so() -> None:
    rule = uniform(34, 8, free=1, total=2).fitting
    assert rule is not None
    budget = StepBudget(1)
    assert best_common_by_search([rule], rule.nodes.mask, [8], None, budget) == 0
    assert budget.is_exhausted


def test_what_was_not_proved_is_not_sold_as_proved() -> None:
    rule = Fitting(NUMASet(0b11), (demand_by_numa_node(1, {0: 1, 1: 1}),), preferred_size=1, proved=False)
    assert not merged_hint(manager("restricted", 2), [Offer("cpu", {"cpu": HintList(fitting=rule)})]).proved
    taken = Fitting(NUMASet(0b11), (demand_by_numa_node(2, {0: 1, 1: 1}),), preferred_size=1, proved=False)
    assert not merged_hint(manager("restricted", 2), [Offer("cpu", {"cpu": HintList(fitting=taken)})]).proved


def test_a_rule_that_not_even_all_nodes_meet_is_impossible() -> None:
    hopeless = HintList(fitting=Fitting(NUMASet(0b11), (Demand(3, ((1, 1), (2, 1))),), preferred_size=2))
    assert not hopeless
    merged = merged_hint(manager("best-effort", 2), [Offer("cpu", {"cpu": hopeless})])
    assert merged.hint == Hint(NUMASet(0b11), preferred=False)


TWENTY = (1 << 20) - 1


def memory_like(needed: int, *, free: int) -> HintList:
    """Single nodes one by one, larger sets as a rule: how the memory manager's hints look."""
    rule = uniform(20, needed, free=free, total=free).fitting
    assert rule is not None
    several = Fitting(rule.nodes, rule.demands, rule.preferred_size, at_least=2)
    alone = tuple(Hint(NUMASet.of(node), preferred=False) for node in range(20) if free >= needed)
    return HintList(alone, several)


def test_hints_listed_and_hints_of_rules_meet_on_20_nodes() -> None:
    cpu = uniform(20, 6, free=2, total=8)
    merged = merged_hint(
        manager("best-effort", 20),
        [Offer("cpu", {"cpu": cpu}), Offer("memory", {"m": memory_like(3, free=4)})],
    )
    assert (merged.hint, merged.proved) == (Hint(NUMASet(0b111), preferred=False), True)


def test_a_rule_that_no_narrower_set_can_meet_takes_what_there_is() -> None:
    everything = HintList(
        fitting=Fitting(
            NUMASet(TWENTY), (Demand(20, demand_by_numa_node(20, dict.fromkeys(range(20), 1)).shares),), 1
        )
    )
    merged = merged_hint(manager("best-effort", 20), [Offer("cpu", {"cpu": everything})])
    assert merged.hint == Hint(NUMASet(TWENTY), preferred=False)


def test_two_rules_share_nodes_out_when_neither_can_give_them_all_up() -> None:
    halves = [uniform(20, 11, free=1, total=2), uniform(20, 12, free=1, total=2)]
    merged = merged_hint(
        manager("best-effort", 20), [Offer(str(at), {"some": one}) for at, one in enumerate(halves)]
    )
    assert (merged.hint, merged.proved) == (Hint(NUMASet((1 << 12) - 1), preferred=False), True)


def test_lists_too_long_for_the_budget_are_not_proved() -> None:
    many = HintList(tuple(Hint(NUMASet(mask | mask << 9), preferred=False) for mask in range(1, 2000)))
    offers = [Offer(str(at), {"some": many}) for at in range(2)]
    merged = merged_hint(manager("best-effort", 20), offers)
    assert (merged.hint, merged.proved) == (Hint(NUMASet(TWENTY), preferred=False), False)


def test_policy_none_admits_without_a_hint() -> None:
    merged = merged_hint(TopologyManager(), [Offer("cpu", {"cpu": IMPOSSIBLE})])
    assert (merged.hint, merged.admit) == (Hint(None, preferred=False), True)


def test_where_nobody_cares_a_rule_is_still_heard() -> None:
    anywhere = HintList((Hint(None, preferred=True),), uniform(2, 2, free=4, total=4).fitting)
    merged = merged_hint(manager("restricted", 2), [Offer("cpu", {"cpu": anywhere})])
    assert merged.hint == Hint(NUMASet(0b01), preferred=True)


def test_hints_without_a_common_node_come_to_all_nodes() -> None:
    offers = [Offer("cpu", {"cpu": hints("01 not")}), Offer("gpu", {"gpu": hints("10 not")})]
    assert merged_hint(manager("best-effort", 2), offers).hint == Hint(NUMASet(0b11), preferred=False)


def test_the_closest_pair_is_taken_on_20_nodes() -> None:
    far = {
        number: [10 if number == other else 11 if {number, other} == {7, 9} else 20 for other in range(20)]
        for number in range(20)
    }
    closest = TopologyManager(policy="restricted", numa=NUMASet(TWENTY), distances=far)
    offers = [Offer("cpu", {"cpu": uniform(20, 4, free=2, total=2)})]
    assert merged_hint(closest, offers).hint == Hint(NUMASet.of(7, 9), preferred=True)
