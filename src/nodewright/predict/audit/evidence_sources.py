"""Gathers the evidence for an audit, each source independently, so that an unreadable one does not affect the others.

Also reads live nodes for other commands: agents and PodResources sockets.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.cluster.client.agent_answers import PodItems, answer, decode_pods
from nodewright.cluster.client.agent_client import PROFILE_ROUTE, AgentClient, AgentStatusError
from nodewright.cluster.pod_resources.snapshot import read_snapshot
from nodewright.documents.files.cgroup_files import CGROUP_ROOT, CgroupTree
from nodewright.documents.profiles.capture.from_cluster import read_configz
from nodewright.documents.profiles.capture.from_pod_resources import PodResourcesSnapshot
from nodewright.documents.profiles.capture.node_pods import NodePods, admitted_pods, read_pods
from nodewright.documents.profiles.kubelet_config_files import ConfigHost, config_document
from nodewright.documents.profiles.kubelet_root import (
    CONFIG_FILE,
    POD_RESOURCES_SOCKET,
    KubeletRoot,
    PresentStateFile,
    RootReadOptions,
    read_kubelet_root,
)
from nodewright.documents.profiles.node_profiles import find_profile, profile_from_bytes
from nodewright.documents.profiles.state_files.device_checkpoint import device_state_from_checkpoint
from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_names import CgroupDriver, QOSCgroupNames, pod_uid_from_cgroup
from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel, PlannedCgroup
from nodewright.engine.core.cpu.cpu_state import CPUState
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.node_cgroups import CgroupOverrides, cgroup_rules, cgroup_tree
from nodewright.engine.node.node_config import NodeConfig
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.kubelet_start import StateFile
from nodewright.model.reasons.verdict import Granted, Refused, Verdict
from nodewright.model.releases.release_table import release_table
from nodewright.predict.audit.audit_evidence import (
    AuditEvidence,
    AuditGap,
    CgroupEvidence,
    EvidenceSource,
    FileParts,
    StateFileEvidence,
    UncomparedReason,
)
from nodewright.predict.audit.container_check import cgroups_to_read, file_names_to_read
from nodewright.predict.node import Node
from nodewright.version import install_command


def read_pod_resources(socket: Path) -> PodResourcesSnapshot:
    """The response of a kubelet's or an agent's PodResources socket.

    Errors: HostError if nothing answers, or the gRPC client is not installed.
    """
    try:
        return read_snapshot(socket)
    except ImportError as error:
        raise HostError("ask PodResources at", str(socket), f"{error}: {install_command('agent')}") from None


def read_agent_profile(socket: Path) -> NodeProfile:
    """The node of a running agent, with its pods and their allocations.

    Errors: HostError if no agent answers.
    """
    try:
        answer = AgentClient(socket).get(PROFILE_ROUTE)
    except AgentStatusError as error:
        raise HostError("ask the agent at", str(socket), str(error)) from None
    return profile_from_bytes(json.dumps(answer).encode(), str(socket))


T = TypeVar("T")

_NOT_OPTIONAL = frozenset(
    {
        EvidenceSource.CONFIGURATION,
        EvidenceSource.KUBELET,
        EvidenceSource.NODE,
        EvidenceSource.DATA,
        EvidenceSource.OLDER_MEMBERS,
    }
)
"""Sources that no option names."""
_SLICE = "kubepods.slice"


class StoredAgent(Protocol):
    """The directory of an agent, which may be stopped."""

    def profile(self) -> NodeProfile:
        """The node at the start of its journal.

        Errors: InputError.
        """

    def pods(self) -> list[Pod]:
        """Its pods, with their last phases.

        Errors: InputError.
        """


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line. None: not specified."""

    root: Path | None
    pod_resources: Path | None
    cgroups: str
    cgroup_root: str | None
    pods: Path | None
    node_name: str
    socket: Path | None
    kubelet_config: Path | None
    configz: Path | None
    node: str | None
    stored_agent: StoredAgent | None = None
    """The agent that ``root`` belongs to; None: a kubelet's directory, or none."""


