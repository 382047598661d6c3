"""The kubelet's own texts for what the memory manager finds."""

from typing import assert_never

from nodewright.model import memory_reasons as memory
from nodewright.values.golang import quoted

PREFIX = "[memorymanager] "


def memory_message(reason: memory.MemoryReason) -> str:
    """The text of the kubelet's error, to the byte; ours where the kubelet crashes or says nothing."""
    if isinstance(reason, memory.MemoryPolicyFault):
        return _policy(reason)
    if isinstance(reason, memory.MemoryStateFault):
        return PREFIX + _state(reason)
    if isinstance(reason, memory.MemoryPlaced):
        return f"memory placed on NUMA nodes {reason.numa}"
    return _refusal(reason)


def _policy(reason: memory.MemoryPolicyFault) -> str:
    match reason:
        case memory.MemoryPolicyUnknown(policy=policy):
            return f"unknown policy: {quoted(policy)}"
        case memory.MemoryPolicyNotOnLinux(policy=policy):
            return f'policy {quoted(policy)} is not available for platform "linux"'
        case memory.ReservedMemoryElsewhere(numa=numa):
            return (
                f"the reserved memory configuration references a NUMA node {numa} "
                "that does not exist on this machine"
            )
        case memory.ReservedMemoryDiffers(resource=resource, over_numa=ours, node_allocatable=theirs):
            return (
                f"the total amount {quoted(str(ours))} of type {quoted(resource)} is not equal to the value "
                f"{quoted(str(theirs))} determined by Node Allocatable feature"
            )
        case memory.ReservedMemoryInexact():
            return "could not covert a variable of type Quantity to int64"
        case memory.NoReservedMemory():
            return f"{PREFIX}you should specify the system reserved memory"
        case _:
            assert_never(reason)


def _state(reason: memory.MemoryStateFault) -> str:
    match reason:
        case memory.MemoryAssignedWithoutMachine():
            return "machine state can not be empty when it has memory assignments"
        case memory.MemoryAssignedElsewhere(pod=pod, container=container):
            return f"(pod: {pod}, container: {container}) the memory assignment uses the NUMA that does not exist"
        case memory.MemoryTypeNotThere(pod=pod, container=container):
            return (
                f"(pod: {pod}, container: {container}) the memory assignment uses memory resource "
                "that does not exist"
            )
        case memory.MachineMemoryChanged():
            return "the expected machine state is different from the real one"
        case _:
            assert_never(reason)


def _refusal(reason: memory.MemoryRefusal) -> str:
    match reason:
        case memory.MemoryRequestInexact():
            problem = "failed to represent quantity as int64"
        case memory.NoNUMAFits():
            problem = "failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
        case memory.AffinityCannotGrow():
            problem = "failed to find NUMA nodes to extend the current topology hint"
        case memory.DefaultNotPreferred():
            problem = "failed to find the default preferred hint"
        case memory.ExtensionNotPreferred():
            problem = "failed to find the extended preferred hint"
        case memory.GroupViolated():
            problem = "preferred hint violates NUMA node allocation"
        case memory.PodSharedMemoryEmpty(resource=resource, init=True):
            return f"pod rejected, pod has shared init containers but no {resource} available for them"
        case memory.PodSharedMemoryEmpty(resource=resource):
            return (
                f"pod rejected, sum of exclusive container {resource} requests equals pod budget, "
                "leaving no memory for shared containers"
            )
        case memory.MemoryTypeMissing(numa=numa, resource=resource):
            return f"the kubelet crashes: NUMA node {numa} lists no {resource}"
        case _:
            assert_never(reason)
    return PREFIX + problem


def memory_error_type(reason: memory.MemoryReason) -> str | None:
    """The type that the kubelet gives the error, which becomes the pod's reason; None: it gives none.

    Follows: v1.36, memorymanager/policy_static.go, AllocatePod; cm/admission/errors.go.
    Departs: a kubelet that crashes says nothing; the reason is then `KubeletCrashes`.
    """
    if isinstance(reason, memory.PodSharedMemoryEmpty):
        return "EmptyPodSharedPoolError"
    if isinstance(reason, memory.MemoryRequestInexact) and reason.in_pod:
        return "EmptyPodSharedPoolError"
    return "KubeletCrashes" if isinstance(reason, memory.MemoryTypeMissing) else None
