"""What an audit compares, gathered: every source on its own, so that one that is down hides none of the others."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from nodewright.agent.keeping import HEADER, JOURNAL, PODS
from nodewright.agent.kept import read_pod_file
from nodewright.agent.values import Stage
from nodewright.api.client import Client, RefusedError
from nodewright.ask import Node
from nodewright.audit.groups import groups_to_read, names_to_read
from nodewright.audit.values import Evidence, Gap, GapKind, GroupsTold, Source, StateTold
from nodewright.cli.live_nodes import agent_profile, told_resources
from nodewright.core.cgroups.names import Driver, Parents, pod_uid_of
from nodewright.core.cgroups.plan import Level
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.requests import QOSClass
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile
from nodewright.model.verdict import Refused
from nodewright.node.cgroups import Wish, cgroup_rules, cgroup_tree
from nodewright.node.config import NodeConfig
from nodewright.render.state_messages import state_sentence
from nodewright.world.captured.cluster import read_configz
from nodewright.world.captured.pods import NodePods, admitted, read_pods
from nodewright.world.cgroup_files import LIVE
from nodewright.world.cgroups import CgroupTree
from nodewright.world.decode import decode
from nodewright.world.errors import Fault, InputError, WorldError
from nodewright.world.kubelet_config import config_document
from nodewright.world.kubelet_root import CONFIG_FILE, KubeletRoot, Present, RootReading, read_kubelet_root
from nodewright.world.nodes import find_profile
from nodewright.world.profiles import profile_from
from nodewright.world.state.devices import device_state

T = TypeVar("T")

SOCKET_IN_ROOT = Path("pod-resources") / "kubelet.sock"
_SLICE = "kubepods.slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What the command line names. None: nothing."""

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

    @property
    def is_agents(self) -> bool:
        """Whether the directory is one of our agent's."""
        return self.root is not None and (self.root / HEADER).is_file()


@dataclass(frozen=True, slots=True)
class Gathered:
    """What was found, and what was not."""

    evidence: Evidence
    gaps: tuple[Gap, ...]

    @property
    def failed(self) -> bool:
        """Whether a source was named and could not be read."""
        return any(one.what is GapKind.NOT_READ for one in self.gaps)


def gathered(asked: Asked) -> Gathered:
    """All sources that are named, each as far as it can be read.

    Errors: InputError where the machine or the configuration is none to begin with.
    """
    sources = _Sources()
    profile = _profile(asked, sources)
    config = _config(profile, asked)
    pods = sources.reading(Source.PODS, lambda: _pods(asked)) if _names_pods(asked) else None
    root = sources.reading(Source.STATE, lambda: _root(asked, profile, pods)) if asked.root else None
    if (
        root is not None
        and pods is not None
        and root.allocated
        and not isinstance(root.allocated.read, Refused)
    ):
        # Amounts that a resize wants and that are not given yet are no drift.
        pods = admitted(pods, root.allocated.read.value, _holders(root))
    place = _resources_socket(asked)
    told = sources.reading(Source.RESOURCES, lambda: told_resources(place)) if place else None
    groups = None
    if asked.cgroups != "none":
        groups = sources.reading(Source.CGROUPS, lambda: _groups(asked, config, pods))
    return Gathered(
        Evidence(
            config=config,
            state=None if root is None else sources.state(root),
            resources=told.pods if told else None,
            allocatable=told.allocatable if told else None,
            groups=groups,
            pods=pods.pods if pods else None,
            ended=pods.ended if pods else frozenset(),
        ),
        tuple(sources.all_gaps()),
    )


