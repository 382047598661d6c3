"""A kubelet's root directory: its configuration, its state files, and the pods that it keeps directories for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from nodewright.core.cpu.state import CPUState
from nodewright.core.memory.state import MemoryState
from nodewright.model.state_reasons import StateFile
from nodewright.model.verdict import Verdict
from nodewright.world.errors import Fault, InputError
from nodewright.world.kubelet_config import (
    Host,
    LoadedConfig,
    config_document,
    kubelet_config_from,
    load_kubelet_config,
)
from nodewright.world.state.cpu import ContainerName, CPUStateReading, read_cpu_state
from nodewright.world.state.devices import DeviceFile, read_device_state
from nodewright.world.state.memory import MemoryStateReading, read_memory_state
from nodewright.world.state.resources import PodResources, read_resources_state

T = TypeVar("T")

USUAL_ROOT = Path("/var/lib/kubelet")
CONFIG_FILE = "config.yaml"
DEVICE_PLUGINS = "device-plugins"
PODS = "pods"
_TYPE_META = ("apiVersion", "kind")
_POD_LEVEL = "PodLevelResourceManagers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Present(Generic[T]):
    """A state file that is there."""

    path: str
    content: bytes
    read: Verdict[T]
    """What the kubelet of this directory takes it for, or what it says against it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletRoot:
    """What stands in the directory; None: the file is not there."""

    directory: str
    config_file: str | None
    """Where the configuration was read."""
    configuration: Mapping[str, Any]
    """The configuration as it is written; with drop-ins complete, as the kubelet merges them. Without its type."""
    loaded: LoadedConfig
    """The same with the kubelet's defaults."""
    cpu: Present[CPUState] | None = None
    memory: Present[MemoryState] | None = None
    devices: Present[DeviceFile] | None = None
    allocated: Present[dict[str, PodResources]] | None = None
    """The resources that pods were let in with, last resizes included."""
    actuated: Present[dict[str, PodResources]] | None = None
    """The resources that the runtime was told of last."""
    pods: tuple[str, ...] = ()
    """The uids of the pods that have directories; some may have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RootReading:
    """How a root directory is read, where not everything stands at its usual place."""

    config: Path | None = None
    """The configuration's file (`kubelet --config`); None: config.yaml in the directory, if it is there."""
    config_dir: Path | None = None
    """The directory of drop-ins (`kubelet --config-dir`)."""
    running: Mapping[str, ContainerName] = field(default_factory=dict)
    """The containers that the runtime has, by id: CPU files of the oldest format name no others."""
    host: Host | None = None
    """What of the machine the configuration is checked against."""
    configuration: Mapping[str, Any] | None = None
    """The configuration itself, where it is known from elsewhere; files of it are not looked at then."""


def read_kubelet_root(directory: Path = USUAL_ROOT, reading: RootReading | None = None) -> KubeletRoot:
    """What stands in the directory. Nothing is written.

    State files are read under the configuration's policies and gates; a file that the kubelet would not take
    is a refusal in its place. Without a configuration, the kubelet's defaults count.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager; cm/devicemanager/types.go;
        allocation/allocation_manager.go, kuberuntime/kuberuntime_manager.go: where the files are.
    Errors:  InputError with everything that cannot be read, and where the configuration is none to start with.
    """
    reading = reading or RootReading()
    if not directory.is_dir():
        raise InputError([Fault(rule="no such directory", source=str(directory))])
    looking = _Looking()
    told = reading.configuration
    config = reading.config or (None if told is not None else _if_there(directory / CONFIG_FILE, looking))
    found = _Contents(
        cpu=looking.content(directory / StateFile.CPU),
        memory=looking.content(directory / StateFile.MEMORY),
        devices=looking.content(directory / DEVICE_PLUGINS / StateFile.DEVICES),
        allocated=looking.content(directory / StateFile.ALLOCATED),
        actuated=looking.content(directory / StateFile.ACTUATED),
    )
    pods = looking.names(directory / PODS)
    try:
        loaded = (
            load_kubelet_config(config, config_dir=reading.config_dir, host=reading.host)
            if told is None
            else kubelet_config_from(told, "the kubelet's configuration", host=reading.host)
        )
    except InputError as error:
        raise InputError([*looking.faults, *error.faults]) from None
    if looking.faults:
        raise InputError(looking.faults)
    return _understood(directory, found, loaded, reading, (config, pods))


_Content = tuple[str, bytes] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """The state files as they are, with their paths."""

    cpu: _Content
    memory: _Content
    devices: _Content
    allocated: _Content
    actuated: _Content


def _understood(
    directory: Path,
    found: _Contents,
    loaded: LoadedConfig,
    reading: RootReading,
    beside: tuple[Path | None, tuple[str, ...]],
) -> KubeletRoot:
    """The directory with its files read as this configuration has it."""
    config, pods = beside
    pod_level = loaded.gates[_POD_LEVEL]

    def cpus(content: bytes, path: str) -> Verdict[CPUState]:
        policy = loaded.config.cpu_manager_policy
        how = CPUStateReading(path=path, policy=policy, pod_level=pod_level, running=reading.running)
        return read_cpu_state(content, how)

    def memory(content: bytes, path: str) -> Verdict[MemoryState]:
        policy = loaded.config.memory_manager_policy
        return read_memory_state(content, MemoryStateReading(path=path, policy=policy, pod_level=pod_level))

    def actuated(content: bytes, path: str) -> Verdict[dict[str, PodResources]]:
        return read_resources_state(content, path, file=StateFile.ACTUATED)

    document = reading.configuration
    if document is None:
        document = config_document(config, config_dir=reading.config_dir)
    return KubeletRoot(
        directory=str(directory),
        config_file=str(config) if config else None,
        configuration={name: value for name, value in document.items() if name not in _TYPE_META},
        loaded=loaded,
        cpu=_present(found.cpu, cpus),
        memory=_present(found.memory, memory),
        devices=_present(found.devices, read_device_state),
        allocated=_present(found.allocated, read_resources_state),
        actuated=_present(found.actuated, actuated),
        pods=pods,
    )


def _present(found: _Content, read: Callable[[bytes, str], Verdict[T]]) -> Present[T] | None:
    if found is None:
        return None
    path, content = found
    return Present(path=path, content=content, read=read(content, path))


@dataclass(slots=True)
class _Looking:
    """What cannot be read by now."""

    faults: list[Fault] = field(default_factory=list)

    def content(self, path: Path) -> _Content:
        """The file's content; None if there is no such file, or it cannot be read."""
        try:
            return str(path), path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._cannot(path, error)
            return None

    def names(self, path: Path) -> tuple[str, ...]:
        """The directories within a directory."""
        try:
            return tuple(sorted(one.name for one in path.iterdir() if one.is_dir()))
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._cannot(path, error)
            return ()

    def _cannot(self, path: Path, error: OSError) -> None:
        hint = " (most kubelets' files are root's own)" if isinstance(error, PermissionError) else ""
        self.faults.append(Fault(rule=f"cannot be read: {error.strerror}{hint}", source=str(path)))


def _if_there(path: Path, looking: _Looking) -> Path | None:
    return path if looking.content(path) else None