class GatheredEvidence(msgspec.Struct, frozen=True):
    """The evidence, and the items that could not be read."""

    evidence: AuditEvidence
    gaps: tuple[AuditGap, ...]

    @property
    def has_unreadable_source(self) -> bool:
        """Whether a specified source could not be read."""
        return any(gap.reason is UncomparedReason.NOT_READ for gap in self.gaps)


def gather_evidence(options: AuditOptions) -> GatheredEvidence:
    """The evidence of all specified sources, as far as they are readable.

    Errors: InputError if the machine or the configuration is invalid.
    """
    sources = _SourceReader()
    profile = _profile(options, sources)
    config = _config(profile, options)
    pods = root = resources = groups = None
    if options.pods is not None or options.socket is not None or options.stored_agent is not None:
        pods = sources.read_source(EvidenceSource.PODS, lambda: _pods(options))
    if options.root:
        root = sources.read_source(EvidenceSource.STATE, lambda: _root(options, profile, pods))
    if root and pods and root.allocated and isinstance(root.allocated.verdict, Granted):
        # Amounts of a pending resize are no discrepancy.
        pods = admitted_pods(pods, root.allocated.verdict.value, _holders(root))
    if socket := _resources_socket(options):
        resources = sources.read_source(EvidenceSource.RESOURCES, lambda: read_pod_resources(socket))
    if options.cgroups != "none":
        groups = sources.read_source(EvidenceSource.CGROUPS, lambda: _groups(options, config, pods))
    return GatheredEvidence(
        AuditEvidence(
            config=config,
            state_files=None if root is None else sources.state_evidence(root),
            pod_resources=resources.pods if resources else None,
            allocatable=resources.allocatable if resources else None,
            cgroups=groups,
            pods=pods.pods if pods else None,
            ended_uids=pods.ended if pods else frozenset(),
        ),
        tuple(sources.all_gaps()),
    )


@dataclass(slots=True)
class _SourceReader:
    """Reads sources and records which were not readable."""

    gaps: list[AuditGap] = field(default_factory=list)
    read_sources: set[EvidenceSource] = field(default_factory=set)

    def read_source(self, source: EvidenceSource, read: Callable[[], T]) -> T | None:
        """The content of a source; None: it could not be read, which is recorded."""
        try:
            content = read()
        except (InputError, HostError, OSError, AgentStatusError) as error:
            self.gaps.append(AuditGap(reason=UncomparedReason.NOT_READ, source=source, because=str(error)))
            return None
        self.read_sources.add(source)
        return content

    def state_evidence(self, root: KubeletRoot) -> StateFileEvidence:
        """The content of the state files; each missing or corrupt one is recorded."""
        devices = self._value(root.devices, "device-plugins/kubelet_internal_checkpoint")
        return StateFileEvidence(
            cpu=self._value(root.cpu, "cpu_manager_state"),
            memory=self._value(root.memory, "memory_manager_state"),
            devices=None if devices is None else device_state_from_checkpoint(devices).pod_devices,
            parts=(*_file_parts(StateFile.CPU, root), *_file_parts(StateFile.MEMORY, root)),
        )

    def all_gaps(self) -> Iterator[AuditGap]:
        """The sources that were not readable, and those that were not specified."""
        yield from self.gaps
        specified = self.read_sources | {gap.source for gap in self.gaps}
        for source in EvidenceSource:
            if source not in specified | _NOT_OPTIONAL:
                yield AuditGap(reason=UncomparedReason.NOT_GIVEN, source=source)

    def _value(self, present: PresentStateFile[T] | None, name: str) -> T | None:
        if present is None:
            because = f"{name}: there is no such file"
        elif isinstance(present.verdict, Refused):
            because = present.verdict.because[0].sentence()
        else:
            return present.verdict.value
        self.gaps.append(
            AuditGap(reason=UncomparedReason.NOT_READ, source=EvidenceSource.STATE, because=because)
        )
        return None


# ---------------------------------------------------------------- the node


