"""What the CPU manager finds, as plain sentences with the CPUs and those who hold them."""

from collections.abc import Iterable
from typing import assert_never

from nodewright.model import cpu_reasons as cpu
from nodewright.values.idset import CPUSet


def cpu_sentence(reason: cpu.CPUReason) -> str:
    """The reason in words, without a full stop.

    >>> cpu_sentence(cpu.NotWholeCores(requested=3, cpus_per_core=2))
    '3 CPUs asked for, but full-pcpus-only gives out whole cores of 2 CPUs only'
    """
    if isinstance(reason, cpu.MachineFault):
        return _machine(reason)
    if isinstance(reason, cpu.PolicyFault):
        return _policy(reason)
    if isinstance(reason, cpu.StateFault):
        return _state(reason)
    if isinstance(reason, cpu.CPURemark):
        return _remark(reason)
    return _refusal(reason)


def _machine(reason: cpu.MachineFault) -> str:
    match reason:
        case cpu.CPUCountUnknown():
            return "the machine's description counts no CPUs"
        case cpu.CoreWithoutThreads(numa=numa, core=core):
            return f"core {core} of NUMA node {numa} lists no CPU"
        case cpu.CoreThreadsRepeated(numa=numa, core=core, threads=threads):
            return f"core {core} of NUMA node {numa} lists a CPU more than once: {_ids(threads)}"
        case _:
            assert_never(reason)


def _policy(reason: cpu.PolicyFault) -> str:
    match reason:
        case cpu.CPUPolicyUnknown(policy=policy):
            return f"there is no CPU manager policy {policy!r}"
        case cpu.CPUPolicyTakesNoOptions(options=options):
            return f"the CPU manager policy none takes no options: {_ids(name for name, _ in options)}"
        case cpu.CPUOptionUnknown(option=option):
            return f"there is no CPU manager policy option {option!r}"
        case cpu.CPUOptionGated(option=option, stage=stage):
            return f"the option {option} needs the feature gate CPUManagerPolicy{stage}Options, which is off"
        case cpu.CPUOptionValueInvalid(option=option, value=value):
            return f"the option {option} is {value!r}, neither true nor false"
        case cpu.CPUOptionsExclusive(one=one, other=other):
            return f"the options {one} and {other} exclude each other"
        case cpu.AlignBySocketAgainstPolicy(policy=policy):
            return f"the option align-by-socket does not go with the topology manager policy {policy}"
        case cpu.AlignBySocketAgainstMachine(sockets=sockets, numa_nodes=nodes):
            return f"the option align-by-socket does not go with {sockets} sockets on {nodes} NUMA nodes"
        case cpu.CPUReservationMissing():
            return "the static policy needs CPUs in kubeReserved or systemReserved; there are none"
        case cpu.CPUReservationZero():
            return "the static policy needs CPUs in kubeReserved or systemReserved; they are zero"
        case cpu.CPUReservationUnmet(reserved=reserved, wanted=wanted):
            return f"{wanted} CPUs are to be reserved, but {_those(reserved)} would be"
        case cpu.ReservedCPUUnknown(cpu=one):
            return f"CPU {one} is to be reserved, and the machine has no such CPU"
        case _:
            assert_never(reason)


def _state(reason: cpu.StateFault) -> str:
    match reason:
        case cpu.SharedPoolEmpty():
            return "the state has assignments and no shared pool"
        case cpu.ReservedCPUsNotShared(reserved=reserved, shared=shared):
            return f"reserved CPUs {reserved - shared} are missing from the state's shared pool {shared}"
        case cpu.ReservedCPUsShared(reserved=reserved, shared=shared):
            return f"strictly reserved CPUs {reserved} are in the state's shared pool {shared}"
        case cpu.AssignmentShared(pod=pod, container=container, cpus=cpus, shared=shared):
            return f"CPUs {cpus & shared} of {pod}/{container} are in the state's shared pool, too"
        case cpu.MachineCPUsChanged(expected=expected, found=found):
            differences = [
                f"{word} {cpus}"
                for word, cpus in (("lacks CPUs", expected - found), ("knows other CPUs", found - expected))
                if cpus
            ]
            return f"the state does not fit the machine: it {' and '.join(differences)}"
        case _:
            assert_never(reason)


