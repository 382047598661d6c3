"""A fleet that takes short cuts comes to the same as one that asks every node about every pod."""

from collections.abc import Callable
from functools import cache, reduce
from operator import or_
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.core.cpu.cpu_state import NO_CPUS
from nodewright.engine.core.predicates.predicate_check import NodeUsage, shortages
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.engine.node.pod_admission import unallocated_resources
from nodewright.fleet import SCORES, Options, run
from nodewright.fleet.capacity import capacity_by_shape, total_capacity
from nodewright.fleet.fleet_summary import fleet_summary
from nodewright.fleet.simulation.cluster_view import AssignedPod, NodeSlot
from nodewright.fleet.simulation.filters import fits_resources, resource_filter_status
from nodewright.fleet.simulation.fleet_simulation import Retry
from nodewright.fleet.simulation.outcomes import FleetEvent, FleetResult, NodeRecord, PodOutcome
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.fleet.simulation.scores import (
    balanced_allocation,
    default_score,
    default_score_bound,
    least_allocated,
)
from nodewright.fleet.workload import DisruptionBudget, FleetNode, FleetPod, IntOrPercent, UsageStep
from nodewright.model.hardware import GIB, MachineShape, machine_from_shape
from nodewright.model.kubernetes.node_profile import Device, NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec, Taint

CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "single-numa-node",
        "reservedSystemCPUs": "0",
    },
    {
        "cpuManagerPolicy": "static",
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "restricted",
        "reservedSystemCPUs": "0",
        "systemReserved": {"memory": "412Mi"},
        "evictionHard": {"memory.available": "100Mi"},
        "reservedMemory": [{"numaNode": 0, "limits": {"memory": "512Mi"}}],
    },
)
GPU = "example.com/gpu"
GPUS = tuple(Device(id=f"gpu-{at}", numa_nodes=(at % 2,)) for at in range(4))
TAINTS = (
    (),
    (Taint(key="gpu", effect="NoSchedule"),),
    (Taint(key="old", effect="PreferNoSchedule"),),
)
ZONE = "topology.kubernetes.io/zone"
LABELS: tuple[dict[str, str], ...] = ({"zone": "z0", ZONE: "z0"}, {"zone": "z1", ZONE: "z1"}, {"zone": "z1"})
TERM = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "zone"}
ONE = {"cpu": "1", "memory": "1Gi"}
ONE_EXACTLY = {"requests": ONE, "limits": ONE}
WISHES: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"nodeSelector": {"zone": "z1"}},
    {"priority": 10},
    {"tolerations": [{"operator": "Exists"}]},
    {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
    {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}},
    {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "podAffinityTerm": TERM}]
            },
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 3,
                        "preference": {
                            "matchExpressions": [{"key": "zone", "operator": "In", "values": ["z0"]}]
                        },
                    }
                ]
            },
        }
    },
    {"topologySpreadConstraints": [{**TERM, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
    {"topologySpreadConstraints": [{**TERM, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}]},
    {"initContainers": [{"name": "init", "image": "a", "resources": ONE_EXACTLY}]},
)
HOSTNAME = "kubernetes.io/hostname"
SOFT = {**TERM, "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway"}
SPREADING: tuple[dict[str, Any], ...] = (
    {},
    {"topologySpreadConstraints": [{**SOFT, "topologyKey": HOSTNAME}]},
    {"topologySpreadConstraints": [SOFT, {**SOFT, "topologyKey": HOSTNAME}]},
    {"topologySpreadConstraints": [{**SOFT, "topologyKey": ZONE, "nodeTaintsPolicy": "Honor"}]},
    {"topologySpreadConstraints": [SOFT], "nodeSelector": {"zone": "z1"}},
    {"topologySpreadConstraints": [{**SOFT, "labelSelector": {}}], "priority": 10},
)


ALL_WISHES = {"any": WISHES, "spreading": SPREADING}
SELECTOR = {"matchLabels": {"app": "a"}}
BUDGETS = (
    (),
    (DisruptionBudget(name="b", namespace="default", selector=SELECTOR, max_unavailable=IntOrPercent(1)),),
)
IMAGES: tuple[dict[str, int], ...] = ({}, {}, {"a:latest": GIB}, {"a:latest": GIB, "b:latest": 600 << 20})
GROWING = UsageStep(0, GIB), UsageStep(2, 7 * GIB)
USAGES = ((), (), (UsageStep(0, GIB),), GROWING)


@cache
def profile(index: int) -> NodeProfile:
    machine = machine_from_shape(
        MachineShape(sockets=2, cores=2, threads=2, memory_bytes=4 * GIB, l3_bytes=2**20)
    )
    spec = NodeProfileSpec(
        kubernetes_version="1.36",
        machine_info=machine,
        kubelet_configuration={"maxPods": 5} | CONFIGS[index],
        devices={GPU: GPUS} if index else {},
    )
    return NodeProfile(metadata=ObjectMeta(name="node"), spec=spec)


@cache
def pod(cpu: str, memory: str, app: str, wishes: str, wish: int, special: str = "") -> Pod:
    amounts = {"cpu": cpu, "memory": memory} if cpu else {}
    if special == "gpu":
        amounts[GPU] = "1"
    ports = [{"containerPort": 80, "hostPort": 80}] if special == "port" else []
    resources = {"requests": amounts, "limits": amounts}
    document = {
        "metadata": {"name": "pod", "namespace": "default", "labels": {"app": app}},
        "spec": {
            "containers": [{"name": "main", "image": app, "ports": ports, "resources": resources}],
            **ALL_WISHES[wishes][wish],
        },
    }
    return with_defaults(decode(document, Pod))


@st.composite
def fleets(draw: st.DrawFn, wishes: str = "any") -> tuple[list[FleetNode], list[FleetPod]]:
    nodes = [
        FleetNode(
            name=f"n{number}",
            profile=profile(draw(st.integers(0, len(CONFIGS) - 1))),
            labels=draw(st.sampled_from(LABELS)) | {"kubernetes.io/hostname": f"n{number}"},
            taints=draw(st.sampled_from(TAINTS if wishes == "any" else TAINTS[:2])),
            unschedulable=draw(st.integers(0, 9)) == 0,
            images=draw(st.sampled_from(IMAGES)),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    times = sorted(draw(st.lists(st.integers(0, 6), min_size=1, max_size=24)))
    pods = [
        FleetPod(
            name=f"p{number}",
            pod=pod(
                draw(st.sampled_from(("", "500m", "1", "2", "3"))),
                draw(st.sampled_from(("1Gi", "3Gi"))),
                draw(st.sampled_from("ab")),
                wishes,
                draw(st.integers(0, len(ALL_WISHES[wishes]) - 1)),
                draw(st.sampled_from(("", "", "", "gpu", "port"))),
            ),
            arrives_s=at_s,
            runs_s=draw(st.sampled_from((None, 1, 3))),
            has_controller=draw(st.booleans()),
            node=draw(st.sampled_from(("", "", "", "", "n0"))),
            required_node=draw(st.sampled_from(("", "", "", "n1"))),
            usage=draw(st.sampled_from(USAGES)),
            selector=draw(st.sampled_from((None, None, SELECTOR))),
        )
        for number, at_s in enumerate(times)
    ]
    return nodes, pods


def events_and_result(
    play: Callable[..., FleetResult], fleet: tuple[list[FleetNode], list[FleetPod]], options: Options
) -> tuple[list[FleetEvent], FleetResult]:
    happened: list[FleetEvent] = []
    result = play(*fleet, options, sink=happened.append)
    return happened, result


options_of_runs = st.builds(
    Options,
    scores=st.sampled_from(sorted(SCORES)),
    retry=st.sampled_from(tuple(Retry)),
    preemption=st.booleans(),
    budgets=st.sampled_from(BUDGETS),
)


@given(fleets(), options_of_runs)
def test_caches_do_not_change_results(
    fleet: tuple[list[FleetNode], list[FleetPod]], options: Options
) -> None:
    happened, result = events_and_result(run, fleet, options)
    expected, obvious = events_and_result(run, fleet, replace(options, exhaustive=True))
    assert happened == expected
    for fleet_pod_record in (*result.pods, *obvious.pods):
        fleet_pod_record.uid = ""
    assert result.pods == obvious.pods
    assert [free(node) for node in result.nodes] == [free(node) for node in obvious.nodes]
    assert result.samples == obvious.samples


def evicted_and_replaced() -> tuple[list[FleetNode], list[FleetPod]]:
    """A pod with an init container that is evicted and replaced under pressure, where uids are given again."""
    with_init = WISHES.index({"initContainers": [{"name": "init", "image": "a", "resources": ONE_EXACTLY}]})
    nodes = [FleetNode(name="n0", profile=profile(2))]
    staying = FleetPod(
        name="p0", pod=pod("1", "1Gi", "a", "any", with_init), arrives_s=0, usage=(UsageStep(0, GIB),)
    )
    growing = FleetPod(
        name="p1",
        pod=pod("500m", "3Gi", "a", "any", with_init),
        arrives_s=1,
        has_controller=True,
        usage=GROWING,
    )
    return nodes, [staying, growing]


@given(fleets(), st.sampled_from(("n0", "n1")))
@example(evicted_and_replaced(), "n0")
def test_pods_that_run_already_hold_what_they_hold_without_caches(
    fleet: tuple[list[FleetNode], list[FleetPod]], node: str
) -> None:
    nodes, pods = fleet
    running = nodes, [replace(pod, node=node) for pod in pods]
    happened, result = events_and_result(run, running, Options())
    expected, obvious = events_and_result(run, running, Options(exhaustive=True))
    assert happened == expected
    assert [free(node) for node in result.nodes] == [free(node) for node in obvious.nodes]


@given(fleets("spreading"), options_of_runs)
def test_spread_rankings_do_not_change_results(
    fleet: tuple[list[FleetNode], list[FleetPod]], options: Options
) -> None:
    assert (
        events_and_result(run, fleet, options)[0]
        == events_and_result(run, fleet, replace(options, exhaustive=True))[0]
    )


@given(fleets(), st.sampled_from(tuple(Retry)))
def test_counting_finished_pods_changes_no_statistics(
    fleet: tuple[list[FleetNode], list[FleetPod]], retry: Retry
) -> None:
    happened, result = events_and_result(run, fleet, Options(retry=retry))
    expected, forgetful = events_and_result(run, fleet, Options(retry=retry, keep_finished_pods=False))
    assert happened == expected
    assert fleet_summary(result) == fleet_summary(forgetful)
    there = {PodOutcome.RUNNING, PodOutcome.WAITING, PodOutcome.LOOPING}
    assert list(forgetful.pods) == [pod for pod in result.pods if pod.outcome in there]


def free(record: NodeRecord) -> object:
    """What nobody holds, whatever those are called that hold the rest."""
    return unallocated_resources(record.state), record.state.usage.requests, sorted(record.pods.values())


@given(fleets())
def test_a_node_never_holds_more_than_it_has(fleet: tuple[list[FleetNode], list[FleetPod]]) -> None:
    result = run(*fleet)
    for record in result.nodes:
        state = record.state
        assert len(record.pods) == len(state.pods)
        taken = state.held.cpu.default
        for uid, held in state.held.cpu.assignments.items():
            own = reduce(or_, held.values())
            assert taken.isdisjoint(own)
            taken |= own
            # An init container has ended when those after it start, and leaves its CPUs to them.
            init = {container.name for container in state.pods[uid].spec.init_containers}
            others = [cpus for name, cpus in held.items() if name not in init]
            assert sum(map(len, others)) == len(reduce(or_, others, NO_CPUS))


@given(fleets(), st.data())
def test_capacity_is_what_a_run_places_or_says_that_it_is_at_most_that(
    fleet: tuple[list[FleetNode], list[FleetPod]], data: st.DataObject
) -> None:
    nodes, pods = fleet
    options = Options(preemption=False, extender=True)
    held = [replace(each, arrives_s=0, runs_s=None, usage=(), has_controller=False) for each in pods[:8]]
    before = run(nodes, held, options)
    probe = pod(
        data.draw(st.sampled_from(("500m", "1", "2"))),
        "1Gi",
        data.draw(st.sampled_from("ab")),
        "any",
        data.draw(st.integers(0, len(WISHES) - 1)),
        data.draw(st.sampled_from(("", "gpu", "port"))),
    )
    summary = fleet_summary(before, probe)
    assert summary.probe == capacity_by_shape(before.nodes, probe)
    counted = total_capacity(summary.probe).admitted
    copies = [FleetPod(name=f"copy-{at}", pod=probe, arrives_s=1) for at in range(counted + 1)]
    after = run(nodes, [*held, *copies], options)
    placed = sum(
        each.outcome is PodOutcome.RUNNING and each.pod.name.startswith("copy-") for each in after.pods
    )
    assert placed == counted or (placed < counted and summary.not_counted)


amounts = st.dictionaries(st.sampled_from(("cpu", "memory", "example.com/x")), st.integers(0, 4))


@given(amounts, amounts, amounts, st.integers(0, 2))
def test_the_scheduler_fits_pods_where_the_kubelet_does(
    asked: dict[str, int], used: dict[str, int], room: dict[str, int], pods: int
) -> None:
    allocatable = {**room, "pods": 2}
    template, seat = PodTemplate(0, Pod(spec=PodSpec()), "default"), NodeSlot(0, "n", allocatable, {})
    template.requests = tuple(item for item in asked.items() if item[1])
    template.cpu, template.memory = asked.get("cpu", 0), asked.get("memory", 0)
    template.filter_cpu, template.filter_memory = template.cpu or -(2**63), template.memory or -(2**63)
    template.other_requests = tuple(request for request in template.requests if request[0] == "example.com/x")
    seat.requested, seat.free_pods = used, 2 - pods
    seat.free_cpu -= used.get("cpu", 0)
    seat.free_memory -= used.get("memory", 0)
    seat.pods = {str(number): AssignedPod(number, template, 0.0) for number in range(pods)}
    short = shortages(asked, NodeUsage(pods=pods, requests=used), allocatable)
    assert fits_resources(template, seat) == (not short)
    objection = resource_filter_status(template, seat)
    assert (objection.details if objection else ()) == tuple(shortage.resource for shortage in short)


numbers = st.integers(0, 2**40)


@given(st.integers(1, 2**40), st.integers(1, 2**40), st.lists(numbers, min_size=6, max_size=6))
def test_the_default_score_is_the_sum_of_its_two(cpu: int, memory: int, taken: list[int]) -> None:
    template, seat = PodTemplate(0, Pod(), "default"), NodeSlot(0, "n", {"cpu": cpu, "memory": memory}, {})
    template.cpu, template.memory = taken[0] % (cpu + 1), taken[1] % (memory + 1)
    template.nonzero_cpu, template.nonzero_memory = template.cpu or 100, template.memory or 200
    seat.free_cpu, seat.free_memory = cpu - taken[2], memory - taken[3]
    seat.nonzero_cpu, seat.nonzero_memory = taken[4], taken[5]
    expected = least_allocated(template, seat) + balanced_allocation(template, seat)
    seat.imbalance = None
    assert default_score(template, seat) == expected


@given(st.integers(1, 2**40), st.integers(1, 2**40), st.lists(numbers, min_size=6, max_size=6))
def test_no_pod_scores_above_the_bound_of_a_node(cpu: int, memory: int, taken: list[int]) -> None:
    template, slot = PodTemplate(0, Pod(), "default"), NodeSlot(0, "n", {"cpu": cpu, "memory": memory}, {})
    template.cpu, template.memory = taken[0] % (cpu + 1), taken[1] % (memory + 1)
    template.nonzero_cpu, template.nonzero_memory = template.cpu, template.memory
    slot.free_cpu, slot.free_memory = cpu - taken[2], memory - taken[3]
    slot.nonzero_cpu, slot.nonzero_memory = taken[4], taken[5]
    assert default_score(template, slot) <= default_score_bound(slot)
