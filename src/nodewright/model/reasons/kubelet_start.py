"""Why a kubelet does not start, independently of its state files or with them.

Follows: v1.36, {cpumanager,memorymanager}/state/state_checkpoint.go, NewCheckpointState, restoreState;
    pkg/kubelet/allocation/state/state_checkpoint.go, NewStateCheckpoint.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import TypeAlias

import msgspec

from nodewright.model.reasons.fact import StartFact
from nodewright.model.values.golang import quoted
from nodewright.model.values.quantity import Quantity


class ConfigurationRefused(StartFact, frozen=True, kw_only=True):
    """The kubelet rejects its configuration."""

    path: str
    """The field; empty: no particular field."""
    error: str
    """The kubelet's error."""

    def kubelet_error(self) -> str:
        return self.error

    def sentence(self) -> str:
        return f"{self.path}: {self.error}" if self.path else self.error


class OverReserved(msgspec.Struct, frozen=True, kw_only=True):
    """More of a resource is reserved than its capacity: the kubelet does not start."""

    resource: str
    reservation: Quantity
    capacity: Quantity

    def sentence(self) -> str:
        """The fact in words, without a full stop."""
        excess = self.reservation - self.capacity
        return (
            f"{self.resource}: {self.reservation} reserved of {self.capacity}, {excess} too much; "
            "the kubelet does not start"
        )


class ReservedBeyondCapacity(StartFact, frozen=True, kw_only=True):
    """More of these resources is reserved than their capacity; the kubelet checks this after its managers start."""

    over: tuple[OverReserved, ...]

    def kubelet_error(self) -> str:
        return over_reservation_message(self.over)

    def sentence(self) -> str:
        return "; ".join(over.sentence() for over in self.over)


class SwapOn(StartFact, frozen=True, kw_only=True):
    """The machine has swap, with which `failSwapOn` lets no kubelet start."""

    swap_bytes: int

    def kubelet_error(self) -> str:
        return (
            "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
        )

    def sentence(self) -> str:
        return f"the machine has {self.swap_bytes} bytes of swap, and failSwapOn is true"


StartReason: TypeAlias = ConfigurationRefused | ReservedBeyondCapacity | SwapOn


def over_reservation_message(over: Iterable[OverReserved]) -> str:
    """The kubelet's error when more is reserved than the capacity.

    Follows: v1.36, kubelet/cm/node_container_manager_linux.go, validateNodeAllocatable.
    Departs: resources by name, where the kubelet iterates over a map; it prints amounts as Go prints the structure,
        and so do we, except those beyond 64 bits, where it prints an address.
    """
    faults = (
        f'Resource "{excess.resource}" has a reservation of {_go_struct(excess.reservation)} '
        f"but capacity of {_go_struct(excess.capacity)}. Expected capacity >= reservation."
        for excess in over
    )
    return f"invalid Node Allocatable configuration. {' '.join(faults)}"


class StateFile(StrEnum):
    """The files in which the kubelet's resource managers keep their assignments."""

    CPU = "cpu_manager_state"
    MEMORY = "memory_manager_state"
    DEVICES = "kubelet_internal_checkpoint"
    ALLOCATED = "allocated_pods_state"
    ACTUATED = "actuated_pods_state"
    STATUS_MANAGER = "pod_status_manager_state"


class FormatTried(msgspec.Struct, frozen=True, kw_only=True):
    """Why a file cannot be read in one of its formats."""

    version: int
    error: str
    """The kubelet's error."""
    member: str = "checksum"
    """The member with the checksum: `dataChecksum` is that of `data` alone."""
    checksum: int | None = None
    """The checksum in the file, if only the checksum is wrong."""
    computed: int | None = None
    """The checksum of the file's content, if only the checksum is wrong."""


class StateFileDamaged(StartFact, frozen=True, kw_only=True):
    """The file has none of its formats: truncated, edited by hand, or written by another kubelet."""

    file: StateFile
    path: str
    tried: tuple[FormatTried, ...]
    """The formats in the order in which the kubelet tries them; it reports only the last error."""

    def kubelet_error(self) -> str:
        error = self.tried[-1].error
        # The kubelet starts in spite of a damaged file of the device manager.
        return error if self.file is StateFile.DEVICES else _restore(error, self.file, self.path)

    def sentence(self) -> str:
        newest = self.tried[0]
        if newest.computed is None:
            return f"{self.path}: damaged: {newest.error}"
        differs = (
            f"{self.path}: the {newest.member} is {newest.checksum}, that of the content is {newest.computed}"
        )
        if self.file not in (StateFile.CPU, StateFile.MEMORY) or newest.member != "checksum":
            return f"{differs}: damaged or edited by hand"
        return f"{differs}: damaged, edited by hand, or written by a kubelet with other feature gates"


