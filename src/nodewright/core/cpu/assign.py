"""Which of the free CPUs are taken: the choice of the algorithm, and the remarks on what came out."""

from dataclasses import dataclass

from nodewright.core.cpu.distribute import Distributed, take_distributed
from nodewright.core.cpu.packed import Manner, take_packed
from nodewright.core.cpu.topology import CPUTopology
from nodewright.model.cpu_reasons import CPUsNotFree, DistributionOverwritten
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.values.idset import CPUSet

_PACKED_TIGHT = Manner()


@dataclass(frozen=True, slots=True, kw_only=True)
class Picking:
    """How CPUs are picked: packed, or distributed over NUMA nodes in groups."""

    manner: Manner = _PACKED_TIGHT
    group: int | None = None
    """CPUs that are given out together when distributing; None: packed."""


def take_cpus(topology: CPUTopology, free: CPUSet, count: int, picking: Picking) -> Verdict[CPUSet]:
    """As many of the free CPUs as asked for.

    Where the kubelet errs, the answer is what the kubelet does, and the reasons say so: CPUs that were not
    free (`CPUsNotFree`), other NUMA nodes than the best ones found (`DistributionOverwritten`), no end
    (`KubeletHangs`).

    Follows: v1.36, cpumanager/policy_static.go, takeByTopology.

    >>> from nodewright.core.cpu.topology import CPUPlace, CPUTopology
    >>> places = tuple(CPUPlace(cpu, 0, 0, cpu % 4, 0) for cpu in range(8))
    >>> four_cores = CPUTopology(8, 4, 1, 1, 1, places)
    >>> take_cpus(four_cores, CPUSet.parse("1-7"), 3, Picking())
    Granted(value=CPUSet('1,4-5'), because=())
    """
    remark: DistributionOverwritten | None = None
    if picking.group is None:
        taken = take_packed(topology, free.mask, count, picking.manner)
    else:
        outcome = take_distributed(topology, free.mask, count, picking.group, picking.manner)
        if not isinstance(outcome, Distributed):
            return Refused((outcome,))
        taken, remark = outcome.cpus, outcome.remark
    if not isinstance(taken, int):
        return Refused((taken,))
    because = () if remark is None else (remark,)
    strange = taken & ~free.mask
    if strange:
        return Granted(CPUSet(taken), (*because, CPUsNotFree(cpus=CPUSet(strange))))
    return Granted(CPUSet(taken), because)
