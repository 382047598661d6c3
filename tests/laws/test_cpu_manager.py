"""What holds of the static policy on any machine, with any options, after any sequence."""

from itertools import combinations

from hypothesis import assume, given
from hypothesis import strategies as st

from nodewright.engine.core.cpu.cpu_allocation import allocate, cpu_hints, remove_container
from nodewright.engine.core.cpu.cpu_policy import CPUSettings, StaticCPUPolicy, create_policy, validated_state
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.testing.objects import a_pod
from nodewright.testing.strategies import odd_topologies, regular_topologies

OPTIONS = (
    (),
    ("full-pcpus-only",),
    ("distribute-cpus-across-numa",),
    ("distribute-cpus-across-numa", "full-pcpus-only"),
    ("distribute-cpus-across-cores", "strict-cpu-reservation"),
    ("prefer-align-cpus-by-uncorecache", "full-pcpus-only"),
    ("align-by-socket",),
)


@st.composite
def policies(
    draw: st.DrawFn, machines: st.SearchStrategy[CPUTopology], *, follow_defects: bool
) -> StaticCPUPolicy:
    """A static policy that the kubelet would start with."""
    verdict = create_policy(
        draw(machines),
        CPUSettings(
            policy="static",
            options=dict.fromkeys(draw(st.sampled_from(OPTIONS)), "true"),
            reservation=Quantity.parse(str(draw(st.integers(1, 3)))),
            gates=CPUGates(alpha_options=True),
            follow_defects=follow_defects,
        ),
    )
    assume(isinstance(verdict, Granted))
    assert isinstance(verdict, Granted)
    assert isinstance(verdict.value, StaticCPUPolicy)
    return verdict.value


@st.composite
def pods(draw: st.DrawFn) -> list[Pod]:
    """Guaranteed pods with an init container, sometimes a sidecar, and an app container."""
    made = []
    for index in range(draw(st.integers(1, 6))):
        init = [_container("init", draw(st.integers(0, 4)))] if draw(st.booleans()) else []
        if draw(st.booleans()):
            init.append(_container("side", draw(st.integers(1, 2))) | {"restartPolicy": "Always"})
        app = _container("app", draw(st.integers(1, 9)))
        made.append(a_pod(f"p{index}", containers=[app], initContainers=init))
    return made


def _container(name: str, cpus: int) -> dict[str, object]:
    amounts = {"cpu": str(cpus) if cpus else "500m", "memory": "1Gi"}
    return {"name": name, "resources": {"requests": amounts, "limits": amounts}}


def admitted(policy: StaticCPUPolicy, state: CPUState, pod: Pod, numa: NUMASet | None) -> CPUState | None:
    """The state with every container of the pod, or None where one is refused."""
    wants = policy.cpu_requests(pod)
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        done = allocate(policy, state, wants, container, numa)
        state = done.state
        if isinstance(done.verdict, Refused):
            return None
    return state


def running(policy: StaticCPUPolicy) -> CPUState:
    started = validated_state(policy, CPUState())
    assert isinstance(started, Granted)
    return started.value


def owners(state: CPUState) -> list[CPUSet]:
    """The CPUs of each pod and those of the shared pool; containers of one pod may share by reuse."""
    held = [CPUSet()] * len(state.assignments)
    for index, containers in enumerate(state.assignments.values()):
        for cpus in containers.values():
            held[index] |= cpus
    return [state.default, *held]


affinities = st.none() | st.integers(1, 15).map(NUMASet)


def check_sequence(policy: StaticCPUPolicy, sequence: list[Pod], numa: NUMASet | None) -> None:
    first = state = running(policy)
    for pod in sequence:
        before = state
        after = admitted(policy, state, pod, numa)
        if after is None:
            continue
        state = after
        held = owners(state)
        assert sum(map(len, held)) == len(first.default)
        assert all(policy.reserved.isdisjoint(cpus) for cpus in held[1:])
        undone = state
        for name in state.assignments.get(pod.uid, {}):
            undone = remove_container(policy, undone, pod.uid, name)
        assert (undone.default, undone.assignments) == (before.default, before.assignments)
    for pod_uid, containers in dict(state.assignments).items():
        for name in containers:
            state = remove_container(policy, state, pod_uid, name)
    assert state.default == first.default
    assert state.assignments == {}


@given(
    policy=policies(regular_topologies(), follow_defects=True),
    sequence=pods(),
    numa=affinities,
)
def test_no_cpu_has_two_owners_and_release_undoes_take(
    policy: StaticCPUPolicy, sequence: list[Pod], numa: NUMASet | None
) -> None:
    check_sequence(policy, sequence, numa)


@given(
    policy=policies(odd_topologies(), follow_defects=False),
    sequence=pods(),
    numa=affinities,
)
def test_without_the_defects_this_holds_on_odd_machines_too(
    policy: StaticCPUPolicy, sequence: list[Pod], numa: NUMASet | None
) -> None:
    check_sequence(policy, sequence, numa)


@st.composite
def wishes(draw: st.DrawFn) -> tuple[StaticCPUPolicy, CPUSet, CPUSet, int]:
    """A policy, free and reusable CPUs of its machine, and a request."""
    machines = st.one_of(regular_topologies(), odd_topologies())
    policy = draw(policies(machines, follow_defects=True))
    cpus = list(policy.topology.cpus)
    marks = draw(st.lists(st.integers(0, 6), min_size=len(cpus), max_size=len(cpus)))
    free = CPUSet.from_ids(cpu for cpu, mark in zip(cpus, marks, strict=True) if mark >= 3)
    reusable = CPUSet.from_ids(cpu for cpu, mark in zip(cpus, marks, strict=True) if mark == 0 and cpu % 3)
    return policy, free, reusable, draw(st.integers(1, len(cpus)))


@given(wish=wishes())
def test_hints_are_those_of_trying_every_set_of_numa_nodes(
    wish: tuple[StaticCPUPolicy, CPUSet, CPUSet, int],
) -> None:
    policy, free, reusable, requested = wish
    place = {place.cpu: place for place in policy.topology.cpu_info}
    nodes = sorted(policy.topology.numa_ids)
    sets = [numa for size in range(1, len(nodes) + 1) for numa in combinations(nodes, size)]

    def count(cpus: CPUSet, numa: tuple[int, ...]) -> int:
        return sum(1 for cpu in cpus if place[cpu].numa in numa)

    smallest = min(
        (len(numa) for numa in sets if count(policy.topology.cpus, numa) >= requested), default=len(nodes)
    )
    hints = [
        numa
        for numa in sets
        if count(reusable, numa) == len(reusable) and count(free, numa) + len(reusable) >= requested
    ]
    nodes_a_socket = policy.topology.num_numa_nodes // policy.topology.num_sockets

    def preferred(numa: tuple[int, ...]) -> bool:
        if len(numa) == smallest:
            return True
        if not policy.options.align_by_socket or nodes_a_socket == 0:
            return False
        sockets = {each.socket for each in place.values() if each.numa in numa}
        return len(sockets) == -(-smallest // nodes_a_socket)

    hint_list = cpu_hints(policy, free, reusable, requested)
    assert [(tuple(hint.numa or ()), hint.preferred) for hint in hint_list] == [
        (numa, preferred(numa)) for numa in hints
    ]
