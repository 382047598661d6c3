"""The kubelet's own reason and message for each refusal, to the letter."""

from typing import NamedTuple, assert_never

from nodewright.model.cpu_reasons import (
    CPUReason,
    KubeletCrashes,
    KubeletHangs,
    MachineFault,
    PolicyFault,
    StateFault,
)
from nodewright.model.device_reasons import DeviceReason, DeviceUnlisted
from nodewright.model.eviction_reasons import EvictionReason
from nodewright.model.memory_reasons import MemoryPolicyFault, MemoryReason, MemoryStateFault
from nodewright.model.reasons import (
    AdmissionReason,
    HostPortsTaken,
    InsufficientResource,
    NodeAffinityMismatch,
    NodeFeaturesMissing,
    NodeNameMismatch,
    NodeUnavailable,
    NotJudged,
    NoVictimsSuffice,
    OSFieldMismatch,
    OSLabelMismatch,
    OtherPredicate,
    PluginUpdateFailed,
    PodLevelResourcesDisabled,
    PredicateFailure,
    Reason,
    SupplementalGroupsPolicyUnsupported,
    SysctlForbidden,
    UntoleratedTaints,
)
from nodewright.model.resize_reasons import ResizeReason
from nodewright.model.start_reasons import StartReason
from nodewright.model.state_reasons import (
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateFile,
    StateFileDamaged,
    StateFileReason,
    StatePolicyDiffers,
)
from nodewright.model.topology_reasons import TopologyReason
from nodewright.render.cpu_messages import cpu_error_type, cpu_message
from nodewright.render.device_messages import device_message
from nodewright.render.eviction_messages import EVICTED, eviction_message
from nodewright.render.memory_messages import memory_error_type, memory_message
from nodewright.render.resize_messages import resize_message, resize_reason
from nodewright.render.start_messages import start_message
from nodewright.render.state_messages import state_message
from nodewright.render.topology_messages import topology_message


class Message(NamedTuple):
    """Reason and message of a pod's status, as the kubelet writes them."""

    reason: str
    message: str


def message(reason: Reason) -> Message:
    """The kubelet's reason and message for a pod that it refuses because of this.

    Follows: v1.36, pkg/kubelet/lifecycle/{predicate,handlers}.go; pkg/kubelet/sysctl/allowlist.go.
    Departs: what is not judged has the reason `Undecided`, which the kubelet does not know.
    """
    if isinstance(reason, CPUReason):
        return _of_cpus(reason)
    if isinstance(reason, DeviceReason):
        return _of_devices(reason)
    if isinstance(reason, EvictionReason):
        return Message(EVICTED, eviction_message(reason))
    if isinstance(reason, MemoryReason):
        return _of_allocation(memory_message(reason), memory_error_type(reason))
    if isinstance(reason, ResizeReason):
        return Message(resize_reason(reason), resize_message(reason))
    if isinstance(reason, TopologyReason):
        return Message(*topology_message(reason))
    if isinstance(reason, StateFileReason):
        # No pod is told of it: the kubelet does not start.
        return Message("", state_message(reason))
    if isinstance(reason, StartReason):
        return Message("", start_message(reason))
    return _of_admission(reason)


def start_error(reason: Reason) -> str:
    """The error with which the kubelet ends when it cannot start because of this.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager.
    """
    if isinstance(reason, CPUReason):
        return cpu_message(reason)
    if isinstance(reason, MemoryReason):
        return memory_message(reason)
    return message(reason).message


def fatal_error(reason: Reason) -> str:
    """The error that a kubelet which ends because of this leaves in its log.

    Follows: v1.36, cm/container_manager_linux.go, Start; pkg/kubelet/kubelet.go, initializeRuntimeDependentModules;
        cmd/kubelet/app/server.go, Run.
    """
    if isinstance(reason, MachineFault | PolicyFault | MemoryPolicyFault | TopologyReason):
        return f"failed to run Kubelet: {start_error(reason)}"
    manager = ""
    if isinstance(reason, StateFault | StateContainerUnknown | StateCPUsUnreadable):
        manager = "cpu"
    elif isinstance(reason, MemoryStateFault):
        manager = "memory"
    elif isinstance(reason, StateFileDamaged | StatePolicyDiffers):
        manager = {StateFile.CPU: "cpu", StateFile.MEMORY: "memory"}.get(reason.file, "")
    error = start_error(reason)
    return f"start {manager} manager error: {error}" if manager else error