class StatePolicyDiffers(StartFact, frozen=True, kw_only=True):
    """The file was written under a policy that differs from the configured one."""

    file: StateFile
    path: str
    configured: str
    written: str

    def kubelet_error(self) -> str:
        prefix = "[memorymanager] " if self.file is StateFile.MEMORY else ""
        error = (
            f"{prefix}configured policy {quoted(self.configured)} differs from state checkpoint policy "
            f"{quoted(self.written)}"
        )
        return _restore(error, self.file, self.path)

    def sentence(self) -> str:
        return (
            f"{self.path}: written under the policy {self.written}, "
            f"the kubelet is configured to {self.configured}"
        )


class StateContainerUnknown(StartFact, frozen=True, kw_only=True):
    """A file of the oldest format names a container id that no longer exists."""

    path: str
    container_id: str
    by_old_kubelet: bool = False
    """Whether a kubelet without pod entries reads it, which words the error differently."""

    def kubelet_error(self) -> str:
        unknown = f"containerID '{self.container_id}' not found in initial containers list"
        failure = "failed to migrate checkpoint from v1 to v2"
        if self.by_old_kubelet:
            failure = "error migrating v1 checkpoint state to v2 checkpoint state"
        return _restore(f"{failure}: {unknown}", StateFile.CPU, self.path)

    def sentence(self) -> str:
        return f"{self.path}: in the oldest format, and its container {self.container_id} no longer runs"


class StateCPUsUnreadable(StartFact, frozen=True, kw_only=True):
    """A CPU set in the file cannot be parsed; without a pod it is that of the shared pool."""

    path: str
    cpus: str
    error: str
    """The error of Go's parser."""
    pod: str = ""
    container: str = ""
    capitalizes_cpu: bool = False
    """Whether a kubelet that writes `data` reads the file, which words the error about the shared pool differently."""

    def kubelet_error(self) -> str:
        if self.pod:
            holder = f"container {quoted(self.container)} in pod {quoted(self.pod)}"
            error = f"could not parse cpuset {quoted(self.cpus)} for {holder}: {self.error}"
        else:
            cpu = "CPU" if self.capitalizes_cpu else "cpu"
            error = f"could not parse default {cpu} set {quoted(self.cpus)}: {self.error}"
        return _restore(error, StateFile.CPU, self.path)

    def sentence(self) -> str:
        if self.pod:
            cpus = f"{quoted(self.cpus)} of container {self.container}, pod {self.pod},"
        else:
            cpus = f"the shared pool {quoted(self.cpus)}"
        return f"{self.path}: {cpus} is not a CPU set ({self.error})"


class StateEntryNull(StartFact, frozen=True, kw_only=True):
    """The kubelet crashes on reading the file: it has null where a NUMA node's memory should be.

    Departs: a kubelet that crashes prints Go's error and a stack trace; only the error is reproduced.
    """

    path: str
    numa: int
    resource: str
    """The memory type; empty: the whole node is null."""

    def kubelet_error(self) -> str:
        return "runtime error: invalid memory address or nil pointer dereference"

    def sentence(self) -> str:
        what = f"{self.resource} of NUMA node {self.numa}" if self.resource else f"NUMA node {self.numa}"
        return f"{self.path}: {what} is null: the kubelet crashes"


StateFileReason: TypeAlias = (
    StateFileDamaged | StatePolicyDiffers | StateContainerUnknown | StateCPUsUnreadable | StateEntryNull
)


def _go_struct(amount: Quantity) -> str:
    if not amount.is_int64:
        return str(amount)
    return f"{{{{{amount.unscaled} {amount.scale}}} {{<nil>}} {amount.original_text} {amount.format}}}"


_OWNERS = {
    StateFile.CPU: "the CPU manager",
    StateFile.MEMORY: "the memory manager",
    StateFile.ALLOCATED: "pod resource information",
    StateFile.ACTUATED: "pod resource information",
    StateFile.STATUS_MANAGER: "pod allocation",
}


def _restore(error: str, file: StateFile, path: str) -> str:
    return (
        f"could not restore state from checkpoint: {error}, please drain this node and delete "
        f"{_OWNERS[file]} checkpoint file {quoted(path)} before restarting Kubelet"
    )
