"""The memory manager's books balance, and its hints are those of a slow, obvious search."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from nodewright.engine.core.memory.memory_allocation import (
    allocate_container_memory,
    best_hint,
    memory_hints,
    release_memory,
)
from nodewright.engine.core.memory.memory_policy import (
    MemorySettings,
    Reservation,
    StaticMemoryPolicy,
    create_memory_policy,
    start_memory_manager,
)
from nodewright.engine.core.memory.memory_state import (
    NO_REUSABLE_MEMORY,
    MemoryState,
    MemoryTable,
    NUMAMemory,
    NUMANodeMap,
)
from nodewright.model.hardware import HugePages, NUMANode
from nodewright.model.kubernetes.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from nodewright.model.reasons.verdict import Granted
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.subsets import nonempty_subsets
from nodewright.model.values.topology_hints import Hint

MIB = 2**20
KINDS = ("hugepages-2Mi", "memory")
WORD = 2**64


def policy_on(nodes: int) -> StaticMemoryPolicy:
    """Nodes of 100, 110, 120, ... MiB, of which 10 are the system's on node 0 and 20 are huge pages."""
    reserved = {"memory": Quantity.parse("10Mi")}
    made = create_memory_policy(
        [
            NUMANode(node_id=at, memory=(100 + 10 * at) * MIB, hugepages=(HugePages(2048, 10),))
            for at in range(nodes)
        ],
        MemorySettings(policy="Static", reserved=[Reservation(0, reserved)], node_allocatable=reserved),
    )
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticMemoryPolicy)
    return made.value


def container(name: str, sizes: tuple[int, int], *, sidecar: bool = False) -> Container:
    amounts = {kind: Quantity.of(size * MIB) for kind, size in zip(KINDS, sizes, strict=True) if size}
    amounts["cpu"] = Quantity.of(1)
    resources = ResourceRequirements(requests=amounts, limits=amounts)
    return Container(name=name, resources=resources, restart_policy="Always" if sidecar else None)


@st.composite
def pods(draw: st.DrawFn) -> list[Container]:
    sizes = st.tuples(st.sampled_from((0, 0, 2, 10, 24)), st.integers(1, 150))
    inits = [
        container(f"init-{at}", size, sidecar=draw(st.booleans()))
        for at, size in enumerate(draw(st.lists(sizes, max_size=2)))
    ]
    apps = [
        container(f"app-{at}", size) for at, size in enumerate(draw(st.lists(sizes, min_size=1, max_size=2)))
    ]
    return [*inits, *apps]


@st.composite
def histories(draw: st.DrawFn) -> tuple[StaticMemoryPolicy, MemoryState]:
    """A machine after some pods came, each wherever it fits, and some went."""
    policy = policy_on(draw(st.integers(1, 4)))
    state = MemoryState(machine=policy.initial_machine)
    for at, containers in enumerate(draw(st.lists(pods(), max_size=5))):
        state = come(policy, state, f"pod-{at}", containers)
        if draw(st.integers(0, 3)) == 0:
            state = go(policy, state, f"pod-{draw(st.integers(0, at))}")
    return policy, state


def come(
    policy: StaticMemoryPolicy, state: MemoryState, uid: str, containers: list[Container]
) -> MemoryState:
    inits = tuple(container for container in containers if container.name.startswith("init"))
    apps = tuple(container for container in containers if container.name.startswith("app"))
    pod = Pod(metadata=ObjectMeta(uid=uid), spec=PodSpec(containers=apps, init_containers=inits))
    after = state
    for container in (*inits, *apps):
        done = allocate_container_memory(policy, after, policy.demand(pod), container)
        if not isinstance(done.verdict, Granted):
            return go(policy, done.state, uid)
        after = done.state
    return after


def go(policy: StaticMemoryPolicy, state: MemoryState, uid: str) -> MemoryState:
    for name in list(state.assignments.get(uid, {})):
        state = release_memory(policy, state, uid, name)
    return state


@given(histories())
def test_no_byte_has_two_owners(history: tuple[StaticMemoryPolicy, MemoryState]) -> None:
    _, state = history
    for kind in KINDS:
        for node in state.machine.values():
            table = node.tables[kind]
            assert table.free >= 0
            assert table.free + table.reserved == table.allocatable
        held = sum(
            block.size
            for containers in state.assignments.values()
            for blocks in containers.values()
            for block in blocks
            if block.resource == kind
        )
        assert held == sum(node.tables[kind].reserved for node in state.machine.values())


