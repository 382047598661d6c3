"""Reads a kubelet's root directory: its configuration, its state files, and the uids of its pods."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.documents.files.regular_files import read_regular_file
from nodewright.documents.formats.go_checkpoint import has_data_members
from nodewright.documents.profiles.kubelet_config_files import (
    ConfigHost,
    LoadedConfig,
    config_document,
    kubelet_config_from,
    load_kubelet_config,
)
from nodewright.documents.profiles.state_files.cpu_manager_state import (
    ContainerName,
    CPUStateReadOptions,
    read_cpu_state,
)
from nodewright.documents.profiles.state_files.device_checkpoint import (
    DeviceCheckpoint,
    read_device_checkpoint,
)
from nodewright.documents.profiles.state_files.memory_manager_state import (
    MemoryStateReadOptions,
    read_memory_state,
)
from nodewright.documents.profiles.state_files.pod_resource_state import (
    RESOURCE_FILES,
    PodResourceInfo,
    read_resources_state,
    resource_files_read,
)
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.errors import Fault, InputError
from nodewright.model.reasons.kubelet_start import StateFile
from nodewright.model.reasons.verdict import Verdict
from nodewright.model.releases.release_rules import ReleaseRules

T = TypeVar("T")

DEFAULT_ROOT_DIRECTORY = Path("/var/lib/kubelet")
CONFIG_FILE = "config.yaml"
DEVICE_PLUGINS_DIRECTORY = "device-plugins"
PODS_DIRECTORY = "pods"
POD_RESOURCES_SOCKET = Path("pod-resources") / "kubelet.sock"
_TYPE_META = ("apiVersion", "kind")
_POD_LEVEL = "PodLevelResourceManagers"


class PresentStateFile(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """An existing state file."""

    path: str
    content: bytes
    verdict: Verdict[T]
    """The state that the kubelet of this directory reads from the file, or why it rejects it."""
    parts: tuple[Verdict[T], Verdict[T]] | None = None
    """Of a file with `data`: what is read of it, and what older kubelets read of the other members."""


class KubeletRoot(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the directory; None for missing files."""

    directory: str
    config_file: str | None
    """The file from which the configuration was read."""
    configuration: Mapping[str, Any]
    """The configuration as written; with drop-ins complete, as the kubelet merges them. Without apiVersion and kind."""
    loaded: LoadedConfig
    """The configuration with the kubelet's defaults."""
    cpu: PresentStateFile[CPUState] | None = None
    memory: PresentStateFile[MemoryState] | None = None
    devices: PresentStateFile[DeviceCheckpoint] | None = None
    allocated: PresentStateFile[dict[str, PodResourceInfo]] | None = None
    """The resources with which pods were admitted, including later resizes; None, too, if this kubelet reads none."""
    actuated: PresentStateFile[dict[str, PodResourceInfo]] | None = None
    """The resources that were last sent to the runtime."""
    resource_files: Mapping[StateFile, bytes] = msgspec.field(default_factory=dict)
    """The files with the resources of pods, whether this kubelet reads them or not; another release may."""
    pods: tuple[str, ...] = ()
    """The uids of the pods that have directories; some may have terminated."""


class RootReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for root directories with files at other than their default paths."""

    config: Path | None = None
    """The configuration file (`kubelet --config`); None: config.yaml in the directory, if it exists."""
    config_dir: Path | None = None
    """The directory of drop-ins (`kubelet --config-dir`)."""
    container_names: Mapping[str, ContainerName] = msgspec.field(default_factory=dict)
    """The runtime's containers by id: CPU state files of the oldest format name containers only by id."""
    host: ConfigHost | None = None
    """The machine facts that the configuration is validated against."""
    configuration: Mapping[str, Any] | None = None
    """The configuration, if it is known from elsewhere; configuration files are not read then."""


def read_kubelet_root(
    directory: Path = DEFAULT_ROOT_DIRECTORY, options: RootReadOptions | None = None
) -> KubeletRoot:
    """The content of the directory, which is not changed.

    State files are read under the configuration's policies and gates; for a file that the kubelet rejects, the
    verdict is a refusal. Without a configuration, the kubelet's defaults apply.

    Follows: v1.36, cm/container_manager_linux.go, NewContainerManager; cm/devicemanager/types.go;
        allocation/allocation_manager.go, kuberuntime/kuberuntime_manager.go: where the files are.
    Errors:  InputError with everything that cannot be read, or if the kubelet would not start with the configuration.
    """
    options = options or RootReadOptions()
    if not directory.is_dir():
        raise InputError([Fault(rule="no such directory", source=str(directory))])
    reader = _DirectoryReader()
    configuration = options.configuration
    config = options.config or (
        None if configuration is not None else _if_readable(directory / CONFIG_FILE, reader)
    )
    contents = _Contents(
        cpu=reader.content(directory / StateFile.CPU),
        memory=reader.content(directory / StateFile.MEMORY),
        devices=reader.content(directory / DEVICE_PLUGINS_DIRECTORY / StateFile.DEVICES),
        resources={file: reader.content(directory / file) for file in RESOURCE_FILES},
    )
    pods = reader.names(directory / PODS_DIRECTORY)
    try:
        loaded = (
            load_kubelet_config(config, config_dir=options.config_dir, host=options.host)
            if configuration is None
            else kubelet_config_from(configuration, "the kubelet's configuration", host=options.host)
        )
    except InputError as error:
        raise InputError([*reader.faults, *error.faults]) from None
    if reader.faults:
        raise InputError(reader.faults)
    return _kubelet_root(directory, contents, loaded, options, (config, pods))


