"""Laws of nodes: any machine, any configuration, any sequence of added and removed pods."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.requests.qos_and_priority import QOSClass, qos_class
from nodewright.engine.node.pod_admission import Placement, placement_of, unallocated_resources
from nodewright.engine.node.restart.initial_node import initial_node
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import (
    ContainerAllocation,
    Device,
    MemoryBlock,
    NodeProfile,
    NodeProfileSpec,
)
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.cpu import CPUsNotFree, CPUsStranded
from nodewright.model.reasons.verdict import Refused
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import ZERO
from nodewright.predict.node import AdmitResult, Node
from nodewright.predict.node_from_profile import node_parts
from nodewright.testing.machines import machines, regular_machine
from nodewright.testing.objects import Amounts, container, pod, sidecar

GIB = 1 << 30
OPTIONS = (
    (),
    (),
    ("full-pcpus-only",),
    ("distribute-cpus-across-numa", "full-pcpus-only"),
    ("distribute-cpus-across-cores", "strict-cpu-reservation"),
    ("prefer-align-cpus-by-uncorecache", "full-pcpus-only"),
    ("align-by-socket",),
)
GPU, KEY = "a.b/gpu", "a.b/key"
GATES = {"CPUManagerPolicyAlphaOptions": True}


@dataclass(frozen=True, slots=True)
class Script:
    """A node, and what happens to it: pods that come, and numbers of earlier ones that go."""

    profile: NodeProfile
    events: tuple[Pod | int, ...]


@st.composite
def profiles(draw: st.DrawFn) -> NodeProfile:
    machine = draw(machines(max_numa=4) | st.builds(regular_machine, st.integers(1, 4), st.integers(4, 12)))
    first = machine.topology[0].node_id
    kubelet: dict[str, Any] = {
        "evictionHard": {},
        "featureGates": {**GATES, "PodLevelResourceManagers": draw(st.booleans())},
        "cpuManagerPolicy": "static",
        "cpuManagerPolicyOptions": dict.fromkeys(draw(st.sampled_from(OPTIONS)), "true"),
        "systemReserved": {"cpu": str(draw(st.integers(1, 2))), "memory": "64Mi"},
        "topologyManagerPolicy": draw(
            st.sampled_from(("none", "best-effort", "restricted", "restricted", "single-numa-node"))
        ),
        "topologyManagerScope": draw(st.sampled_from(("container", "pod"))),
    }
    if draw(st.booleans()):
        reserved = [{"numaNode": first, "limits": {"memory": "64Mi"}}]
        kubelet |= {"memoryManagerPolicy": "Static", "reservedMemory": reserved}
    spec = NodeProfileSpec(
        machine_info=machine,
        root_fs_capacity=GIB,
        kubelet_configuration=kubelet,
        devices=draw(_devices([node.node_id for node in machine.topology])),
        kubelet_defects=draw(st.sampled_from(("follow", "avoid"))),
    )
    profile = NodeProfile(spec=spec)
    assume(not isinstance(initial_node(node_parts(profile)[0]), Refused))
    return profile


@st.composite
def _devices(draw: st.DrawFn, numa: list[int]) -> dict[str, tuple[Device, ...]]:
    places = st.none() | st.lists(st.sampled_from(numa), min_size=1, max_size=2, unique=True).map(tuple)
    return {
        resource: tuple(
            Device(f"{resource[-3:]}-{at}", draw(places), healthy=draw(st.integers(0, 5)) > 0)
            for at in range(draw(st.integers(0, 5)))
        )
        for resource in (GPU, KEY)
    }


@st.composite
def _drawn_requests(draw: st.DrawFn, kinds: tuple[str, ...], largest: int) -> dict[str, str]:
    whole = draw(st.integers(1, largest))
    document = {
        "cpu": draw(st.sampled_from((str(whole), str(whole), str(whole), f"{whole * 500}m"))),
        "memory": f"{draw(st.sampled_from((1, 64, 700, 3000, 9000)))}Mi",
    }
    extra = draw(st.sampled_from((*kinds, GPU, KEY, GPU, KEY, "", "", "", "")))
    if extra:
        document[extra] = {"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}.get(
            extra, str(draw(st.integers(1, 2)))
        )
    return document


@st.composite
def pods(draw: st.DrawFn, name: str, machine: MachineInfo) -> Pod:
    """A pod, mostly Guaranteed, some with init containers, sidecars, or resources of the pod itself."""
    kinds = tuple(f"hugepages-{'1Gi' if pages.page_size > 4096 else '2Mi'}" for pages in machine.hugepages)
    amounts = _drawn_requests(kinds, max(machine.num_cores // 4, 2))

    def one(make: Callable[[str, Amounts, Amounts], Container], called: str) -> Container:
        document = draw(amounts)
        return make(called, document, document)

    apps = [one(container, f"app-{at}") for at in range(draw(st.sampled_from((1, 1, 1, 2))))]
    init = [one(container, "init")] if draw(st.integers(0, 2)) == 0 else []
    if draw(st.integers(0, 3)) == 0:
        init.append(one(sidecar, "side"))
    if draw(st.integers(0, 5)) == 0:
        apps.append(container("burst", "500m/1Mi"))
    whole = {"cpu": str(draw(st.integers(1, 6))), "memory": "10Gi"} if draw(st.integers(0, 4)) == 0 else {}
    return pod(*apps, name=name, uid=f"uid-{name}", init=tuple(init), whole=whole)


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    profile = draw(profiles())
    events: list[Pod | int] = []
    for at in range(draw(st.integers(1, 7))):
        events.append(draw(pods(f"p{at}", profile.spec.machine_info)))
        if draw(st.integers(0, 2)) == 0:
            events.append(draw(st.integers(0, at)))
    return Script(profile, tuple(events))


def played(script: Script) -> Iterator[tuple[Node, AdmitResult | None]]:
    """The node after each event, and its answer where a pod came."""
    node = Node.from_profile(script.profile)
    for event in script.events:
        if isinstance(event, int):
            node = node.without_pod(f"uid-p{event}")
            yield settled(node), None
        else:
            answer = node.admit(event)
            node = answer.node
            yield settled(node), answer


def settled(node: Node) -> Node:
    """The node once the managers have taken back what nobody holds who is there."""
    return Node(node.state.without_stale())


def placements(node: Node) -> list[tuple[Pod, Placement]]:
    return [(pod, placement_of(node.state, pod)) for pod in node.pods]


def is_flagged(answer: AdmitResult | None) -> bool:
    """Whether the kubelet allocates CPUs that are not free, or loses some, and we say so."""
    return answer is not None and any(isinstance(each, CPUsNotFree | CPUsStranded) for each in answer.because)


# ---------------------------------------------------------------- owners


@given(scripts())
def test_nothing_has_two_owners_and_reserved_cpus_have_none(script: Script) -> None:
    every_cpu = unallocated_resources(Node.from_profile(script.profile).state).shared_cpus
    flagged = False
    for node, answer in played(script):
        flagged |= is_flagged(answer)
        assert not (flagged and script.profile.spec.kubelet_defects == "avoid")
        if not flagged:
            check_cpus(node, every_cpu or CPUSet())
        check_devices(node, script.profile)
        check_memory(node)


def check_cpus(node: Node, every: CPUSet) -> None:
    left = unallocated_resources(node.state)
    shared = left.shared_cpus or CPUSet()
    owned = [shared]
    for one, held in placements(node):
        lasting = [each.cpus or CPUSet() for each in held.containers if not is_passing(one, each.name)]
        if held.cpus is None:
            assert all(a.isdisjoint(b) for a, b in combinations(lasting, 2)), one
        of_pod = held.cpus or CPUSet()
        for each in held.containers:
            of_pod |= each.cpus or CPUSet()
        assert left.reserved_cpus.isdisjoint(of_pod)
        owned.append(of_pod)
    assert sum(map(len, owned)) == len(every)
    assert CPUSet(sum(cpus.mask for cpus in owned)) == every


def check_devices(node: Node, profile: NodeProfile) -> None:
    owners: dict[tuple[str, str], list[str]] = {}
    for one, held in placements(node):
        of_pod = {
            (resource, device)
            for each in held.containers
            for resource, ids in each.devices.items()
            for device in ids
        }
        for device in of_pod:
            owners.setdefault(device, []).append(one.uid)
        lasting = [each.devices for each in held.containers if not is_passing(one, each.name)]
        assert all(
            not set(a.get(resource, ())) & set(b.get(resource, ()))
            for a, b in combinations(lasting, 2)
            for resource in (GPU, KEY)
        )
    assert all(len(uids) == 1 for uids in owners.values())
    free = {
        (resource, id_) for resource, ids in unallocated_resources(node.state).devices.items() for id_ in ids
    }
    healthy = {
        (resource, device.id)
        for resource, ones in profile.spec.devices.items()
        for device in ones
        if device.healthy
    }
    assert free == healthy - owners.keys()


def check_memory(node: Node) -> None:
    machine = node.state.held.memory.machine
    reserved: dict[str, int] = {}
    for numa in machine.values():
        for kind, table in numa.tables.items():
            assert table.free + table.reserved == table.allocatable
            assert min(table.free, table.reserved) >= 0
            reserved[kind] = reserved.get(kind, 0) + table.reserved
    held = dict.fromkeys(reserved, 0)
    for _, placement in placements(node):
        blocks = placement.memory or [block for each in placement.containers for block in each.memory]
        for block in blocks:
            held[block.resource] += block.size
    assert held == reserved


def is_passing(pod: Pod, name: str) -> bool:
    """Whether the container ends before others start, which may have what was its own."""
    return any(each.name == name and not each.is_sidecar for each in pod.spec.init_containers)


# ---------------------------------------------------------------- coming and going


@given(scripts())
def test_adding_and_removing_a_pod_restores_the_state(script: Script) -> None:
    before = settled(Node.from_profile(script.profile))
    flagged = mixed = False
    for node, answer in played(script):
        flagged |= is_flagged(answer)
        mixed |= is_mixed(node)
        # Who had to make way for it does not come back.
        if answer is not None and not answer.preempted and not flagged:
            gone = settled(node.without_pod(answer.pod.uid))
            assert holdings(gone, mixed=mixed) == holdings(before, mixed=mixed)
        before = node


def holdings(node: Node, *, mixed: bool) -> dict[str, object]:
    """All that is held, but for what the kubelet leaves behind.

    It remembers what the init containers of the last pod left to their successors. Memory it gives back to the first
    nodes of a group, wherever it came from: within a group only sums are what they were; and where a node was used
    alone and in a group, too (`mixed`), only the sum of the machine.
    """
    held = node.state.held
    free: dict[tuple[str, str], int] = {}
    for numa in held.memory.machine.values():
        for kind, table in numa.tables.items():
            place = ("" if mixed else str(numa.cells), kind)
            free[place] = free.get(place, 0) + table.free
    return {
        "cpus": (held.cpu.default, held.cpu.assignments, held.cpu.pods),
        "free": free,
        "assignments": {numa: one.assignments for numa, one in held.memory.machine.items()},
        "memory": (held.memory.assignments, held.memory.pods),
        "devices": held.devices.pod_devices,
        "in use": {resource: ids for resource, ids in held.devices.in_use.items() if ids},
        "hints": held.hints,
        "pods": [pod.uid for pod in node.pods],
    }


def is_mixed(node: Node) -> bool:
    """Whether a NUMA node is used together with one that is used without it, which the kubelet does not prevent."""
    machine = node.state.held.memory.machine
    return any(machine[other].cells != numa.cells for numa in machine.values() for other in numa.cells)


@given(scripts())
def test_the_same_events_give_the_same_node_and_reasons(script: Script) -> None:
    for (node, answer), (again, other) in zip(played(script), played(script), strict=True):
        assert node.state == again.state
        if answer is not None and other is not None:
            assert (answer.decision, answer.because, answer.actions) == (
                other.decision,
                other.because,
                other.actions,
            )


@given(scripts())
def test_a_node_with_recorded_allocations_equals_the_node_that_made_them(script: Script) -> None:
    history = list(played(script))
    assume(not any(is_flagged(answer) for _, answer in history))
    node = history[-1][0]
    mixed = any(is_mixed(one) for one, _ in history)
    allocations = [
        allocation
        for each in node.pods
        for allocation in reported_allocations(each, placement_of(node.state, each))
    ]
    spec = replace(script.profile.spec, pods=node.pods, allocations=tuple(allocations))
    again = Node.from_profile(replace(script.profile, spec=spec))
    assert bool(again.warnings) == (
        not again.state.held.cpu.default and bool(again.state.held.cpu.assignments)
    )
    # The hints that they follow are in none of the kubelet's files.
    hintless = Node(replace(node.state, held=replace(node.state.held, hints={})))
    assert holdings(again, mixed=mixed) == holdings(hintless, mixed=mixed)


def reported_allocations(pod: Pod, placement: Placement) -> Iterator[ContainerAllocation]:
    def blocks(held: Any) -> tuple[MemoryBlock, ...]:
        return tuple(MemoryBlock(each.numa, each.resource, each.size) for each in held or ())

    if placement.cpus or placement.memory:
        yield ContainerAllocation(pod.uid, "", str(placement.cpus or ""), blocks(placement.memory))
    for entry in placement.containers:
        if entry.holds_anything:
            cpus = None if entry.cpus is None else str(entry.cpus)
            yield ContainerAllocation(pod.uid, entry.name, cpus, blocks(entry.memory), dict(entry.devices))


# ---------------------------------------------------------------- what was asked


@given(scripts())
def test_an_admitted_pod_gets_its_requests_within_its_hint(script: Script) -> None:
    for _, answer in played(script):
        if answer is None or not answer.admitted or is_flagged(answer):
            continue
        assert answer.placement is not None
        if answer.pod.spec.resources is not None:
            continue
        check_counts(answer.pod, answer.placement)
        check_places(answer, answer.placement, script.profile)


def check_counts(pod: Pod, placement: Placement) -> None:
    is_guaranteed = qos_class(pod) is QOSClass.GUARANTEED
    everyone: tuple[Container, ...] = (*pod.spec.init_containers, *pod.spec.containers)
    for one, held in zip(everyone, placement.containers, strict=True):
        millis = one.resources.requests["cpu"].milli_value()
        wanted = millis // 1000 if is_guaranteed and millis % 1000 == 0 else None
        assert (None if held.cpus is None else len(held.cpus)) == wanted
        for resource in (GPU, KEY):
            count = one.resources.limits.get(resource, ZERO).value()
            assert len(held.devices.get(resource, ())) == count
        for block in held.memory:
            size = one.resources.requests[block.resource].value()
            assert block.size == size or (is_passing(pod, one.name) and block.size < size)


def check_places(answer: AdmitResult, placement: Placement, profile: NodeProfile) -> None:
    """A preferred hint of a policy that insists on one is kept to, but for align-by-socket, which widens it.

    Not so devices that init containers leave behind, nor memory under the scope pod, which follows all containers.
    """
    kubelet = profile.spec.kubelet_configuration
    if kubelet["topologyManagerPolicy"] in ("none", "best-effort"):
        return
    machine = profile.spec.machine_info
    homes = {cpu: node.node_id for node in machine.topology for core in node.cores for cpu in core.thread_ids}
    devices = profile.spec.devices.items()
    places = {(kind, device.id): device.numa_nodes for kind, group in devices for device in group}
    for entry in placement.containers:
        assert entry.hint is not None
        assert entry.hint.preferred
        if entry.hint.numa is None:
            continue
        if "align-by-socket" not in kubelet["cpuManagerPolicyOptions"]:
            assert NUMASet.from_ids(homes[cpu] for cpu in entry.cpus or ()) <= entry.hint.numa
        if kubelet["topologyManagerScope"] == "container":
            assert all(NUMASet.from_ids(block.numa) <= entry.hint.numa for block in entry.memory)
        if not answer.pod.spec.init_containers:
            for kind, ids in entry.devices.items():
                for numa in (places[kind, device] for device in ids):
                    assert not numa or any(each in entry.hint.numa for each in numa)
