"""The texts of a reason: the kubelet's, byte for byte, and a sentence of ours."""

from nodewright.model.reasons.cpu_start import CPUMachineFault, CPUPolicyFault, CPUStateFault
from nodewright.model.reasons.fact import KubeletText, ManagerFact
from nodewright.model.reasons.memory import MemoryPolicyFault, MemoryStateFault
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.state_files import (
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateFile,
    StateFileDamaged,
    StatePolicyDiffers,
)
from nodewright.model.reasons.topology import TopologyReason


def sentence(reason: Reason) -> str:
    """The reason in words, without a full stop."""
    return reason.sentence()


def kubelet_text(reason: Reason) -> KubeletText:
    """The kubelet's reason and message for a pod that it rejects for this reason."""
    return reason.kubelet()


def kubelet_start_error(reason: Reason) -> str:
    """The error with which the kubelet ends when it cannot start for this reason.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager.
    """
    return reason.kubelet_error() if isinstance(reason, ManagerFact) else reason.kubelet().message


def kubelet_fatal_error(reason: Reason) -> str:
    """The error in the log of a kubelet that ends for this reason.

    Follows: v1.36, cm/container_manager_linux.go, Start; pkg/kubelet/kubelet.go, initializeRuntimeDependentModules;
        cmd/kubelet/app/server.go, Run.
    """
    if isinstance(reason, CPUMachineFault | CPUPolicyFault | MemoryPolicyFault | TopologyReason):
        return f"failed to run Kubelet: {kubelet_start_error(reason)}"
    manager = ""
    if isinstance(reason, CPUStateFault | StateContainerUnknown | StateCPUsUnreadable):
        manager = "cpu"
    elif isinstance(reason, MemoryStateFault):
        manager = "memory"
    elif isinstance(reason, StateFileDamaged | StatePolicyDiffers):
        manager = {StateFile.CPU: "cpu", StateFile.MEMORY: "memory"}.get(reason.file, "")
    error = kubelet_start_error(reason)
    return f"start {manager} manager error: {error}" if manager else error