def _of_admission(reason: AdmissionReason) -> Message:
    match reason:
        case NodeUnavailable():
            return Message("InvalidNodeInfo", "Kubelet cannot get node info.")
        case OSLabelMismatch():
            return Message(
                "PodOSSelectorNodeLabelDoesNotMatch",
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            )
        case OSFieldMismatch():
            return Message("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
        case SupplementalGroupsPolicyUnsupported(policy=policy):
            return Message(
                "SupplementalGroupsPolicyNotSupported",
                f"SupplementalGroupsPolicy={policy} is not supported in this node",
            )
        case PluginUpdateFailed(error=error):
            return _unexpected(f"Update plugin resources failed due to {error}, which is unexpected.")
        case InsufficientResource(resource=name, requested=asked, used=used, capacity=capacity):
            return Message(
                f"OutOf{name}",
                f"Node didn't have enough resource: {name}, "
                f"requested: {asked}, used: {used}, capacity: {capacity}",
            )
        case (
            NodeAffinityMismatch()
            | NodeNameMismatch()
            | HostPortsTaken()
            | UntoleratedTaints()
            | OtherPredicate()
        ):
            failed = predicate(reason)
            return Message(failed.predicate, f"Predicate {failed.predicate} failed: {failed.description}")
        case NoVictimsSuffice():
            return _unexpected(
                "Unexpected error while attempting to recover from admission failure: "
                + preemption_error(reason)
            )
        case SysctlForbidden(sysctl=name, host_namespace=shared):
            why = f"not allowed with host {shared} enabled" if shared else "not allowlisted"
            return Message("SysctlForbidden", f'forbidden sysctl: "{name}" {why}')
        case PodLevelResourcesDisabled():
            return Message("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")
        case NodeFeaturesMissing(features=features):
            return Message(
                "PodFeatureUnsupported",
                f"Pod requires node features that are not available: {', '.join(features)}",
            )
        case NotJudged(what=what, because=because):
            return Message("Undecided", f"{what} is not judged: {because}")
        case _:
            assert_never(reason)


def predicate(failure: PredicateFailure) -> OtherPredicate:
    """The name and description that the kubelet has for a failure; of a shortage, those it would log.

    Follows: v1.36, pkg/scheduler/framework/plugins/{nodeaffinity,nodename,nodeports,tainttoleration}.
    """
    match failure:
        case InsufficientResource(resource=name):
            return OtherPredicate(predicate=f"OutOf{name}", description=f"Insufficient {name}")
        case NodeAffinityMismatch():
            name, why = "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"
        case NodeNameMismatch():
            name, why = "NodeName", "node(s) didn't match the requested node name"
        case HostPortsTaken():
            name, why = "NodePorts", "node(s) didn't have free ports for the requested pod ports"
        case UntoleratedTaints():
            name, why = "TaintToleration", "node(s) had taints that the pod didn't tolerate"
        case OtherPredicate():
            return failure
        case _:
            assert_never(failure)
    return OtherPredicate(predicate=name, description=why)


def preemption_error(reason: NoVictimsSuffice) -> str:
    """The error with which the kubelet's preemption gives up.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, evictPodsToFreeRequests, toString.

    >>> preemption_error(NoVictimsSuffice(unmet=(("cpu", 100), ("pods", 1)))).partition("resources: ")[2]
    '[(res: cpu, q: 100), (res: pods, q: 1), ]'
    """
    unmet = "".join(f"(res: {name}, q: {amount}), " for name, amount in reason.unmet)
    return (
        "preemption: error finding a set of pods to preempt: "
        f"no set of running pods found to reclaim resources: [{unmet}]"
    )


def _of_cpus(reason: CPUReason) -> Message:
    """What becomes of a pod that the CPU manager fails.

    Follows: v1.36, cm/admission/errors.go, GetPodAdmitResult.
    Departs: a kubelet that hangs or crashes says nothing; the reason is then the name of what it does.
    """
    text = cpu_message(reason)
    if isinstance(reason, KubeletHangs | KubeletCrashes):
        return Message(type(reason).__name__, text)
    return _of_allocation(text, cpu_error_type(reason))


def _of_allocation(text: str, error_type: str | None) -> Message:
    """What becomes of a pod that a resource manager fails.

    Follows: v1.36, cm/admission/errors.go, GetPodAdmitResult.
    """
    if error_type is not None:
        return Message(error_type, text)
    return _unexpected(f"Allocate failed due to {text}, which is unexpected")


def _of_devices(reason: DeviceReason) -> Message:
    """What becomes of a pod that the device manager fails; of one that crashes the kubelet as above."""
    text = device_message(reason)
    if isinstance(reason, DeviceUnlisted):
        return Message("KubeletCrashes", text)
    return _unexpected(f"Allocate failed due to {text}, which is unexpected")


def _unexpected(text: str) -> Message:
    return Message("UnexpectedAdmissionError", text)
