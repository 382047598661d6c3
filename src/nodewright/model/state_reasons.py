"""The facts that keep a kubelet from starting with its state files."""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class StateFile(StrEnum):
    """The files in which the kubelet's resource managers keep who has what."""

    CPU = "cpu_manager_state"
    MEMORY = "memory_manager_state"
    DEVICES = "kubelet_internal_checkpoint"
    ALLOCATED = "allocated_pods_state"
    ACTUATED = "actuated_pods_state"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatTried:
    """What speaks against reading a file in one of its formats."""

    version: int
    error: str
    """The kubelet's words."""
    checksum: int | None = None
    """Where only the checksum is wrong: the one in the file."""
    computed: int | None = None
    """And the one of the file's content."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateFileDamaged:
    """The file fits none of its formats: torn, edited by hand, or of another kubelet."""

    file: StateFile
    path: str
    tried: tuple[FormatTried, ...]
    """The formats in the order in which the kubelet tries them; it tells the last error only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePolicyDiffers:
    """The file was written under another policy than the configured one."""

    file: StateFile
    path: str
    configured: str
    written: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateContainerUnknown:
    """A file of the oldest format names a container, by its id, that is not there any more."""

    path: str
    container_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StateCPUsUnreadable:
    """A set of CPUs in the file is none; without a pod it is that of the shared pool."""

    path: str
    cpus: str
    error: str
    """What Go's parser says against it."""
    pod: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateEntryNull:
    """The kubelet crashes on reading the file: it has null where a NUMA node's memory should be."""

    path: str
    numa: int
    resource: str
    """The kind of memory; empty: the whole node is null."""


StateFileReason: TypeAlias = (
    StateFileDamaged | StatePolicyDiffers | StateContainerUnknown | StateCPUsUnreadable | StateEntryNull
)
