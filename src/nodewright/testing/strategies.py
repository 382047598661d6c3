"""Hypothesis strategies for amounts and pods.

Hypothesis strategies for what resource managers say of NUMA nodes.
Machines in a few words, and strategies for them.
"""

from hypothesis import strategies as st

from nodewright.engine.core.cpu.cpu_topology import CPUInfo, CPUTopology
from nodewright.model.kubernetes.objects import (
    Container,
    ObjectMeta,
    Pod,
    PodSpec,
    ResourceList,
    ResourceRequirements,
)
from nodewright.model.values.idset import NUMASet
from nodewright.model.values.quantity import Quantity
from nodewright.model.values.subsets import Demand, NUMADistances
from nodewright.model.values.topology_hints import Fitting, Hint, HintList

SUFFIXES = ("", *"numkMGTPE", *(f"{prefix}i" for prefix in "KMGTPE"), "e3", "E-2", "e7")
RESOURCES = ("cpu", "memory", "hugepages-2Mi", "ephemeral-storage", "example.com/device")


@st.composite
def quantity_texts(draw: st.DrawFn) -> str:
    """Texts that Kubernetes parses as quantities."""
    sign = draw(st.sampled_from(("", "", "", "-", "+")))
    whole = draw(st.integers(0, 10 ** draw(st.integers(1, 25))))
    fraction = draw(st.sampled_from(("", "", "", ".", ".5", ".000", ".125", ".000000000001", ".1")))
    return f"{sign}{whole}{fraction}{draw(st.sampled_from(SUFFIXES))}"


def quantities() -> st.SearchStrategy[Quantity]:
    """Quantities of every format, size and sign."""
    return quantity_texts().map(Quantity.parse)


def requested_quantities() -> st.SearchStrategy[Quantity]:
    """Quantities as in requests: not negative, often equal, some fine-grained, some zero."""
    return _REQUESTS


def resource_lists() -> st.SearchStrategy[ResourceList]:
    """Amounts by resource."""
    return _RESOURCE_LISTS


def requirements() -> st.SearchStrategy[ResourceRequirements]:
    """Requests and limits, which may be inconsistent."""
    return _REQUIREMENTS


