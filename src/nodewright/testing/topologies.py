"""Machines in a few words, and strategies for them."""

from hypothesis import strategies as st

from nodewright.core.cpu.topology import CPUPlace, CPUTopology


def topology(
    sockets: int = 1, numa_per_socket: int = 1, cores: int = 4, smt: int = 2, cores_per_cache: int = 0
) -> CPUTopology:
    """A regular machine; siblings lie half a machine apart, as on most servers. `cores` are per NUMA node.

    >>> topology(cores=2).places
    (CPUPlace(cpu=0, numa=0, socket=0, core=0, uncore_cache=0),
     CPUPlace(cpu=1, numa=0, socket=0, core=1, uncore_cache=0),
     CPUPlace(cpu=2, numa=0, socket=0, core=0, uncore_cache=0),
     CPUPlace(cpu=3, numa=0, socket=0, core=1, uncore_cache=0))
    """
    all_cores = sockets * numa_per_socket * cores
    places = []
    for cpu in range(all_cores * smt):
        core = cpu % all_cores
        numa = core // cores
        socket = numa // numa_per_socket
        cache = core // cores_per_cache if cores_per_cache else socket
        places.append(CPUPlace(cpu, numa, socket, core, cache))
    return of_places(places)


def of_places(places: list[CPUPlace]) -> CPUTopology:
    """The topology of these CPUs, with the counts that follow from them."""
    return CPUTopology(
        num_cpus=len(places),
        num_cores=len({place.core for place in places}),
        num_sockets=len({place.socket for place in places}),
        num_numa_nodes=len({place.numa for place in places}),
        num_uncore_caches=len({place.uncore_cache for place in places}),
        places=tuple(sorted(places)),
    )


@st.composite
def regular_topologies(draw: st.DrawFn, largest: int = 48) -> CPUTopology:
    """Machines whose units are all alike and nest, of at most so many CPUs."""
    sockets = draw(st.integers(1, 3))
    numa = draw(st.integers(1, 4))
    smt = draw(st.sampled_from((1, 2, 2, 4)))
    cores = draw(st.integers(1, max(largest // (sockets * numa * smt), 1)))
    return topology(sockets, numa, cores, smt, draw(st.integers(0, 3)))


@st.composite
def odd_topologies(draw: st.DrawFn) -> CPUTopology:
    """Machines of uneven units, with holes in the numbers, CPUs missing, and units that do not nest."""
    regular = draw(regular_topologies(32))
    places = [place for place in regular.places if draw(st.integers(0, 9))] or list(regular.places)
    if draw(st.booleans()):
        places = [_moved(draw, place) for place in places]
    found = of_places(places)
    if draw(st.integers(0, 3)):
        return found
    return CPUTopology(
        num_cpus=draw(st.integers(1, 40)),
        num_cores=draw(st.integers(1, 20)),
        num_sockets=draw(st.integers(1, 4)),
        num_numa_nodes=draw(st.integers(1, 4)),
        num_uncore_caches=draw(st.integers(0, 4)),
        places=found.places,
    )


def topologies() -> st.SearchStrategy[CPUTopology]:
    """Machines of every kind."""
    return st.one_of(regular_topologies(), odd_topologies())


def _moved(draw: st.DrawFn, place: CPUPlace) -> CPUPlace:
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
