"""Letters that mark the owners of exclusive CPUs in a drawing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, product
from string import ascii_lowercase, ascii_uppercase

import msgspec

from nodewright.documents.output.text_layout import wrapped
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_placement import placement_of, unallocated_resources
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.idset import CPUSet

RESERVED = "*"


class CPUOwner(msgspec.Struct, frozen=True):
    """An owner of exclusive CPUs with its letter."""

    mark: str
    name: str
    cpus: CPUSet


def cpu_owners(state: NodeState, pods: Iterable[Pod]) -> tuple[CPUOwner, ...]:
    """The owners of exclusive CPUs: the reserved CPUs first, then pods and containers by their lowest CPU.

    Init containers and the containers that reuse their CPUs have a letter each.
    """
    reserved = unallocated_resources(state).reserved_cpus
    holders = sorted(
        (holder for pod in pods for holder in _pod_holders(state, pod)),
        key=lambda holder: (min(holder[1]), holder[0].lower(), holder),
    )
    owners = [CPUOwner(mark, name, cpus) for mark, (name, cpus) in zip(_letters(), holders, strict=False)]
    return (*([CPUOwner(RESERVED, "reserved", reserved)] if reserved else []), *owners)


def marks_by_cpu(owners: Sequence[CPUOwner]) -> Mapping[int, str]:
    """The letters of each exclusive CPU."""
    marks: dict[int, str] = {}
    for owner in owners:
        for cpu in owner.cpus:
            marks[cpu] = marks.get(cpu, "") + owner.mark
    return marks


def legend_lines(owners: Sequence[CPUOwner], width: int) -> list[str]:
    """A line for each letter with its owner and CPUs."""
    mark_width = max((len(owner.mark) for owner in owners), default=0)
    lines = []
    for owner in owners:
        head = f"{owner.mark.ljust(mark_width)} {owner.name}: "
        first, *rest = str(owner.cpus).split(",")
        lines += wrapped([head + first, *rest], width, joint=",", indent=mark_width + 1)
    return lines


def _pod_holders(state: NodeState, pod: Pod) -> Iterator[tuple[str, CPUSet]]:
    placement = placement_of(state, pod)
    if placement.cpus:
        yield f"{pod.full_name}, the whole pod", placement.cpus
    for container in placement.containers:
        if container.cpus:
            yield f"{pod.full_name}, {container.name}", container.cpus


def _letters() -> Iterator[str]:
    """a, b, ... z, A, ... Z, aa, ab, ..."""
    for length in count(1):
        for letters in product(ascii_lowercase + ascii_uppercase, repeat=length):
            yield "".join(letters)