_Content = tuple[str, bytes] | None


class _StateReading(msgspec.Struct, frozen=True):
    """How the managers' files are read."""

    rules: ReleaseRules
    pod_level: bool


class _Contents(msgspec.Struct, frozen=True, kw_only=True):
    """The raw state files, with their paths."""

    cpu: _Content
    memory: _Content
    devices: _Content
    resources: Mapping[StateFile, _Content]


def _kubelet_root(
    directory: Path,
    contents: _Contents,
    loaded: LoadedConfig,
    options: RootReadOptions,
    config_and_pods: tuple[Path | None, tuple[str, ...]],
) -> KubeletRoot:
    """The directory, with its state files read under this configuration."""
    config, pods = config_and_pods
    own = _StateReading(loaded.gates.rules, pod_level=loaded.gates[_POD_LEVEL])
    cpus = partial(_cpus, loaded=loaded, names=options.container_names)
    memory = partial(_memory, loaded=loaded)
    resources = _resources(contents, loaded)
    document = options.configuration
    if document is None:
        document = config_document(config, config_dir=options.config_dir)
    return KubeletRoot(
        directory=str(directory),
        config_file=str(config) if config else None,
        configuration={name: value for name, value in document.items() if name not in _TYPE_META},
        loaded=loaded,
        cpu=_with_parts(contents.cpu, cpus, own),
        memory=_with_parts(contents.memory, memory, own),
        devices=_present(contents.devices, read_device_checkpoint),
        allocated=resources.get(StateFile.ALLOCATED) or resources.get(StateFile.STATUS_MANAGER),
        actuated=resources.get(StateFile.ACTUATED),
        resource_files={file: content[1] for file, content in contents.resources.items() if content},
        pods=pods,
    )


def _resources(
    contents: _Contents, loaded: LoadedConfig
) -> dict[StateFile, PresentStateFile[dict[str, PodResourceInfo]] | None]:
    """The files with the resources of pods that this kubelet reads."""
    return {
        file: _present(contents.resources[file], partial(read_resources_state, file=file))
        for file in resource_files_read(loaded.gates)
    }


def _present(file: _Content, read: Callable[[bytes, str], Verdict[T]]) -> PresentStateFile[T] | None:
    if file is None:
        return None
    path, content = file
    return PresentStateFile(path=path, content=content, verdict=read(content, path))


def _cpus(
    content: bytes,
    path: str,
    reading: _StateReading,
    *,
    loaded: LoadedConfig,
    names: Mapping[str, ContainerName],
) -> Verdict[CPUState]:
    policy, gate = loaded.config.cpu_manager_policy, reading.pod_level
    options = CPUStateReadOptions(
        path=path, policy=policy, pod_level=gate, container_names=names, rules=reading.rules
    )
    return read_cpu_state(content, options)


def _memory(
    content: bytes, path: str, reading: _StateReading, *, loaded: LoadedConfig
) -> Verdict[MemoryState]:
    policy, gate = loaded.config.memory_manager_policy, reading.pod_level
    options = MemoryStateReadOptions(path=path, policy=policy, pod_level=gate, rules=reading.rules)
    return read_memory_state(content, options)


def _with_parts(
    file: _Content, read: Callable[[bytes, str, _StateReading], Verdict[T]], own: _StateReading
) -> PresentStateFile[T] | None:
    """The file as this kubelet reads it, with what is read of each of its parts if it has two."""
    present = _present(file, lambda content, path: read(content, path, own))
    if present is None or not has_data_members(present.content):
        return present
    newer = _StateReading(replace(own.rules, state_files_with_data=True), pod_level=True)
    before = replace(own.rules, state_files_with_data=False, pod_entries_in_state_files=True)
    older, content, path = _StateReading(before, pod_level=False), present.content, present.path
    return replace(present, parts=(read(content, path, newer), read(content, path, older)))


@dataclass(slots=True)
class _DirectoryReader:
    """Reads files and directories, and collects the faults of those that cannot be read."""

    faults: list[Fault] = field(default_factory=list)

    def content(self, path: Path) -> _Content:
        """The file's content; None if there is no such file, or it cannot be read."""
        try:
            return str(path), read_regular_file(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._add_fault(path, error)
            return None

    def names(self, path: Path) -> tuple[str, ...]:
        """The names of the subdirectories; empty if there is no such directory."""
        try:
            return tuple(sorted(child.name for child in path.iterdir() if child.is_dir()))
        except FileNotFoundError:
            return ()
        except OSError as error:
            self._add_fault(path, error)
            return ()

    def _add_fault(self, path: Path, error: OSError) -> None:
        hint = (
            " (usually only root can read the kubelet's files)" if isinstance(error, PermissionError) else ""
        )
        self.faults.append(Fault(rule=f"cannot be read: {error.strerror}{hint}", source=str(path)))


def _if_readable(path: Path, reader: _DirectoryReader) -> Path | None:
    return path if reader.content(path) else None
