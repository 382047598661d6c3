"""CPU pickers of somebody's own: which of the free CPUs a container gets is theirs to say."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from nodewright.core.cpu.options import CPUOptions
from nodewright.core.cpu.topology import CPUTopology
from nodewright.model.cpu_reasons import PickedBy, PickerRefuses
from nodewright.model.policies import Policy, PolicyError, failure, first_line
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import CPUSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PickAsked:
    """What a picker is asked; there are always enough free CPUs, and at least one is wanted.

    Units: count in CPUs.
    """

    topology: CPUTopology
    free: CPUSet
    """The CPUs to choose from: those of the NUMA nodes that the topology manager settled on, if it did, come first."""
    count: int
    options: CPUOptions
    """The options of the static policy that are on; to heed them is the picker's business."""


@dataclass(frozen=True, slots=True)
class NoPick:
    """The picker has no CPUs to give, and why."""

    said: str


Picks: TypeAlias = Callable[[PickAsked], CPUSet | NoPick]


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUPicker(Policy):
    """A way to pick CPUs that is not the kubelet's."""

    picks: Picks

    kind: ClassVar[str] = "CPU picker"
    field: ClassVar[str] = "cpuPicker"


def cpu_picker(name: str) -> Callable[[Picks], CPUPicker]:
    """The function as the CPU picker of that name.

    >>> @cpu_picker("highest")
    ... def highest(asked: PickAsked) -> CPUSet:
    ...     "The CPUs with the highest numbers."
    ...     return CPUSet.from_ids(sorted(asked.free)[-asked.count :])
    >>> highest.name, highest.about
    ('highest', 'The CPUs with the highest numbers.')
    """
    return lambda picks: CPUPicker(name=name, about=first_line(picks.__doc__), picks=picks)


def picked(own: CPUPicker, asked: PickAsked) -> Verdict[CPUSet]:
    """The CPUs that the picker chooses.

    Errors: PolicyError if it fails, or answers with CPUs that are not free or with another number of them.
    """
    try:
        answer = own.picks(asked)
    except Exception as error:
        raise PolicyError(own, f"fails: {failure(error)}") from error
    wanted = f"{asked.count} of the free CPUs {asked.free}"
    if isinstance(answer, NoPick):
        refusal = PickerRefuses(picker=own.name, said=answer.said, requested=asked.count, free=asked.free)
        return Refused((refusal,))
    if not isinstance(answer, CPUSet):
        raise PolicyError(own, f"asked for {wanted}, answers {answer!r}, which is no CPUSet and no NoPick")
    if not answer <= asked.free:
        strange = answer - asked.free
        raise PolicyError(own, f"asked for {wanted}, picks CPUs {answer}, of which {strange} are not free")
    if len(answer) != asked.count:
        raise PolicyError(own, f"asked for {wanted}, picks {len(answer)}: {answer or 'none'}")
    return Granted(answer, (PickedBy(picker=own.name, cpus=answer),))
