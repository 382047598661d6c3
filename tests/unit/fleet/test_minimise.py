from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.fleet.minimise import (
    PodDemand,
    SearchInterruptedError,
    minimum_nodes,
    node_copies,
    node_lower_bound,
    packing_lower_bound,
    peak_demands,
    slices_of_copies,
)
from nodewright.fleet.simulation.placed_claims import SERVED_AMOUNT
from nodewright.fleet.workload import FleetNode, FleetPod
from nodewright.model.kubernetes.claims import ResourcePool, ResourceSlice, ResourceSliceSpec
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from nodewright.model.kubernetes.resource_names import PODS
from nodewright.model.values.quantity import Quantity

SMALL, LARGE = (FleetNode(name=name, profile=NodeProfile()) for name in ("small", "large"))


def a_pod(milli: int) -> Pod:
    resource_requirements = ResourceRequirements(requests={"cpu": Quantity.of_milli(milli)})
    return Pod(
        ObjectMeta(name=str(milli)),
        PodSpec(containers=(Container(name="main", resources=resource_requirements),)),
    )


def held_by(capacity: dict[str, int], work: int) -> "tuple[tuple[int, ...], int]":
    def holds(nodes: Sequence[FleetNode]) -> int:
        return max(work - sum(capacity[node.name.partition("-")[0]] for node in nodes), 0)

    result = minimum_nodes((SMALL, LARGE), holds, bound=1, maximum=1000)
    return result.counts, result.runs


@pytest.mark.parametrize(("work", "counts"), [(1, (1, 0)), (10, (0, 1)), (11, (0, 2)), (995, (0, 100))])
def test_the_fewest_nodes_are_of_the_kind_that_holds_most(work: int, counts: tuple[int, int]) -> None:
    found, runs = held_by({"small": 3, "large": 10}, work)
    assert found == counts
    assert runs <= 40


def test_kinds_are_mixed_where_none_is_sufficient_alone() -> None:
    def holds(nodes: Sequence[FleetNode]) -> int:
        names = [node.name.partition("-")[0] for node in nodes]
        return int(names.count("small") < 3) + int(names.count("large") < 5)

    result = minimum_nodes((SMALL, LARGE), holds, bound=8, maximum=16)
    assert (result.counts, result.nodes, result.is_proved_minimal) == ((3, 5), 8, True)


def test_a_workload_that_no_nodes_hold_is_reported_and_never_proved() -> None:
    result = minimum_nodes((SMALL,), lambda _: 1, bound=1, maximum=8)
    assert (result.counts, result.is_proved_minimal) == ((), False)


def test_an_interrupted_search_returns_its_best_result() -> None:
    tried = []

    def holds(nodes: Sequence[FleetNode]) -> int:
        tried.append(len(nodes))
        if len(tried) == 6:
            raise SearchInterruptedError
        return max(10 - len(nodes), 0)

    result = minimum_nodes((SMALL,), holds, bound=1, maximum=100)
    assert tried == [1, 2, 4, 8, 16, 12]
    assert (result.counts, result.runs, result.is_complete, result.is_proved_minimal) == (
        (16,),
        6,
        False,
        False,
    )


def test_copies_have_unique_names_and_host_names() -> None:
    made = node_copies((SMALL, LARGE), (2, 1))
    assert [(fleet_node.name, fleet_node.labels["kubernetes.io/hostname"]) for fleet_node in made] == [
        ("small-0", "small-0"),
        ("small-1", "small-1"),
        ("large-0", "large-0"),
    ]


def test_peaks_are_what_runs_at_one_time() -> None:
    first, second = a_pod(1000), a_pod(3000)
    pods = [
        FleetPod(name="a", pod=first, arrives_s=0, runs_s=10),
        FleetPod(name="b", pod=first, arrives_s=5, runs_s=10),
        FleetPod(name="c", pod=second, arrives_s=10, runs_s=10),
    ]
    moments = [
        {pod_demand.requests["cpu"]: pod_demand.count for pod_demand in moment}
        for moment in peak_demands(pods)
    ]
    assert {1000: 1, 3000: 1} in moments