def _profile(options: AuditOptions, sources: _SourceReader) -> NodeProfile:
    """The machine and the configuration: the agent's, or those specified; without pods."""
    agent_profile = None
    if not options.node and (options.socket or options.stored_agent is not None):
        agent_profile = sources.read_source(
            EvidenceSource.CONFIGURATION,
            lambda: _of_agent(options, read_agent_profile, lambda agent: agent.profile()),
        )
    profile = agent_profile or find_profile(options.node)
    spec = profile.spec
    document = _document(options)
    if document is not None:
        spec = replace(spec, kubelet_configuration=document)
    if options.cgroup_root:
        spec = replace(
            spec, kubelet_configuration={**spec.kubelet_configuration, "cgroupRoot": options.cgroup_root}
        )
    return replace(profile, spec=replace(spec, pods=(), allocations=None, conditions=()))


def _document(options: AuditOptions) -> dict[str, object] | None:
    """The specified configuration, or the one in the kubelet's directory; None: neither."""
    if options.configz:
        return read_configz(options.configz)
    file = options.kubelet_config
    if (
        file is None
        and options.root
        and options.stored_agent is None
        and (options.root / CONFIG_FILE).is_file()
    ):
        file = options.root / CONFIG_FILE
    return config_document(file) if file else None


def _of_agent(options: AuditOptions, ask: Callable[[Path], T], of_stored: Callable[[StoredAgent], T]) -> T:
    """What a running agent answers, or a stopped one has stored."""
    if options.socket:
        try:
            return ask(options.socket)
        except HostError:
            if options.stored_agent is None:
                raise
    assert options.stored_agent is not None
    return of_stored(options.stored_agent)


def _config(profile: NodeProfile, options: AuditOptions) -> NodeConfig:
    return Node.from_profile(
        profile, source=str(options.kubelet_config or options.root or options.node or "node")
    ).config


# ---------------------------------------------------------------- pods


def _pods(options: AuditOptions) -> NodePods:
    """The API's pods: from a file, a running agent, or the store of a stopped one."""
    if options.pods:
        return read_pods(options.pods, options.node_name)
    pods = _of_agent(options, _running_agents_pods, lambda agent: agent.pods())
    ended = frozenset(pod.uid for pod in pods if pod.is_terminal)
    active = tuple(pod for pod in pods if pod.uid not in ended)
    return NodePods(node=options.node_name, pods=active, ended=ended)


def _running_agents_pods(socket: Path) -> list[Pod]:
    return decode_pods(answer(AgentClient(socket), PodItems, "api/v1/pods")["items"])


# ---------------------------------------------------------------- files and sockets


def _root(options: AuditOptions, profile: NodeProfile, pods: NodePods | None) -> KubeletRoot:
    assert options.root is not None
    reading = RootReadOptions(
        configuration=profile.spec.kubelet_configuration,
        container_names=pods.container_names if pods else {},
        host=ConfigHost(release=release_table(profile.spec.kubernetes_version)),
    )
    return read_kubelet_root(options.root, reading)


def _file_parts(file: StateFile, root: KubeletRoot) -> Iterator[FileParts]:
    """The file, if its two parts differ; a kubelet that reads `data` writes the pod level there alone."""
    present = root.cpu if file is StateFile.CPU else root.memory
    if present is None or present.parts is None:
        return
    if any(isinstance(part, Refused) for part in present.parts):
        data, older = (
            part.because[0].sentence() if isinstance(part, Refused) else "readable" for part in present.parts
        )
    else:
        has_pods = not root.loaded.gates.rules.state_files_with_data
        entries = [{*_entries(part, has_pods=has_pods)} for part in present.parts]
        data, older = (", ".join(sorted(own - other)) or "-" for own, other in (entries, entries[::-1]))
    if data != older:
        yield FileParts(file=file, data=data, older=older)


def _entries(part: Verdict[CPUState] | Verdict[MemoryState], *, has_pods: bool) -> Iterator[str]:
    """What a part of a file has, each value with its path."""
    assert isinstance(part, Granted)
    yield from _leaves(
        msgspec.to_builtins(part.value if has_pods else replace(part.value, pods={}), enc_hook=str)
    )


