"""Reads a node beside its kubelet: machine, configuration, release, state files, pods and the NUMA nodes of devices."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.cluster.exports.export_feed import ExportReading, SourceReading
from nodewright.cluster.pod_resources.snapshot import read_snapshot_apart
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.capture.captured_node import NodeSources, captured_node
from nodewright.documents.profiles.capture.from_cluster import ReportedNode, read_configz, read_node
from nodewright.documents.profiles.capture.from_pod_resources import PodResourcesSnapshot
from nodewright.documents.profiles.capture.from_state_files import BrokenStateError
from nodewright.documents.profiles.capture.node_pods import NodePods, read_pods
from nodewright.documents.profiles.capture.warnings import (
    broken_state_text,
    not_judged_sentence,
)
from nodewright.documents.profiles.kubelet_config_files import ConfigHost
from nodewright.documents.profiles.kubelet_root import (
    CONFIG_FILE,
    KubeletRoot,
    RootReadOptions,
    read_kubelet_root,
)
from nodewright.documents.profiles.machine.captured_machine import capture_copy, capture_this_machine
from nodewright.documents.profiles.machine.host_facts import MachineFact, missing_fact_sentence
from nodewright.documents.profiles.node_export import SourceState
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.reasons.verdict import Granted
from nodewright.model.releases.release_table import release_table

if TYPE_CHECKING:
    from nodewright.cluster.tasks.timing import Clock
    from nodewright.scheduling.exporter.kubelet_client import KubeletClient

T = TypeVar("T")

MACHINE, CONFIGURATION, VERSION = "machine", "kubeletConfiguration", "kubernetesVersion"
PODS, POD_RESOURCES = "pods", "PodResources"
_FAILED = SourceReading(name="node", state=SourceState.FAILED, assumed="the node as it was")
_WITHOUT_PODS = "placeholders with the resources that the kubelet allocated"
_WITHOUT_CONFIGURATION = "the kubelet's defaults"
_WITHOUT_DEVICES = "devices that no pod holds have no NUMA node"


class ExportSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The sources of an export."""

    node_name: str
    kubelet_root: Path
    kubelet_config: Path | None = None
    config_dir: Path | None = None
    machine: Path | None = None
    """A directory with the /sys and /proc of the machine; None: those of this process."""
    pod_resources: Path | None = None
    """The PodResources socket; None: devices have no NUMA nodes until pods hold them."""
    kubernetes_version: str = ""
    """The release of the kubelet; empty: as the Node object or the kubelet reports it."""


class PodList(msgspec.Struct, frozen=True, kw_only=True):
    """The pods as a source reports them."""

    content: bytes
    """A PodList in JSON."""
    is_watched: bool
    may_lag: bool = False
    """Whether the kubelet may know pods that are not in the list yet, or no longer."""
    node: bytes = b""
    """The Node object, if the source has it."""


class PodListSource(Protocol):
    """Reports the pods of the node."""

    async def pod_list(self) -> PodList:
        """The pods.

        Errors: HostError.
        """


class KubeletPods:
    """The pods as the kubelet itself reports them."""

    def __init__(self, client: "KubeletClient") -> None:
        self._client = client

    async def pod_list(self) -> PodList:
        """The pods; errors: HostError."""
        return PodList(content=await self._client.pods(), is_watched=False)