asks = st.integers(1, 10)


@pytest.mark.slow
@given(st.lists(st.tuples(asks, st.integers(1, 4)), min_size=1, max_size=3), st.integers(10, 20))
def test_bounds_are_below_a_packing_by_hand_and_the_sharper_one_above_the_other(
    kinds: list[tuple[int, int]], size: int
) -> None:
    demands = [PodDemand(a_pod(milli), {"cpu": milli}, count) for milli, count in kinds]
    bins: list[int] = []
    for milli in sorted((milli for milli, count in kinds for _ in range(count)), reverse=True):
        place = next((at for at, room in enumerate(bins) if room >= milli), None)
        if place is None:
            bins.append(size - milli)
        else:
            bins[place] -= milli
    loose = node_lower_bound(demands, [{"cpu": size}])
    sharp = packing_lower_bound(
        [demand.requests for demand in demands],
        [demand.count for demand in demands],
        [{"cpu": size}],
        [[True] * len(demands)],
    )
    assert loose <= len(bins)
    assert sharp <= len(bins)
    assert sharp >= -(-sum(milli * count for milli, count in kinds) // size)


def test_the_sharper_bound_is_above_sums() -> None:
    # Three of 4 fit on 12; of 5 only two: ten of them need five nodes, though their sum is that of 4.2.
    demand = [{"cpu": 5}]
    assert node_lower_bound([PodDemand(a_pod(5), demand[0], 10)], [{"cpu": 12}]) == 5
    assert packing_lower_bound(demand, [11], [{"cpu": 14}], [[True]]) == 6
    assert node_lower_bound([PodDemand(a_pod(5), demand[0], 11)], [{"cpu": 14}]) == 4
    assert packing_lower_bound([{"cpu": 5}], [1], [{"cpu": 4}], [[True]]) == 0


@pytest.mark.parametrize("amount", [1_000, SERVED_AMOUNT])
def test_what_is_there_for_all_pods_together_does_not_change_the_sharper_bound(amount: int) -> None:
    node, requests = {"cpu": 8000, PODS: 110}, [{"cpu": 3000, PODS: 1}, {"cpu": 5000, PODS: 1}]
    plain = packing_lower_bound(requests, [10, 7], [node], [[True, True]])
    served = [{**each, "gpu": 2} for each in requests]
    assert packing_lower_bound(served, [10, 7], [{**node, "gpu": amount}], [[True, True]]) == plain == 9
    assert packing_lower_bound([{"gpu": 1, PODS: 1}], [250], [{"gpu": amount, PODS: 110}], [[True]]) == 3


def test_each_copy_of_a_node_has_devices_in_a_whole_pool_of_its_own() -> None:
    spec = ResourceSliceSpec(
        driver="d", node_name="small", pool=ResourcePool(name="p", resource_slice_count=2)
    )
    own = (
        ResourceSlice(metadata=ObjectMeta(name="a"), spec=spec),
        ResourceSlice(metadata=ObjectMeta(name="b"), spec=spec),
    )
    shared = ResourceSlice(
        metadata=ObjectMeta(name="all"), spec=ResourceSliceSpec(driver="d", all_nodes=True)
    )
    of_others = replace(own[0], spec=replace(spec, node_name="other"))
    cluster = ClaimCluster(slices=(*own, shared, of_others))
    slices = slices_of_copies(cluster, node_copies([SMALL, LARGE], [2, 1])).slices
    pools = [
        (each.spec.node_name, each.spec.pool.name, each.spec.pool.resource_slice_count) for each in slices
    ]
    assert slices[0] == shared
    assert pools[1:] == [(f"small-{at}", f"p/small-{at}", 2) for at in (0, 0, 1, 1)]
    assert len({each.metadata.name for each in slices}) == len(slices)
