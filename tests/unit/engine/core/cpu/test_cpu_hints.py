import pytest

from nodewright.engine.core.cpu.cpu_allocation import container_hints, cpu_hints, pod_hints
from nodewright.engine.core.cpu.cpu_policy import CPUSettings, NoneCPUPolicy, StaticCPUPolicy, create_policy
from nodewright.engine.core.cpu.cpu_state import NO_CPUS, CPUState, ReusableCPUs
from nodewright.engine.core.cpu.cpu_topology import CPUTopology
from nodewright.engine.core.cpu.policy_options import CPUGates
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.verdict import Granted
from nodewright.model.releases.release_rules import CPUOptions
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.topology_hints import HintList, ProviderHints
from nodewright.testing.objects import a_pod, container, pod, sidecar
from nodewright.testing.strategies import topology

TWO_NODES = topology(sockets=2, cores=2)
"""0-1,4-5 and 2-3,6-7."""
FOUR_NODES = topology(sockets=2, numa_per_socket=2, cores=2, smt=1)
"""0-1 and 2-3 in socket 0, 4-5 and 6-7 in socket 1."""


def policy(
    machine: CPUTopology, *, align_by_socket: bool = False, pod_level: bool = False
) -> StaticCPUPolicy:
    verdict = create_policy(
        machine,
        CPUSettings(
            policy="static",
            options={"align-by-socket": str(align_by_socket).lower()},
            reservation=Quantity.parse("1"),
            reserved_cpus=CPUSet.of(0),
            gates=CPUGates(alpha_options=True, pod_level_managers=pod_level),
        ),
    )
    assert isinstance(verdict, Granted)
    assert isinstance(verdict.value, StaticCPUPolicy)
    return verdict.value


def texts(hints: HintList | None) -> list[str]:
    assert hints is not None
    return [f"{hint.numa}{'!' if hint.preferred else ''}" for hint in hints]


def cpu(hints: ProviderHints | None) -> list[str]:
    assert hints is not None
    return texts(hints["cpu"])


HINTS = """
    free 1-7     reuse -    want 1  ->  0! 1! 0-1
    free 1-7     reuse -    want 4  ->  1! 0-1
    free 1,2     reuse -    want 2  ->  0-1
    free 1-7     reuse -    want 5  ->  0-1!
    free 1-7     reuse -    want 8  ->
    free 1-7     reuse -    want 9  ->
    free 2-7     reuse 1    want 2  ->  0! 0-1
    free 1-3     reuse 6    want 2  ->  1! 0-1
    free 4       reuse 1,6  want 2  ->  0-1
    free 4       reuse 1,6  want 4  ->
"""


@pytest.mark.parametrize("line", HINTS.strip().splitlines())
def test_a_hint_has_enough_cpus_and_is_preferred_if_no_fewer_nodes_could_ever_do(line: str) -> None:
    asked, _, expected = line.partition("->")
    _, free, _, reuse, _, want = asked.split()
    reusable = NO_CPUS if reuse == "-" else CPUSet.parse(reuse)
    hints = cpu_hints(policy(TWO_NODES), CPUSet.parse(free), reusable, int(want))
    assert texts(hints) == expected.split()
    assert bool(hints) == bool(expected.strip())


def test_two_free_cpus_on_two_nodes_are_one_hint_that_is_not_preferred() -> None:
    assert texts(cpu_hints(policy(TWO_NODES), CPUSet.of(1, 6), NO_CPUS, 2)) == ["0-1"]


def test_four_nodes_of_which_two_are_needed() -> None:
    """Free on nodes 0 and 1 alone: {0-1} is preferred, everything that contains it is not."""
    hints = cpu_hints(policy(FOUR_NODES), CPUSet.parse("0-3"), NO_CPUS, 4)
    assert texts(hints) == ["0-1!", "0-2", "0-1,3", "0-3"]


def test_align_by_socket_prefers_whole_sockets_too() -> None:
    free = CPUSet.parse("1-7")
    plain = cpu_hints(policy(FOUR_NODES), free, NO_CPUS, 2)
    assert [text for text in texts(plain) if "!" in text] == ["1!", "2!", "3!"]
    aligned = cpu_hints(policy(FOUR_NODES, align_by_socket=True), free, NO_CPUS, 2)
    assert [text for text in texts(aligned) if "!" in text] == ["1!", "2!", "3!", "0-1!", "2-3!"]
    three = cpu_hints(policy(FOUR_NODES, align_by_socket=True), free, NO_CPUS, 5)
    assert [text for text in texts(three) if "!" in text] == ["0-2!", "0-1,3!", "0,2-3!", "1-3!", "0-3!"]


def test_where_sockets_outnumber_nodes_alignment_by_socket_says_nothing() -> None:
    base = policy(TWO_NODES)
    crowded = CPUTopology(8, 4, 4, 2, 2, TWO_NODES.cpu_info)
    odd = StaticCPUPolicy(
        crowded,
        CPUOptions(align_by_socket=True),
        base.reserved,
        base.reserved_cores,
        base.gates,
        base.assignment,
    )
    assert texts(cpu_hints(odd, CPUSet.parse("1-7"), NO_CPUS, 1)) == ["0!", "1!", "0-1"]