@given(histories())
def test_what_all_give_back_is_what_they_took(history: tuple[StaticMemoryPolicy, MemoryState]) -> None:
    policy, state = history
    for uid in list(state.assignments):
        state = go(policy, state, uid)
    assert (state.machine, state.assignments) == (policy.initial_machine, {})


@given(histories())
def test_a_restart_takes_the_state_that_was_left(history: tuple[StaticMemoryPolicy, MemoryState]) -> None:
    policy, state = history
    stored = MemoryState(state.machine, state.assignments)
    assert start_memory_manager(policy, stored) == Granted(stored)
    assert stored.reusable == NO_REUSABLE_MEMORY


@given(histories(), pods())
def test_hints_are_those_of_every_set_tried(
    history: tuple[StaticMemoryPolicy, MemoryState], containers: list[Container]
) -> None:
    policy, state = history
    requested = {
        kind: amount.value() for kind, amount in containers[0].resources.requests.items() if kind != "cpu"
    }
    reuse = state.reusable.of(state.reusable.pod)
    hint_list = memory_hints(state.machine, requested, reuse)
    expected = every_set_tried(state.machine, requested, reuse)
    assert {(hint.numa.mask, hint.preferred) for hint in hint_list if hint.numa} == set(expected)
    assert len(list(hint_list)) == len(expected)
    assert policy.initial_machine.keys() == state.machine.keys()
    for containing in range(1 << len(state.machine)):
        best = min(
            (
                (not preferred, mask.bit_count(), mask)
                for mask, preferred in expected
                if containing & ~mask == 0
            ),
            default=None,
        )
        hint = best_hint(hint_list, containing)
        assert (hint and hint.numa and (not hint.preferred, len(hint.numa), hint.numa.mask)) == best


@given(st.data())
def test_sums_that_wrap_around_are_followed(data: st.DataObject) -> None:
    amounts = st.sampled_from((0, 1, 5, WORD - 1, WORD - 5, WORD // 2))
    machine = {}
    for numa in range(data.draw(st.integers(1, 4))):
        size = data.draw(amounts)
        tables = {"memory": MemoryTable(size, 0, size, 0, size)}
        machine[numa] = NUMAMemory(0, NUMASet.of(numa), tables)
    requested = {"memory": data.draw(st.sampled_from((1, 3, WORD // 2)))}
    hint_list = memory_hints(machine, requested, {})
    assert [(hint.numa.mask, hint.preferred) for hint in hint_list if hint.numa] == every_set_tried(
        machine, requested, {}
    )


def every_set_tried(
    machine: NUMANodeMap, requested: Mapping[str, int], reuse: Mapping[tuple[int, str], int]
) -> list[tuple[int, bool]]:
    smallest, found = len(machine), []
    for mask in nonempty_subsets(NUMASet.from_ids(machine).mask):
        nodes = [machine[numa] for numa in NUMASet(mask)]
        if any(
            sum(node.tables[kind].allocatable for node in nodes) % WORD < size
            for kind, size in requested.items()
        ):
            continue
        smallest = min(smallest, len(nodes))
        if len(nodes) == 1 and len(nodes[0].cells) > 1:
            continue
        if len(nodes) > 1 and any(node.assignments and node.cells != NUMASet(mask) for node in nodes):
            continue
        if all(
            sum(node.tables[kind].free for node in nodes) % WORD + reuse.get((mask, kind), 0) >= size
            for kind, size in requested.items()
        ):
            found.append(mask)
    return [(mask, mask.bit_count() == smallest) for mask in found]


def test_a_hint_is_taken_at_its_word() -> None:
    policy = policy_on(2)
    pod = Pod(metadata=ObjectMeta(uid="p"), spec=PodSpec(containers=(container("app-0", (0, 10)),)))
    wanted = Hint(NUMASet.of(1), preferred=True)
    done = allocate_container_memory(
        policy,
        MemoryState(machine=policy.initial_machine),
        policy.demand(pod),
        pod.spec.containers[0],
        wanted,
    )
    assert isinstance(done.verdict, Granted)
    assert [block.numa for block in done.verdict.value or ()] == [(1,)]