# Created once, because Hypothesis validates every new strategy.
_USUAL = ("0", "1", "2", "100m", "250m", "1500m", "64Mi", "128Mi", "1Gi", "1.5Gi", "100M", "1m", "0.1")
_REQUESTS = st.sampled_from(tuple(map(Quantity.parse, _USUAL))) | st.integers(0, 10**12).map(
    lambda units: Quantity.parse(str(units))
)
_RESOURCE_LISTS = st.lists(st.tuples(st.sampled_from(RESOURCES), _REQUESTS), max_size=4).map(dict)
_REQUIREMENTS = st.tuples(_RESOURCE_LISTS, _RESOURCE_LISTS).map(
    lambda lists: ResourceRequirements(requests=lists[0], limits=lists[1])
)
_CONTAINERS = st.lists(_REQUIREMENTS, min_size=1, max_size=3)
_INIT_CONTAINERS = st.lists(st.tuples(_REQUIREMENTS, st.booleans()), max_size=4)
_POD_LEVEL = st.none() | _REQUIREMENTS
_OVERHEAD: st.SearchStrategy[ResourceList | None] = st.none() | _RESOURCE_LISTS.filter(bool)


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods with containers, init containers, sidecars, overhead and pod-level resources."""
    main = draw(_CONTAINERS)
    init = draw(_INIT_CONTAINERS)
    pod_level = draw(_POD_LEVEL)
    spec = PodSpec(
        containers=tuple(Container(name=f"c{i}", resources=each) for i, each in enumerate(main)),
        init_containers=tuple(
            Container(name=f"i{i}", resources=each, restart_policy="Always" if keeps_running else None)
            for i, (each, keeps_running) in enumerate(init)
        ),
        overhead=draw(_OVERHEAD),
        resources=pod_level,
    )
    return Pod(metadata=ObjectMeta(name="pod"), spec=spec)


@st.composite
def hint_lists(draw: st.DrawFn, nodes: int) -> HintList | None:
    """Explicit hints of this number of NUMA nodes; None: no preference."""
    sets = st.integers(0, (1 << nodes) - 1).map(NUMASet)
    hints = st.builds(Hint, st.one_of(st.none(), sets, sets, sets, sets), st.booleans())
    return draw(st.one_of(st.none(), st.lists(hints, max_size=6).map(lambda listed: HintList(tuple(listed)))))


@st.composite
def numa_demands(draw: st.DrawFn, nodes: int) -> Demand:
    """Requirements of sets of NUMA nodes."""
    shares = draw(st.lists(st.tuples(st.integers(1, (1 << nodes) - 1), st.integers(0, 4)), max_size=5))
    return Demand(draw(st.integers(0, 8)), tuple(shares))


@st.composite
def hint_rules(draw: st.DrawFn, nodes: int) -> Fitting:
    """Rules that represent many hints."""
    among = draw(st.integers(1, (1 << nodes) - 1))
    halves = (0b0011, 0b1100)
    return Fitting(
        NUMASet(among),
        tuple(draw(st.lists(numa_demands(nodes), max_size=2))),
        draw(st.integers(1, nodes)),
        touching=tuple(draw(st.lists(st.integers(1, (1 << nodes) - 1), max_size=1))),
        at_least=draw(st.integers(1, 2)),
        sockets=draw(st.sampled_from(((), (), halves))),
        preferred_sockets=draw(st.integers(1, 2)),
    )


@st.composite
def rule_hint_lists(draw: st.DrawFn, nodes: int) -> HintList:
    """A rule, with explicit hints in addition."""
    sets = st.integers(1, (1 << nodes) - 1).map(NUMASet)
    beside = draw(st.lists(st.builds(Hint, sets, st.booleans()), max_size=2))
    return HintList(tuple(beside), draw(hint_rules(nodes)))


@st.composite
def distance_tables(draw: st.DrawFn, nodes: int) -> NUMADistances | None:
    """Distances between this number of NUMA nodes; None: distances are not used."""
    if draw(st.booleans()):
        return None
    row = st.lists(st.sampled_from((10, 12, 20, 21)), min_size=nodes, max_size=nodes)
    return {node: draw(row) for node in range(nodes)}


def topology(
    sockets: int = 1, numa_per_socket: int = 1, cores: int = 4, smt: int = 2, cores_per_cache: int = 0
) -> CPUTopology:
    """A regular machine; sibling threads are numbered half a machine apart, as on most servers. `cores` are per NUMA node.

    >>> topology(cores=2).cpu_info
    (CPUInfo(cpu=0, numa=0, socket=0, core=0, uncore_cache=0),
     CPUInfo(cpu=1, numa=0, socket=0, core=1, uncore_cache=0),
     CPUInfo(cpu=2, numa=0, socket=0, core=0, uncore_cache=0),
     CPUInfo(cpu=3, numa=0, socket=0, core=1, uncore_cache=0))
    """
    all_cores = sockets * numa_per_socket * cores
    cpu_infos = []
    for cpu in range(all_cores * smt):
        core = cpu % all_cores
        numa = core // cores
        socket = numa // numa_per_socket
        cache = core // cores_per_cache if cores_per_cache else socket
        cpu_infos.append(CPUInfo(cpu, numa, socket, core, cache))
    return topology_of_cpus(cpu_infos)


def topology_of_cpus(cpu_infos: list[CPUInfo]) -> CPUTopology:
    """The topology of these CPUs, with the resulting counts."""
    return CPUTopology(
        num_cpus=len(cpu_infos),
        num_cores=len({place.core for place in cpu_infos}),
        num_sockets=len({place.socket for place in cpu_infos}),
        num_numa_nodes=len({place.numa for place in cpu_infos}),
        num_uncore_caches=len({place.uncore_cache for place in cpu_infos}),
        cpu_info=tuple(sorted(cpu_infos)),
    )


@st.composite
def regular_topologies(draw: st.DrawFn, largest: int = 48) -> CPUTopology:
    """Machines with equal, nested units, of at most this number of CPUs."""
    sockets = draw(st.integers(1, 3))
    numa = draw(st.integers(1, 4))
    smt = draw(st.sampled_from((1, 2, 2, 4)))
    cores = draw(st.integers(1, max(largest // (sockets * numa * smt), 1)))
    return topology(sockets, numa, cores, smt, draw(st.integers(0, 3)))


@st.composite
def odd_topologies(draw: st.DrawFn) -> CPUTopology:
    """Machines with uneven units, gaps in numbering, missing CPUs, and units that do not nest."""
    regular = draw(regular_topologies(32))
    places = [place for place in regular.cpu_info if draw(st.integers(0, 9))] or list(regular.cpu_info)
    if draw(st.booleans()):
        places = [_moved(draw, place) for place in places]
    topology = topology_of_cpus(places)
    if draw(st.integers(0, 3)):
        return topology
    return CPUTopology(
        num_cpus=draw(st.integers(1, 40)),
        num_cores=draw(st.integers(1, 20)),
        num_sockets=draw(st.integers(1, 4)),
        num_numa_nodes=draw(st.integers(1, 4)),
        num_uncore_caches=draw(st.integers(0, 4)),
        cpu_info=topology.cpu_info,
    )


def topologies() -> st.SearchStrategy[CPUTopology]:
    """Machines of every kind."""
    return st.one_of(regular_topologies(), odd_topologies())


def _moved(draw: st.DrawFn, place: CPUInfo) -> CPUInfo:
    match draw(st.integers(0, 11)):
        case 0:
            return place._replace(numa=draw(st.integers(0, 4)))
        case 1:
            return place._replace(socket=draw(st.integers(0, 2)))
        case 2:
            return place._replace(core=draw(st.integers(0, 9)))
        case 3:
            return place._replace(uncore_cache=draw(st.integers(0, 5)))
        case _:
            return place