def test_cpus_that_the_machine_lacks_are_taken_to_be_on_node_0() -> None:
    assert texts(cpu_hints(policy(TWO_NODES), CPUSet.of(2, 98, 99), NO_CPUS, 2)) == ["0!", "0-1"]
    assert texts(cpu_hints(policy(TWO_NODES), CPUSet.parse("1-7"), CPUSet.of(99), 2)) == ["0!", "0-1"]


def test_without_a_node_0_they_are_nowhere() -> None:
    shifted = CPUTopology(
        8, 4, 2, 2, 2, tuple(cpu_info._replace(numa=cpu_info.numa + 1) for cpu_info in TWO_NODES.cpu_info)
    )
    assert texts(cpu_hints(policy(shifted), CPUSet.of(2, 98, 99), NO_CPUS, 2)) == []
    assert texts(cpu_hints(policy(shifted), CPUSet.parse("1-7"), CPUSet.of(99), 2)) == []


def test_sixty_four_nodes_make_one_rule_and_no_list() -> None:
    machine = topology(numa_per_socket=64, cores=2)
    hints = cpu_hints(policy(machine), machine.cpus - CPUSet.of(0), NO_CPUS, 10)
    assert hints
    assert not hints.listed
    assert hints.fitting is not None
    assert hints.fitting.preferred_size == 3
    assert hints.fitting.fits(0b1110)
    assert not hints.fitting.fits(0b0011)


def alike(cpus: str, name: str = "app", init: tuple[str, ...] = (), side: str = "") -> Pod:
    """A Guaranteed pod with one container, init containers and a sidecar of these sizes."""
    before = tuple(container(f"init{i}", f"{each}/1Gi", f"{each}/1Gi") for i, each in enumerate(init))
    beside = (sidecar("side", f"{side}/1Gi", f"{side}/1Gi"),) if side else ()
    made = pod(container(name, f"{cpus}/1Gi", f"{cpus}/1Gi"), init=(*before, *beside))
    return Pod(metadata=a_pod("p").metadata, spec=made.spec)


IDLE = CPUState(TWO_NODES.cpus)


def test_no_cpus_of_its_own_no_opinion() -> None:
    static = policy(TWO_NODES)
    for wanted in (alike("1500m"), a_pod("p", {"cpu": 1})):
        wants = static.cpu_requests(wanted)
        assert container_hints(static, IDLE, wants, wanted.spec.containers[0]) is None
        assert pod_hints(static, IDLE, wants) is None
    wants = static.cpu_requests(alike("1"))
    assert container_hints(NoneCPUPolicy(), IDLE, wants, wants.pod.spec.containers[0]) is None
    assert pod_hints(NoneCPUPolicy(), IDLE, wants) is None


def test_a_container_that_has_cpus_gets_hints_from_those() -> None:
    static = policy(TWO_NODES)
    state = CPUState(CPUSet.parse("0-5"), {"p": {"app": CPUSet.of(6, 7)}})
    wants = static.cpu_requests(alike("2"))
    assert cpu(container_hints(static, state, wants, wants.pod.spec.containers[0])) == ["1!", "0-1"]
    assert cpu(pod_hints(static, state, wants)) == ["1!", "0-1"]
    other = static.cpu_requests(alike("3"))
    assert cpu(container_hints(static, state, other, other.pod.spec.containers[0])) == []
    assert cpu(pod_hints(static, state, other)) == []


def test_what_the_init_container_had_must_lie_inside() -> None:
    static = policy(TWO_NODES)
    had = CPUSet.of(1, 5)
    state = CPUState(CPUSet.parse("0,2-4,6-7"), {"p": {"init0": had}}, {}, ReusableCPUs("p", had))
    wants = static.cpu_requests(alike("3", init=("2",)))
    assert cpu(container_hints(static, state, wants, wants.pod.spec.containers[0])) == ["0!", "0-1"]
    other = CPUState(state.default, state.assignments, {}, ReusableCPUs("q", had))
    assert cpu(container_hints(static, other, wants, wants.pod.spec.containers[0])) == ["1!", "0-1"]
    # For the pod as a whole what its containers have counts as reusable anyway.
    assert cpu(pod_hints(static, other, wants)) == ["0!", "0-1"]


def test_pod_level_resources_without_the_gate_mean_no_opinion() -> None:
    whole: dict[str, str | int] = {"cpu": 4, "memory": "1Gi"}
    wanted = a_pod("p", whole, whole, resources={"requests": whole, "limits": whole})
    closed = policy(TWO_NODES)
    assert container_hints(closed, IDLE, closed.cpu_requests(wanted), wanted.spec.containers[0]) is None
    assert pod_hints(closed, IDLE, closed.cpu_requests(wanted)) is None
    opened = policy(TWO_NODES, pod_level=True)
    assert cpu(pod_hints(opened, IDLE, opened.cpu_requests(wanted))) == ["1!", "0-1"]


def test_a_pod_that_leaves_nothing_to_share_cannot_be_placed() -> None:
    whole: dict[str, str | int] = {"cpu": 2, "memory": "1Gi"}
    containers = [{"name": "a", "resources": {"requests": whole, "limits": whole}}, {"name": "b"}]
    wanted = a_pod("p", containers=containers, resources={"requests": whole, "limits": whole})
    opened = policy(TWO_NODES, pod_level=True)
    assert cpu(pod_hints(opened, IDLE, opened.cpu_requests(wanted))) == []
