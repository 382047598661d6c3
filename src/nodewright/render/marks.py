"""Letters for those who have CPUs of their own, to be put beside these CPUs in a picture."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from string import ascii_lowercase, ascii_uppercase

from nodewright.model.objects import Pod
from nodewright.node.placement import left_of, placement_of
from nodewright.node.state import NodeState
from nodewright.render.boxes import wrapped
from nodewright.values.idset import CPUSet

RESERVED = "*"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has CPUs alone, and the letter for him."""

    mark: str
    name: str
    cpus: CPUSet


def holders(state: NodeState, pods: Iterable[Pod]) -> tuple[Holder, ...]:
    """Who has which CPUs alone: what is reserved first, then pods and containers in the order of their lowest CPU.

    Containers that hand their CPUs on have a letter each, as those that take them over.
    """
    reserved = left_of(state).reserved_cpus
    found = sorted(
        (one for pod in pods for one in _of(state, pod)), key=lambda one: (min(one[1]), one[0].lower(), one)
    )
    own = [Holder(mark, name, cpus) for mark, (name, cpus) in zip(_letters(), found, strict=False)]
    return (*([Holder(RESERVED, "reserved", reserved)] if reserved else []), *own)


def marks_by_cpu(held: Sequence[Holder]) -> Mapping[int, str]:
    """The letters of each CPU that somebody has."""
    marks: dict[int, str] = {}
    for one in held:
        for cpu in one.cpus:
            marks[cpu] = marks.get(cpu, "") + one.mark
    return marks


def legend(held: Sequence[Holder], width: int) -> list[str]:
    """A line for each letter."""
    wide = max((len(one.mark) for one in held), default=0)
    lines = []
    for one in held:
        head = f"{one.mark.ljust(wide)} {one.name}: "
        first, *rest = str(one.cpus).split(",")
        lines += wrapped([head + first, *rest], width, joint=",", indent=wide + 1)
    return lines


def _of(state: NodeState, pod: Pod) -> Iterator[tuple[str, CPUSet]]:
    placement = placement_of(state, pod)
    if placement.cpus:
        yield f"{pod.full_name}, the whole pod", placement.cpus
    for one in placement.containers:
        if one.cpus:
            yield f"{pod.full_name}, {one.name}", one.cpus


def _letters() -> Iterator[str]:
    """a, b, ... z, A, ... Z, aa, ab, ..."""
    for length in count(1):
        for letters in product(ascii_lowercase + ascii_uppercase, repeat=length):
            yield "".join(letters)