def _refusal(reason: cpu.CPURefusal) -> str:
    match reason:
        case cpu.NotEnoughCPUs(requested=requested, available=available, where=where):
            return f"{requested} CPUs asked for, {available} can be given{_where(where)}"
        case cpu.NotWholeCores(requested=requested, cpus_per_core=per_core):
            return f"{requested} CPUs asked for, but full-pcpus-only gives out whole cores of {per_core} CPUs only"
        case cpu.NotEnoughWholeCores(requested=requested, available=available, where=where):
            return (
                f"{requested} CPUs asked for, {available} are free on cores without a reserved CPU, "
                f"and full-pcpus-only gives out no others{_where(where)}"
            )
        case cpu.PodSharedPoolEmpty(pod_cpus=total, exclusive=exclusive, init=init):
            who = "an init container" if init else "other containers"
            return f"of the pod's {total} CPUs {exclusive} are exclusive; nothing is left for {who} to share"
        case cpu.CPUAccountingWrong(remaining=remaining):
            extent = f"{remaining} too few" if remaining > 0 else f"{-remaining} too many"
            return f"the kubelet's distribution over NUMA nodes comes out with {extent} CPUs (a known defect)"
        case cpu.PickerRefuses(picker=picker, said=said, requested=requested, free=free):
            return (
                f"CPU picker {picker}, which is not the kubelet's, has no {requested} CPUs to give "
                f"of the free ones {free}: {said}"
            )
        case cpu.KubeletHangs(requested=requested, group=group, numa=numa):
            return (
                f"the kubelet would hang (a known defect): it would deal {requested} CPUs "
                f"in groups of {group} to NUMA nodes {numa} for ever"
            )
        case cpu.KubeletCrashes(divisor=divisor):
            return f"the kubelet would crash (a known defect): it would divide by zero {divisor}"
        case _:
            assert_never(reason)


def _remark(reason: cpu.CPURemark) -> str:
    match reason:
        case cpu.PickedBy(picker=picker, cpus=cpus):
            return f"CPU picker {picker}, which is not the kubelet's, picks CPUs {cpus}"
        case cpu.CPUsNotFree(cpus=cpus):
            return f"CPUs {cpus} are taken though they are not free (a known defect on irregular machines)"
        case cpu.CPUsStranded(cpus=cpus):
            return f"CPUs {cpus} are lost until the kubelet forgets its state (a known defect)"
        case cpu.DistributionOverwritten(best=best, used=used) if best != used:
            return f"NUMA nodes {best} are best, but the kubelet uses {used} (a known defect)"
        case cpu.DistributionOverwritten(best_for_rest=best, used_for_rest=used):
            return f"NUMA nodes {best} are best for the rest, but the kubelet uses {used} (a known defect)"
        case _:
            assert_never(reason)


def _where(nodes: Iterable[cpu.CPUsOfNUMA]) -> str:
    """Who has the CPUs of each NUMA node.

    >>> _where([cpu.CPUsOfNUMA(numa=0, free=CPUSet.of(3), reserved=CPUSet.of(0), holders=())])
    '; NUMA node 0: 3 free, 0 reserved'
    """
    return "".join(f"; NUMA node {node.numa}: {', '.join(_holdings(node))}" for node in nodes)


def _holdings(node: cpu.CPUsOfNUMA) -> Iterable[str]:
    yield f"{node.free or 'nothing'} free"
    if node.reserved:
        yield f"{node.reserved} reserved"
    for holder in node.holders:
        yield f"{holder.cpus} with {holder.pod}{'/' if holder.container else ''}{holder.container}"


def _those(cpus: CPUSet) -> str:
    return f"{len(cpus)} ({cpus})" if cpus else "none"


def _ids(ids: Iterable[object]) -> str:
    return ", ".join(map(str, ids))