def _leaves(value: Any, path: str = "") -> Iterator[str]:
    members = dict(enumerate(value)) if isinstance(value, list | tuple) else value
    if not isinstance(members, dict):
        yield f"{path} {members}"
        return
    for name, member in members.items():
        yield from _leaves(member, f"{path}.{name}" if path else str(name))


def _holders(root: KubeletRoot) -> set[str]:
    """The uids of pods with allocations."""
    uids: set[str] = set()
    if root.cpu and not isinstance(root.cpu.verdict, Refused):
        uids |= {holder.pod for holder in root.cpu.verdict.value.holders()}
    if root.memory and not isinstance(root.memory.verdict, Refused):
        uids |= {*root.memory.verdict.value.assignments}
    return uids


def _resources_socket(options: AuditOptions) -> Path | None:
    if options.pod_resources:
        return options.pod_resources
    default = options.root / POD_RESOURCES_SOCKET if options.root else None
    return default if default and default.exists() else None


def _groups(options: AuditOptions, config: NodeConfig, pods: NodePods | None) -> CgroupEvidence:
    """The files of all expected cgroups, and the uids of the pods that have cgroups.

    Errors: InputError if there is no cgroup tree, or none of this kubelet in it.
    """
    tree = CgroupTree(CGROUP_ROOT if options.cgroups == "live" else Path(options.cgroups))
    overrides = CgroupOverrides(version=tree.version, driver=_driver(tree, config))
    rules, hierarchy = cgroup_rules(config, overrides), cgroup_tree(config)
    groups = cgroups_to_read(config, pods.pods if pods else (), rules).groups
    texts = {
        group.path: tree.read_files(group.path, file_names_to_read(group, rules.version), group.container_id)
        for group in groups
    }
    top = next((group.path for group in groups if group.level is CgroupLevel.NODE), None)
    if top is not None and texts[top] is None:
        rule = "there are no cgroups of a kubelet: specify their parent with --cgroup-root"
        raise InputError([Fault(source=str(tree.root), value=top, rule=rule)])
    uids = (
        _uids(tree, QOSCgroupNames.for_root(hierarchy.root), rules)
        if hierarchy.cgroups_per_qos and pods
        else None
    )
    uncopied = () if options.cgroups == "live" else tuple(_uncopied(tree, groups, texts))
    return CgroupEvidence(rules=rules, texts=texts, uids=uids, uncopied=uncopied)


def _uncopied(
    tree: CgroupTree, groups: Sequence[PlannedCgroup], texts: Mapping[str, object]
) -> Iterator[str]:
    """The cgroups that a copy of a tree lacks as a whole: those of a QoS class, or all of their kind in their parent."""
    gaps: list[str] = []
    classes = {group.path.rpartition("/")[2] for group in groups if group.level is CgroupLevel.QOS_CLASS}
    for group in groups:
        parent = group.path.rpartition("/")[0]
        siblings = [
            name for name in tree.child_names(parent) if group.level is not CgroupLevel.POD or "pod" in name
        ]
        is_alone = group.level is CgroupLevel.QOS_CLASS or not {*siblings} - classes
        if (
            texts[group.path] is None
            and is_alone
            and not any(group.path.startswith(f"{gap}/") for gap in gaps)
        ):
            gaps.append(group.path)
    yield from gaps


def _driver(tree: CgroupTree, config: NodeConfig) -> str | None:
    """The driver as the tree shows it: kubelets query their runtime, whatever is configured."""
    root = config.parts.kubelet.cgroup_root
    return CgroupDriver.SYSTEMD if root in ("", "/") and _SLICE in tree.child_names("/") else None


def _uids(tree: CgroupTree, parents: QOSCgroupNames, rules: CgroupConfig) -> frozenset[str]:
    uids = set()
    for parent in {parents.for_class(qos_class).path(rules.driver) for qos_class in QOSClass}:
        for name in tree.child_names(parent):
            uid = pod_uid_from_cgroup(f"{parent}/{name}", parents, rules.driver)
            if uid is not None:
                uids.add(uid)
    return frozenset(uids)