@dataclass(slots=True)
class _Sources:
    """The sources as they are read."""

    gaps: list[Gap] = field(default_factory=list)
    read: set[Source] = field(default_factory=set)

    def reading(self, source: Source, read: Callable[[], T]) -> T | None:
        """What a source says; None: it does not, which is noted."""
        try:
            found = read()
        except (InputError, WorldError, OSError, RefusedError) as error:
            self.gaps.append(Gap(what=GapKind.NOT_READ, source=source, because=str(error)))
            return None
        self.read.add(source)
        return found

    def state(self, root: KubeletRoot) -> StateTold:
        """What state files say, each by itself: one that is torn or not there is noted."""
        devices = self._value(root.devices, "device-plugins/kubelet_internal_checkpoint")
        return StateTold(
            cpu=self._value(root.cpu, "cpu_manager_state"),
            memory=self._value(root.memory, "memory_manager_state"),
            devices=None if devices is None else device_state(devices).held,
        )

    def all_gaps(self) -> Iterator[Gap]:
        """What was not read, and which sources nobody named."""
        yield from self.gaps
        told = self.read | {one.source for one in self.gaps}
        for source in Source:
            if source not in told and source is not Source.CONFIGURATION:
                yield Gap(what=GapKind.NOT_ASKED, source=source)

    def _value(self, present: Present[T] | None, name: str) -> T | None:
        if present is None:
            because = f"{name}: there is no such file"
        elif isinstance(present.read, Refused):
            because = state_sentence(present.read.because[0])  # type: ignore[arg-type] # files give reasons of files only
        else:
            return present.read.value
        self.gaps.append(Gap(what=GapKind.NOT_READ, source=Source.STATE, because=because))
        return None


# ---------------------------------------------------------------- the node


def _profile(asked: Asked, sources: _Sources) -> NodeProfile:
    """The machine and the configuration: an agent's own, or those that are named; no pods."""
    found = None
    if not asked.node and (asked.socket or asked.is_agents):
        found = sources.reading(Source.CONFIGURATION, lambda: _agents_node(asked))
    profile = found or find_profile(asked.node)
    spec = profile.spec
    document = _document(asked)
    if document is not None:
        spec = replace(spec, kubelet_configuration=document)
    if asked.cgroup_root:
        spec = replace(
            spec, kubelet_configuration={**spec.kubelet_configuration, "cgroupRoot": asked.cgroup_root}
        )
    return replace(profile, spec=replace(spec, pods=(), allocations=None, conditions=()))


def _document(asked: Asked) -> dict[str, object] | None:
    """The configuration as it is named or stands in a kubelet's directory; None: neither."""
    if asked.configz:
        return read_configz(asked.configz)
    file = asked.kubelet_config
    if file is None and asked.root and not asked.is_agents and (asked.root / CONFIG_FILE).is_file():
        file = asked.root / CONFIG_FILE
    return config_document(file) if file else None


def _agents_node(asked: Asked) -> NodeProfile:
    """What a running agent says of its node, or one that does not run has left."""
    if asked.socket:
        try:
            return agent_profile(asked.socket)
        except WorldError:
            if not asked.is_agents:
                raise
    return _journalled(asked)


def _journalled(asked: Asked) -> NodeProfile:
    """The node with which an agent's journal begins: its first line is a whole Scenario but for its events."""
    assert asked.root is not None
    path = asked.root / JOURNAL
    head, _, _ = path.read_bytes().partition(b"\n")
    try:
        node = json.loads(head + b"]}}")["spec"]["node"]
    except (ValueError, KeyError, TypeError) as error:
        raise InputError([Fault(source=str(path), rule=f"it is no journal of an agent: {error}")]) from None
    return profile_from(json.dumps(node).encode(), str(path))


def _config(profile: NodeProfile, asked: Asked) -> NodeConfig:
    return Node.of(profile, source=str(asked.kubelet_config or asked.root or asked.node or "node")).config


# ---------------------------------------------------------------- pods


def _names_pods(asked: Asked) -> bool:
    return asked.pods is not None or asked.socket is not None or asked.is_agents


