"""The kubelet's own texts for what the CPU manager finds."""

from typing import assert_never

from nodewright.model import cpu_reasons as cpu
from nodewright.values.golang import quoted, text_map


def cpu_message(reason: cpu.CPUReason) -> str:
    """The text of the kubelet's error, to the byte; ours where the kubelet says nothing or never would."""
    if isinstance(reason, cpu.MachineFault):
        return _machine(reason)
    if isinstance(reason, cpu.PolicyFault):
        return _policy(reason)
    if isinstance(reason, cpu.StateFault):
        return _state(reason)
    if isinstance(reason, cpu.CPURemark):
        return _remark(reason)
    return _refusal(reason)


def cpu_error_type(reason: cpu.CPUReason) -> str | None:
    """The type that the kubelet gives the error, which becomes the pod's reason; None: it gives none.

    Follows: v1.36, cpumanager/policy_static.go, SMTAlignmentError; cm/admission/errors.go.
    """
    if isinstance(reason, cpu.NotWholeCores | cpu.NotEnoughWholeCores):
        return "SMTAlignmentError"
    if isinstance(reason, cpu.PodSharedPoolEmpty):
        return "EmptyPodSharedPoolError"
    return None


def _machine(reason: cpu.MachineFault) -> str:
    match reason:
        case cpu.CPUCountUnknown():
            return "could not detect number of cpus"
        case cpu.CoreWithoutThreads():
            return "no cpus provided"
        case cpu.CoreThreadsRepeated():
            return "cpus provided are not unique"
        case _:
            assert_never(reason)


STATIC = "new static policy error: "


def _policy(reason: cpu.PolicyFault) -> str:
    match reason:
        case cpu.CPUPolicyUnknown(policy=policy):
            return f'unknown policy: "{policy}"'
        case cpu.CPUPolicyTakesNoOptions(options=options):
            unsupported = text_map(dict(options))
            return f"new none policy error: None policy: received unsupported options={unsupported}"
        case cpu.CPUOptionUnknown(option=option):
            return f"{STATIC}unknown CPU Manager Policy option: {quoted(option)}"
        case cpu.CPUOptionGated(option=option, stage=stage):
            return (
                f"{STATIC}CPU Manager Policy {stage}-level Options not enabled, "
                f"but option {quoted(option)} provided"
            )
        case cpu.CPUOptionValueInvalid(option=option, value=value):
            return (
                f"{STATIC}bad value for option {quoted(option)}: "
                f"strconv.ParseBool: parsing {quoted(value)}: invalid syntax"
            )
        case cpu.CPUOptionsExclusive(one=one, other=other):
            return f"{STATIC}static policy options {one} and {other} can not be used at the same time"
        case _:
            return _policy_on_machine(reason)


def _policy_on_machine(
    reason: cpu.AlignBySocketAgainstPolicy
    | cpu.AlignBySocketAgainstMachine
    | cpu.CPUReservationMissing
    | cpu.CPUReservationZero
    | cpu.CPUReservationUnmet
    | cpu.ReservedCPUUnknown,
) -> str:
    match reason:
        case cpu.AlignBySocketAgainstPolicy(policy=policy):
            return (
                f"{STATIC}Topolgy manager {policy} policy is incompatible with "
                "CPUManager align-by-socket policy option"
            )
        case cpu.AlignBySocketAgainstMachine():
            return (
                f"{STATIC}Align by socket is not compatible with hardware where "
                "number of sockets are more than number of NUMA"
            )
        case cpu.CPUReservationMissing():
            return "[cpumanager] unable to determine reserved CPU resources for static policy"
        case cpu.CPUReservationZero():
            return (
                "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu "
                "to be greater than zero"
            )
        case cpu.CPUReservationUnmet(reserved=reserved, wanted=wanted):
            return (
                f"{STATIC}[cpumanager] unable to reserve the required amount of CPUs "
                f"(size of {reserved} did not equal {wanted})"
            )
        case cpu.ReservedCPUUnknown(cpu=one):
            return (
                f"{STATIC}[cpumanager] unable to build the reserved physical CPUs "
                f"from the reserved set: unknown CPU ID: {one}"
            )
        case _:
            assert_never(reason)


def _state(reason: cpu.StateFault) -> str:
    match reason:
        case cpu.SharedPoolEmpty():
            return "default cpuset cannot be empty"
        case cpu.ReservedCPUsNotShared(reserved=reserved, shared=shared):
            return f'not all reserved cpus: "{reserved}" are present in defaultCpuSet: "{shared}"'
        case cpu.ReservedCPUsShared(reserved=reserved, shared=shared):
            return f'some of strictly reserved cpus: "{reserved}" are present in defaultCpuSet: "{shared}"'
        case cpu.AssignmentShared(pod=pod, container=container, cpus=cpus, shared=shared):
            return (
                f'pod: {pod}, container: {container} cpuset: "{cpus}" overlaps with default cpuset "{shared}"'
            )
        case cpu.MachineCPUsChanged(expected=expected, found=found):
            return f'current set of available CPUs "{expected}" doesn\'t match with CPUs in state "{found}"'
        case _:
            assert_never(reason)


def _refusal(reason: cpu.CPURefusal) -> str:
    match reason:
        case cpu.NotEnoughCPUs(requested=requested, available=available):
            return (
                f"not enough cpus available to satisfy request: requested={requested}, available={available}"
            )
        case cpu.NotWholeCores(requested=requested, cpus_per_core=per_core):
            return f"SMT Alignment Error: requested {requested} cpus not multiple cpus per core = {per_core}"
        case cpu.NotEnoughWholeCores(requested=requested, cpus_per_core=per_core, available=available):
            return (
                "SMT Alignment Error: not enough free physical CPUs: "
                f"available physical CPUs = {available}, requested CPUs = {requested}, CPUs per core = {per_core}"
            )
        case cpu.PodSharedPoolEmpty(init=True):
            return "pod rejected, pod has shared init containers but no cpus available for them"
        case cpu.PodSharedPoolEmpty():
            return (
                "pod rejected, sum of exclusive container cpu requests equals pod budget, "
                "leaving no cpus for shared containers"
            )
        case cpu.CPUAccountingWrong(remaining=remaining):
            extent = "not enough" if remaining > 0 else "too many"
            return f"accounting error, {extent} CPUs allocated, remaining: {remaining}"
        case cpu.PickerRefuses(picker=picker, said=said):
            return f"CPU picker {picker}: {said}"
        case cpu.KubeletHangs(requested=requested, group=group, numa=numa):
            return (
                f"the kubelet would hang: it would deal {requested} CPUs in groups of {group} "
                f"to NUMA nodes {{{numa}}} for ever"
            )
        case cpu.KubeletCrashes(divisor=divisor):
            return f"the kubelet would crash: division by zero ({divisor})"
        case _:
            assert_never(reason)


def _remark(reason: cpu.CPURemark) -> str:
    match reason:
        case cpu.PickedBy(picker=picker, cpus=cpus):
            return f"CPU picker {picker} picks CPUs {cpus}"
        case cpu.CPUsNotFree(cpus=cpus):
            return f"the kubelet hands out CPUs {cpus}, which are not free"
        case cpu.CPUsStranded(cpus=cpus):
            return f"the kubelet does not take back CPUs {cpus}, which nobody uses"
        case cpu.DistributionOverwritten(best=best, used=used):
            return f"the kubelet finds NUMA nodes {{{best}}} best and then uses {{{used}}}"
        case _:
            assert_never(reason)
