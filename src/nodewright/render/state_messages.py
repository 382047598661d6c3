"""What keeps a kubelet from starting with its state files: in its own words, and in plain ones."""

from typing import assert_never

from nodewright.model.state_reasons import (
    FormatTried,
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateEntryNull,
    StateFile,
    StateFileDamaged,
    StateFileReason,
    StatePolicyDiffers,
)
from nodewright.values.golang import quoted

_OF = {
    StateFile.CPU: "the CPU manager",
    StateFile.MEMORY: "the memory manager",
    StateFile.ALLOCATED: "pod resource information",
    StateFile.ACTUATED: "pod resource information",
}


def state_message(reason: StateFileReason) -> str:
    """The kubelet's error; it does not start with it, but for a file of the device manager.

    Follows: v1.36, {cpumanager,memorymanager}/state/state_checkpoint.go, NewCheckpointState, restoreState;
        pkg/kubelet/allocation/state/state_checkpoint.go, NewStateCheckpoint.
    Departs: a kubelet that crashes prints Go's words and where; here only the words.
    """
    if isinstance(reason, StateEntryNull):
        return "runtime error: invalid memory address or nil pointer dereference"
    text = _told(reason)
    if isinstance(reason, StateFileDamaged) and reason.file is StateFile.DEVICES:
        return text
    file = reason.file if isinstance(reason, StateFileDamaged | StatePolicyDiffers) else StateFile.CPU
    return (
        f"could not restore state from checkpoint: {text}, please drain this node and delete "
        f"{_OF[file]} checkpoint file {quoted(reason.path)} before restarting Kubelet"
    )


def _told(
    reason: StateFileDamaged | StatePolicyDiffers | StateContainerUnknown | StateCPUsUnreadable,
) -> str:
    match reason:
        case StateFileDamaged(tried=tried):
            return tried[-1].error
        case StatePolicyDiffers(file=file, configured=configured, written=written):
            by = "[memorymanager] " if file is StateFile.MEMORY else ""
            differ = f"configured policy {quoted(configured)} differs from state checkpoint policy"
            return f"{by}{differ} {quoted(written)}"
        case StateContainerUnknown(container_id=container_id):
            unknown = f"containerID '{container_id}' not found in initial containers list"
            return f"failed to migrate checkpoint from v1 to v2: {unknown}"
        case StateCPUsUnreadable(cpus=cpus, pod="", error=error):
            return f"could not parse default cpu set {quoted(cpus)}: {error}"
        case StateCPUsUnreadable(cpus=cpus, pod=pod, container=container, error=error):
            whose = f"container {quoted(container)} in pod {quoted(pod)}"
            return f"could not parse cpuset {quoted(cpus)} for {whose}: {error}"
        case _:
            assert_never(reason)


def state_sentence(reason: StateFileReason) -> str:
    """The reason in plain words, without a full stop."""
    match reason:
        case StateFileDamaged(file=file, path=path, tried=tried):
            return f"{path}: {_damage(file, tried[0])}"
        case StatePolicyDiffers(path=path, configured=configured, written=written):
            return f"{path}: written under the policy {written}, the kubelet is configured to {configured}"
        case StateContainerUnknown(path=path, container_id=container_id):
            return f"{path}: of the oldest format, and its container {container_id} does not run any more"
        case StateCPUsUnreadable(path=path, cpus=cpus, pod="", error=error):
            return f"{path}: the shared pool {quoted(cpus)} is no set of CPUs ({error})"
        case StateCPUsUnreadable(path=path, cpus=cpus, pod=pod, container=name, error=error):
            return f"{path}: {quoted(cpus)} of container {name}, pod {pod}, is no set of CPUs ({error})"
        case StateEntryNull(path=path, numa=numa, resource=resource):
            what = f"{resource} of NUMA node {numa}" if resource else f"NUMA node {numa}"
            return f"{path}: {what} is null: the kubelet crashes"
        case _:
            assert_never(reason)


def _damage(file: StateFile, newest: FormatTried) -> str:
    if newest.computed is None:
        return f"damaged: {newest.error}"
    differs = f"the checksum is {newest.checksum}, the content's is {newest.computed}"
    if file not in (StateFile.CPU, StateFile.MEMORY):
        return f"{differs}: damaged or edited by hand"
    return f"{differs}: damaged, edited by hand, or written by a kubelet with other feature gates"
