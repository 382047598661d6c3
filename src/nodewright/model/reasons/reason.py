"""The closed list of facts that decide. Those that no resource manager produces are defined in this module.

Also their texts: the kubelet's, byte for byte, and a sentence of ours.

Follows: v1.36, pkg/kubelet/lifecycle/{predicate,handlers}.go; pkg/kubelet/sysctl/allowlist.go.
"""

from typing import TypeAlias

from nodewright.model.reasons.api_server import APIServerRefusal
from nodewright.model.reasons.cpu import CPUMachineFault, CPUPolicyFault, CPUReason, CPUStateFault
from nodewright.model.reasons.devices import DeviceReason
from nodewright.model.reasons.eviction import EvictionReason
from nodewright.model.reasons.fact import Fact, KubeletText, ManagerFact, unexpected_admission_error
from nodewright.model.reasons.kubelet_start import (
    StartReason,
    StateContainerUnknown,
    StateCPUsUnreadable,
    StateFile,
    StateFileDamaged,
    StateFileReason,
    StatePolicyDiffers,
)
from nodewright.model.reasons.memory import MemoryPolicyFault, MemoryReason, MemoryStateFault
from nodewright.model.reasons.predicates import NoVictimsSuffice, PredicateFailure
from nodewright.model.reasons.resize import ResizeReason
from nodewright.model.reasons.topology import TopologyReason
from nodewright.model.values.golang import quoted


class NodeUnavailable(Fact, frozen=True, kw_only=True):
    """The node object is not available."""

    error: str

    def kubelet(self) -> KubeletText:
        return KubeletText("InvalidNodeInfo", "Kubelet cannot get node info.")

    def sentence(self) -> str:
        return f"the node object is not available: {self.error}"


class OSLabelMismatch(Fact, frozen=True, kw_only=True):
    """The pod's label `kubernetes.io/os` names another operating system than the kubelet's."""

    wanted: str
    actual: str

    def kubelet(self) -> KubeletText:
        return KubeletText(
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
        )

    def sentence(self) -> str:
        return f"the pod's label kubernetes.io/os is {self.wanted}, this kubelet runs on {self.actual}"


class OSFieldMismatch(Fact, frozen=True, kw_only=True):
    """`spec.os.name` names another operating system than the kubelet's."""

    wanted: str
    actual: str

    def kubelet(self) -> KubeletText:
        return KubeletText("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")

    def sentence(self) -> str:
        return f"spec.os.name is {self.wanted}, this kubelet runs on {self.actual}"


class SidecarForbidden(Fact, frozen=True, kw_only=True):
    """The pod has a restartable init container, and the gate SidecarContainers is off."""

    container: str

    def kubelet(self) -> KubeletText:
        return KubeletText(
            "InitContainerRestartPolicyForbidden",
            f"Init container {quoted(self.container)} may not have a non-default restartPolicy",
        )

    def sentence(self) -> str:
        return (
            f"init container {self.container} is a sidecar, and the kubelet's gate SidecarContainers is off"
        )


class SupplementalGroupsPolicyUnsupported(Fact, frozen=True, kw_only=True):
    """The pod requires `supplementalGroupsPolicy: Strict`, which the node does not declare."""

    policy: str

    def kubelet(self) -> KubeletText:
        return KubeletText(
            "SupplementalGroupsPolicyNotSupported",
            f"SupplementalGroupsPolicy={self.policy} is not supported in this node",
        )

    def sentence(self) -> str:
        return f"supplementalGroupsPolicy is {self.policy}, which the node's runtime does not declare"


class PluginUpdateFailed(Fact, frozen=True, kw_only=True):
    """The device manager could not update the plugin resources."""

    error: str

    def kubelet(self) -> KubeletText:
        return unexpected_admission_error(
            f"Update plugin resources failed due to {self.error}, which is unexpected."
        )

    def sentence(self) -> str:
        return f"the device manager could not update its resources: {self.error}"


class SysctlForbidden(Fact, frozen=True, kw_only=True):
    """The pod sets a sysctl that the kubelet does not allow."""

    sysctl: str
    host_namespace: str = ""
    """`Net` or `IPC`: the sysctl is allowed only for pods that do not share this namespace with the host."""

    def kubelet(self) -> KubeletText:
        why = (
            f"not allowed with host {self.host_namespace} enabled"
            if self.host_namespace
            else "not allowlisted"
        )
        return KubeletText("SysctlForbidden", f'forbidden sysctl: "{self.sysctl}" {why}')

    def sentence(self) -> str:
        if not self.host_namespace:
            return f"sysctl {self.sysctl} is neither safe nor among allowedUnsafeSysctls"
        return (
            f"sysctl {self.sysctl} cannot be set by a pod that shares the host's "
            f"{self.host_namespace} namespace"
        )


class AppArmorNotEnabled(Fact, frozen=True, kw_only=True):
    """The pod has an AppArmor profile, which the node's kernel does not enforce."""

    def kubelet(self) -> KubeletText:
        return KubeletText("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")

    def sentence(self) -> str:
        return "the pod has an AppArmor profile and AppArmor is not enabled on the node"


class PodLevelResourcesDisabled(Fact, frozen=True, kw_only=True):
    """The pod has pod-level resources, and the gate PodLevelResources is off."""

    def kubelet(self) -> KubeletText:
        return KubeletText("PodLevelResourcesNotSupported", "PodLevelResources feature gate is disabled")

    def sentence(self) -> str:
        return "the pod has pod-level resources and the feature gate PodLevelResources is off"


class NodeFeaturesMissing(Fact, frozen=True, kw_only=True):
    """The pod needs features that the node does not declare."""

    features: tuple[str, ...]

    def kubelet(self) -> KubeletText:
        return KubeletText(
            "PodFeatureUnsupported",
            f"Pod requires node features that are not available: {', '.join(self.features)}",
        )

    def sentence(self) -> str:
        return f"the node does not declare features that the pod needs: {', '.join(self.features)}"


class NotJudged(Fact, frozen=True, kw_only=True):
    """Something that affects the decision is not modelled or not known, so the decision is open.

    Departs: the reason `Undecided` does not exist in the kubelet.
    """

    what: str
    """The part of the kubelet, e.g. `cpu manager`."""
    because: str
    """The setting or fact that makes it relevant, e.g. `cpuManagerPolicy: static`."""

    def kubelet(self) -> KubeletText:
        return KubeletText("Undecided", f"{self.what} is not judged: {self.because}")

    def sentence(self) -> str:
        return f"not judged: {self.what} ({self.because})"


AdmissionReason: TypeAlias = (
    PredicateFailure
    | NodeUnavailable
    | OSLabelMismatch
    | OSFieldMismatch
    | SidecarForbidden
    | SupplementalGroupsPolicyUnsupported
    | PluginUpdateFailed
    | NoVictimsSuffice
    | SysctlForbidden
    | AppArmorNotEnabled
    | PodLevelResourcesDisabled
    | NodeFeaturesMissing
    | NotJudged
    | APIServerRefusal
)
"""What decides without any resource manager."""

Reason: TypeAlias = (
    AdmissionReason
    | CPUReason
    | DeviceReason
    | EvictionReason
    | MemoryReason
    | ResizeReason
    | TopologyReason
    | StateFileReason
    | StartReason
)


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