class _SteadyParts(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while a kubelet runs."""

    base: NodeProfile
    configuration: dict[str, Any] | None
    version: str
    sources: tuple[SourceReading, ...]
    notes: tuple[str, ...]


class NodeReader:
    """Reads the sources; remembers what has not changed, so that reading again is cheap."""

    def __init__(
        self,
        settings: ExportSettings,
        clock: "Clock",
        kubelet: "KubeletClient | None" = None,
        pods: PodListSource | None = None,
    ) -> None:
        self._settings, self._clock, self._kubelet = settings, clock, kubelet
        self._pods: PodListSource | None = pods or (KubeletPods(kubelet) if kubelet else None)
        self._steady: _SteadyParts | None = None
        self._devices_of: bytes | None = None
        self._devices: PodResourcesSnapshot | None = None
        self._last_pods: tuple[PodList, float] | None = None
        self._fingerprint = b""
        self._reading: ExportReading | None = None
        self._read_s: float | None = None
        self._absent_since_s: dict[str, float] = {}

    def expire(self) -> None:
        """Has the machine, the configuration, the release and the devices read again: the kubelet has restarted."""
        self._steady = self._devices_of = None
        self._fingerprint = b""

    def failed_sources(self, error: str) -> tuple[SourceReading, ...]:
        """The sources of the last reading, after one that failed as a whole."""
        sources = self._reading.sources if self._reading else ()
        failed = replace(_FAILED, error=error, read_s=self._read_s)
        return (*(source for source in sources if source.name != _FAILED.name), failed)

    async def read(self, *, are_files_watched: bool) -> ExportReading:
        """The node as its sources are now.

        Errors: InputError for sources that contradict each other or cannot be, and for a directory that cannot be read.
        """
        if self._steady is None:
            self._steady = await self._read_steady_parts()
        steady = self._steady
        root = self._root(steady)
        pods, pods_source = await self._read_pods()
        devices, devices_source = await self._read_devices(root)
        sources = (
            *steady.sources,
            *_file_sources(root, self._clock.monotonic_s(), are_watched=are_files_watched),
            pods_source,
            devices_source,
        )
        self._read_s = self._clock.monotonic_s()
        fingerprint = _fingerprint(root, pods, devices)
        if fingerprint == self._fingerprint and self._reading is not None:
            return replace(self._reading, sources=sources)
        reading = self._captured(steady, root, pods, devices)
        # A list that may lag behind the kubelet is interpreted by how long a pod has been missing.
        self._fingerprint = b"" if self._absent_since_s else fingerprint
        self._reading = replace(reading, sources=sources)
        return self._reading

    async def have_pods_changed(self) -> bool:
        """Whether the list of pods differs from the last one, or cannot be compared; the list counts as read now."""
        if self._pods is None or self._last_pods is None or self._reading is None or self._absent_since_s:
            return True
        try:
            listed = await self._pods.pod_list()
        except HostError:
            return True
        now_s = self._clock.monotonic_s()
        if listed != self._last_pods[0]:
            return True
        self._last_pods = listed, now_s
        self._reading = replace(
            self._reading,
            sources=tuple(
                replace(source, read_s=now_s) if source.name == PODS else source
                for source in self._reading.sources
            ),
        )
        return False

    def last_reading(self) -> ExportReading | None:
        """The last reading, with the time when the pods were compared last."""
        return self._reading

    async def _read_steady_parts(self) -> _SteadyParts:
        settings, now_s = self._settings, self._clock.monotonic_s()
        captured = capture_copy(settings.machine) if settings.machine else capture_this_machine()
        has_file = settings.kubelet_config or (settings.kubelet_root / CONFIG_FILE).is_file()
        document, configuration = None, SourceReading(name=CONFIGURATION, state=SourceState.ABSENT)
        if has_file:
            configuration = replace(configuration, state=SourceState.READ, read_s=now_s, is_watched=True)
        elif self._kubelet is not None:
            kubelet = self._kubelet

            async def read_configuration() -> dict[str, Any]:
                return read_configz(InputFile("/configz", await kubelet.configz()))

            document, configuration = await self._attempt(
                CONFIGURATION, read_configuration, _WITHOUT_CONFIGURATION
            )
        else:
            configuration = replace(configuration, assumed=_WITHOUT_CONFIGURATION)
        version, version_source = settings.kubernetes_version, None
        if not version and self._kubelet is not None:
            assumed = captured.profile.spec.kubernetes_version
            text, version_source = await self._attempt(VERSION, self._kubelet.version, assumed)
            version = text or ""
        notes = tuple(
            missing_fact_sentence(missing)
            for missing in captured.missing
            if missing.fact is not MachineFact.KUBELET_CONFIGURATION
        )
        machine = SourceReading(name=MACHINE, state=SourceState.READ, read_s=now_s, is_watched=True)
        sources = (machine, configuration, *([version_source] if version_source else []))
        # Without a configuration file, the capture assumes settings that the kubelet's own replace.
        return _SteadyParts(
            base=captured.profile,
            configuration=document,
            version=version,
            sources=sources,
            notes=notes,
        )

    async def _attempt(
        self, name: str, read: Callable[[], Awaitable[T]], assumed: str
    ) -> tuple[T | None, SourceReading]:
        """What is read, and the source; None if it cannot be read."""
        try:
            value = await read()
        except (HostError, InputError) as error:
            text = str(error)
            return None, SourceReading(name=name, state=SourceState.FAILED, error=text, assumed=assumed)
        now_s = self._clock.monotonic_s()
        return value, SourceReading(name=name, state=SourceState.READ, read_s=now_s, is_watched=True)

    def _root(self, steady: _SteadyParts) -> KubeletRoot:
        """The directory with its state files.

        Errors: InputError.
        """
        settings = self._settings
        host = ConfigHost(
            cgroup_version=steady.base.spec.cgroup_version, release=release_table(steady.version)
        )
        options = RootReadOptions(
            config=settings.kubelet_config,
            config_dir=settings.config_dir,
            configuration=steady.configuration,
            host=host,
        )
        return read_kubelet_root(settings.kubelet_root, options)

    async def _read_pods(self) -> tuple[PodList | None, SourceReading]:
        """The pods, or the last list if they cannot be read."""
        if self._pods is None:
            absent = SourceReading(name=PODS, state=SourceState.ABSENT, assumed=_WITHOUT_PODS)
            return None, absent
        listed, source = await self._attempt(PODS, self._pods.pod_list, _WITHOUT_PODS)
        if listed is not None:
            self._last_pods = listed, self._clock.monotonic_s()
            return listed, replace(source, is_watched=listed.is_watched)
        if self._last_pods is None:
            return None, source
        last, read_s = self._last_pods
        # The kubelet may have admitted other pods since.
        return replace(last, may_lag=True), replace(source, read_s=read_s, assumed="the pods as they were")

    async def _read_devices(self, root: KubeletRoot) -> tuple[PodResourcesSnapshot | None, SourceReading]:
        """The devices with their NUMA nodes, read again when the list of registered devices changes."""
        socket = self._settings.pod_resources
        registered = _registered_devices(root)
        if socket is None or not (socket.exists() or registered):
            return None, SourceReading(name=POD_RESOURCES, state=SourceState.ABSENT)
        if registered != self._devices_of or (registered and self._devices is None):

            async def read() -> PodResourcesSnapshot:
                return await read_snapshot_apart(socket)

            self._devices, self._devices_source = await self._attempt(POD_RESOURCES, read, _WITHOUT_DEVICES)
            self._devices_of = registered
        return self._devices, self._devices_source

    def _captured(
        self,
        steady: _SteadyParts,
        root: KubeletRoot,
        listed: PodList | None,
        devices: PodResourcesSnapshot | None,
    ) -> ExportReading:
        """The node that the sources describe.

        Errors: InputError.
        """
        name = self._settings.node_name
        node = ReportedNode(name=name, version=steady.version)
        if listed is not None and listed.node:
            reported = read_node(InputFile(f"node/{name}", listed.node))
            node = replace(reported, version=steady.version or reported.version)
        pods = read_pods(InputFile(PODS, listed.content), name) if listed is not None else None
        if listed is not None and pods is not None and listed.may_lag:
            pods = self._with_absences(pods, root)
        try:
            captured = captured_node(
                NodeSources(base=steady.base, kubelet_root=root, pods=pods, node=node, pod_resources=devices)
            )
        except BrokenStateError as error:
            raise InputError([Fault(rule=line) for line in broken_state_text(error.reasons)]) from None
        return ExportReading(
            profile=captured.profile,
            warnings=tuple(warning.sentence() for warning in captured.warnings),
            assumed=(*steady.notes, *map(not_judged_sentence, captured.profile.spec.not_judged)),
        )

    def _with_absences(self, pods: NodePods, root: KubeletRoot) -> NodePods:
        """The pods, complete only for uids that have been missing in the list for longer than it may lag.

        A pod that the kubelet has just admitted is in its files before it is in the list; a removed one stays in the
        files until the kubelet cleans up.
        """
        now_s, known = self._clock.monotonic_s(), {pod.uid for pod in pods.pods} | pods.ended
        absent = set(_allocated_uids(root)) - known
        self._absent_since_s = {uid: self._absent_since_s.get(uid, now_s) for uid in sorted(absent)}
        removed = {uid for uid, since_s in self._absent_since_s.items() if now_s - since_s >= LAG_S}
        return replace(pods, is_complete=False, ended=pods.ended | removed)


LAG_S = 5.0
"""How long a list of pods may lag behind the kubelet."""


def _allocated_uids(root: KubeletRoot) -> Sequence[str]:
    uids: set[str] = set()
    for file in (root.cpu, root.memory):
        if file and isinstance(file.verdict, Granted):
            uids |= {*file.verdict.value.assignments, *file.verdict.value.pods}
    if root.devices and isinstance(root.devices.verdict, Granted):
        uids |= {entry.pod for entry in root.devices.verdict.value.entries or ()}
    if root.allocated and isinstance(root.allocated.verdict, Granted):
        uids |= {*root.allocated.verdict.value}
    return sorted(uids)


def _registered_devices(root: KubeletRoot) -> bytes:
    """The devices that plugins have registered, as bytes to compare; empty if there are none."""
    if root.devices is None or not isinstance(root.devices.verdict, Granted):
        return b""
    registered = root.devices.verdict.value.registered
    listed = {name: sorted(ids or ()) for name, ids in sorted(registered.items()) if ids}
    return msgspec.json.encode(listed) if listed else b""


def _file_sources(root: KubeletRoot, now_s: float, *, are_watched: bool) -> tuple[SourceReading, ...]:
    """The state files of the directory as sources."""
    sources = []
    for name, file in (
        ("cpu_manager_state", root.cpu),
        ("memory_manager_state", root.memory),
        ("kubelet_internal_checkpoint", root.devices),
        ("allocated_pods_state", root.allocated),
    ):
        if file is None:
            sources.append(SourceReading(name=name, state=SourceState.ABSENT))
        elif isinstance(file.verdict, Granted):
            source = SourceReading(name=name, state=SourceState.READ, read_s=now_s, is_watched=are_watched)
            sources.append(source)
        else:
            text = file.verdict.because[0].sentence()
            sources.append(SourceReading(name=name, state=SourceState.FAILED, read_s=now_s, error=text))
    return tuple(sources)


def _fingerprint(root: KubeletRoot, pods: PodList | None, devices: PodResourcesSnapshot | None) -> bytes:
    """What the captured node is made of, in few bytes."""
    parts = [file.content if file else b"-" for file in (root.cpu, root.memory, root.devices, root.allocated)]
    parts.append(repr(sorted(root.configuration.items())).encode())
    parts += [pods.content + pods.node if pods else b"-", repr(pods and pods.may_lag).encode()]
    parts.append(repr(devices.allocatable).encode() if devices else b"-")
    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    return digest.digest()
