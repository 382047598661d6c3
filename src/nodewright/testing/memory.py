"""Memory managers and their pods in a few words, for tests and notebooks."""

from nodewright.core.memory.allocate import allocate
from nodewright.core.memory.policy import MemorySettings, Reservation, StaticPolicy, create_policy
from nodewright.core.memory.state import MemoryState
from nodewright.core.memory.wants import DEFAULT_MEMORY_GATES, MemoryGates
from nodewright.model.hints import Hint
from nodewright.model.machine import HugePages, NUMANode
from nodewright.model.objects import Container, Pod
from nodewright.model.verdict import Granted
from nodewright.testing import objects
from nodewright.testing.objects import amounts, container

MIB = 2**20
RESERVED = amounts("memory=10Mi")
STATIC = MemorySettings(policy="Static", reserved=(Reservation(0, RESERVED),), node_allocatable=RESERVED)
"""10 MiB of node 0 are the system's."""
ALL_GATES = MemoryGates(pod_level_resources=True, pod_level_managers=True)
ANYWHERE = Hint(None, preferred=False)


def numa_nodes(*mebibytes: int, pages: int = 0) -> list[NUMANode]:
    """NUMA nodes with so much memory, of which so many pages of 2 MiB on each."""
    huge = (HugePages(2048, pages),) if pages else ()
    return [NUMANode(node_id=at, memory=size * MIB, hugepages=huge) for at, size in enumerate(mebibytes)]


def memory_policy(*mebibytes: int, pages: int = 0, gates: MemoryGates = DEFAULT_MEMORY_GATES) -> StaticPolicy:
    """The static policy on such nodes, with 10 MiB of the first reserved.

    >>> memory_policy(100, 100).idle[0].tables["memory"].allocatable // MIB
    90
    """
    settings = MemorySettings(
        policy=STATIC.policy, reserved=STATIC.reserved, node_allocatable=STATIC.node_allocatable, gates=gates
    )
    made = create_policy(numa_nodes(*mebibytes, pages=pages), settings)
    assert isinstance(made, Granted)
    assert isinstance(made.value, StaticPolicy)
    return made.value


def guaranteed(name: str, memory: str) -> Container:
    """A container with one CPU and such memory, requests equal to limits.

    >>> str(guaranteed("app", "memory=1Gi").resources.limits["memory"])
    '1Gi'
    """
    return container(name, f"cpu=1 {memory}", f"cpu=1 {memory}")


def pod_of(uid: str, *apps: Container, init: tuple[Container, ...] = (), whole: str = "") -> Pod:
    """A pod with these containers, and perhaps with resources of its own.

    >>> pod_of("p", whole="cpu=1 memory=1Gi").spec.resources is None
    False
    """
    return objects.pod(*apps, name=uid, uid=uid, init=init, whole=whole)


def placed_on(state: MemoryState, policy: StaticPolicy, pod: Pod, name: str, where: Hint) -> MemoryState:
    """The state with that container of the pod placed on the hinted nodes.

    >>> policy = memory_policy(100)
    >>> state = placed_on(MemoryState(policy.idle), policy, pod_of("p", guaranteed("app", "memory=9Mi")), "app", ANYWHERE)
    >>> state.machine[0].assignments
    1
    """
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    chosen = next(each for each in containers if each.name == name)
    done = allocate(policy, state, policy.wants(pod), chosen, where)
    assert isinstance(done.verdict, Granted), done.verdict
    return done.state
