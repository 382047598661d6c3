"""The facts that keep a kubelet from starting with its state files."""

from enum import StrEnum
from typing import TypeAlias

import msgspec


class StateFile(StrEnum):
    """The files in which the kubelet's resource managers keep who has what."""

    CPU = "cpu_manager_state"
    MEMORY = "memory_manager_state"
    DEVICES = "kubelet_internal_checkpoint"
    ALLOCATED = "allocated_pods_state"
    ACTUATED = "actuated_pods_state"


class FormatTried(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks against reading a file in one of its formats."""

    version: int
    error: str
    """The kubelet's words."""
    checksum: int | None = None
    """Where only the checksum is wrong: the one in the file."""
    computed: int | None = None
    """And the one of the file's content."""


class StateFileDamaged(msgspec.Struct, frozen=True, kw_only=True):
    """The file fits none of its formats: torn, edited by hand, or of another kubelet."""

    file: StateFile
    path: str
    tried: tuple[FormatTried, ...]
    """The formats in the order in which the kubelet tries them; it tells the last error only."""


class StatePolicyDiffers(msgspec.Struct, frozen=True, kw_only=True):
    """The file was written under another policy than the configured one."""

    file: StateFile
    path: str
    configured: str
    written: str


class StateContainerUnknown(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the oldest format names a container, by its id, that is not there any more."""

    path: str
    container_id: str


class StateCPUsUnreadable(msgspec.Struct, frozen=True, kw_only=True):
    """A set of CPUs in the file is none; without a pod it is that of the shared pool."""

    path: str
    cpus: str
    error: str
    """What Go's parser says against it."""
    pod: str = ""
    container: str = ""


class StateEntryNull(msgspec.Struct, frozen=True, kw_only=True):
    """The kubelet crashes on reading the file: it has null where a NUMA node's memory should be."""

    path: str
    numa: int
    resource: str
    """The kind of memory; empty: the whole node is null."""


StateFileReason: TypeAlias = (
    StateFileDamaged | StatePolicyDiffers | StateContainerUnknown | StateCPUsUnreadable | StateEntryNull
)