def _pods(asked: Asked) -> NodePods:
    """The API's pods: of a file, of a running agent, or as an agent kept them that does not run."""
    if asked.pods:
        return read_pods(asked.pods, asked.node_name)
    if asked.socket:
        try:
            items = Client(asked.socket).get("api/v1/pods")["items"]
        except WorldError:
            if not asked.is_agents:
                raise
        else:
            return _active([decode(item, Pod) for item in items], asked.node_name)
    assert asked.root is not None
    files = sorted((asked.root / PODS).glob("*.json"))
    records = [read_pod_file(path.read_bytes(), str(path)) for path in files]
    pods = [
        replace(one.pod, status=replace(one.status, phase=_phase(one.stage, one.status.phase)))
        for one in records
    ]
    return _active(pods, asked.node_name)


def _phase(stage: Stage, phase: str) -> str:
    return "Failed" if stage in (Stage.REFUSED, Stage.ENDED) and phase != "Succeeded" else phase


def _active(pods: list[Pod], node: str) -> NodePods:
    ended = frozenset(pod.uid for pod in pods if pod.has_ended)
    return NodePods(node=node, pods=tuple(pod for pod in pods if pod.uid not in ended), ended=ended)


# ---------------------------------------------------------------- files and sockets


def _root(asked: Asked, profile: NodeProfile, pods: NodePods | None) -> KubeletRoot:
    assert asked.root is not None
    reading = RootReading(
        configuration=profile.spec.kubelet_configuration, running=pods.running if pods else {}
    )
    return read_kubelet_root(asked.root, reading)


def _holders(root: KubeletRoot) -> set[str]:
    """The uids of those for whom something is kept."""
    found: set[str] = set()
    if root.cpu and not isinstance(root.cpu.read, Refused):
        found |= {one.pod for one in root.cpu.read.value.holders()}
    if root.memory and not isinstance(root.memory.read, Refused):
        found |= {*root.memory.read.value.assignments}
    return found


def _resources_socket(asked: Asked) -> Path | None:
    if asked.pod_resources:
        return asked.pod_resources
    usual = asked.root / SOCKET_IN_ROOT if asked.root else None
    return usual if usual and usual.exists() else None


def _groups(asked: Asked, config: NodeConfig, pods: NodePods | None) -> GroupsTold:
    """What the files of all groups say that there should be, and whose groups there are.

    Errors: InputError where there is no tree, or nothing of this kubelet's in it.
    """
    tree = CgroupTree(LIVE if asked.cgroups == "live" else Path(asked.cgroups))
    wish = Wish(version=tree.version, driver=_driver(tree, config))
    rules, arranged = cgroup_rules(config, wish), cgroup_tree(config)
    groups = groups_to_read(config, pods.pods if pods else (), rules).groups
    texts = {
        one.path: tree.texts(one.path, names_to_read(one, rules.version), one.container_id) for one in groups
    }
    top = next((one.path for one in groups if one.level is Level.NODE), None)
    if top is not None and texts[top] is None:
        rule = "no kubelet's groups stand here: --cgroup-root says below which group they do"
        raise InputError([Fault(source=str(tree.root), value=top, rule=rule)])
    uids = _uids(tree, Parents.below(arranged.root), rules) if arranged.per_qos and pods else None
    return GroupsTold(rules=rules, texts=texts, uids=uids)


def _driver(tree: CgroupTree, config: NodeConfig) -> str | None:
    """The driver as the tree shows it: kubelets ask their runtime, whatever is configured."""
    root = config.parts.kubelet.cgroup_root
    return Driver.SYSTEMD if root in ("", "/") and _SLICE in tree.names_below("/") else None


def _uids(tree: CgroupTree, parents: Parents, rules: CgroupRules) -> frozenset[str]:
    found = set()
    for parent in {parents.of(one).path(rules.driver) for one in QOSClass}:
        for name in tree.names_below(parent):
            uid = pod_uid_of(f"{parent}/{name}", parents, rules.driver)
            if uid is not None:
                found.add(uid)
    return frozenset(found)
