"""What the kubelet of one release makes of a node: its start, its state files, its pods and manifests to come, as facts."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.workloads import Workload
from nodewright.documents.profiles.kubelet_config_files import decode_kubelet_config
from nodewright.documents.profiles.state_files.checkpoints import StateFiles, stored_state
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.kubelet_startup import StoredState
from nodewright.engine.node.restart.restart_rehearsal import (
    PodRestartOutcome,
    RestartRehearsal,
    RunningPods,
    rehearse_restart,
)
from nodewright.engine.node.step import Decision, running_containers
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import Reason
from nodewright.model.reasons.state_files import StateFile
from nodewright.model.reasons.texts import kubelet_fatal_error, kubelet_text
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_changes import unknown_flags
from nodewright.model.releases.release_table import ReleaseTable
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import node_parts
from nodewright.predict.upgrade.release_facts import (
    NONE,
    Aspect,
    FactName,
    PodFacts,
    placement_facts,
    state_facts,
)

CONFIG_SOURCE = "the kubelet's configuration"
_CONFIGURATION = "configuration"
_CONFIG_PATH = "spec.kubeletConfiguration."


class Area(StrEnum):
    """What a fact is about, in the order of a report."""

    START = "start"
    STATE_FILES = "state files"
    PODS = "pods that run"
    MANIFESTS = "manifests"
    NODE = "node"
    WAY_BACK = "way back"


class UpgradeCase(msgspec.Struct, frozen=True, kw_only=True):
    """A node with everything that its next kubelet finds."""

    profile: NodeProfile
    source: str
    files: StateFiles
    """The state files."""
    pods: tuple[Pod, ...]
    """The pods that run."""
    held: StoredState
    """What they hold, whatever the next kubelet reads."""
    conflicts: tuple[Reason, ...] = ()
    """Faults of the files with the pods' allocated resources."""
    is_complete: bool = True
    """Whether all pods of the node are known."""
    manifests: Sequence[Workload] = ()
    flags: tuple[str, ...] = ()
    """The names of the flags of the kubelet's command line."""


class FactOwner(msgspec.Struct, frozen=True, order=True):
    """The owner of facts; facts of an owner that only one release has are not compared."""

    area: str
    name: str
    """A pod as namespace/name; empty: the kubelet or the node."""
    is_outcome: bool = False
    """Whether the facts are the verdict, which every release has."""


ReleaseFacts = dict[FactOwner, dict[FactName, str]]
"""The values of facts by owner."""


class Decided(msgspec.Struct, frozen=True):
    """What a release decides about a case."""

    facts: ReleaseFacts
    state: NodeState | None
    """The node after the restart of its kubelet; None: it does not start with any remedy that is known."""
    has_changed_settings: bool = False
    """Whether settings with which the kubelet does not start were left out for all facts but those of the start."""


def decide_settings(case: UpgradeCase, table: ReleaseTable) -> Decided:
    """What the release makes of the configuration; as `decide`, but without files, pods and manifests."""
    facts: ReleaseFacts = {FactOwner(Area.START, ""): dict(_ignored_fields(case.profile, table))}
    parts, _, _ = _accepted_parts(case, table)
    facts[FactOwner(Area.START, "")].update(_settings(parts) if parts else ())
    return Decided(facts, None)


def decide(case: UpgradeCase, table: ReleaseTable) -> Decided:
    """What the release decides about the case."""
    facts: ReleaseFacts = {FactOwner(Area.START, ""): {}, FactOwner(Area.STATE_FILES, ""): {}}
    start = facts[FactOwner(Area.START, "")]
    start.update(_ignored_fields(case.profile, table))
    for flag in unknown_flags(case.flags, table.name):
        fact = FactName(Aspect.START_ERROR, f"--{flag.name}")
        start[fact] = f"failed to parse kubelet flag: unknown flag: --{flag.name}"
    parts, faults, is_changed = _accepted_parts(case, table)
    start.update((_error_fact(fault, case.profile), fault.rule) for fault in faults)
    if parts is None:
        return Decided(facts, None)
    start.update(_settings(parts))
    stored = stored_state(case.files, parts)
    facts[FactOwner(Area.STATE_FILES, "")].update(_file_facts(stored))
    running = RunningPods(
        pods=case.pods,
        containers=running_containers(case.pods),
        held=case.held,
        is_complete=case.is_complete,
    )
    rehearsal = rehearse_restart(parts, msgspec.structs.replace(stored, resources=case.conflicts), running)
    for failure in rehearsal.start_failures:
        start[FactName(Aspect.START_ERROR, str(failure.stage))] = kubelet_fatal_error(failure.because)
    shown = rehearsal if rehearsal.remedy is None else rehearsal.remedy.then
    facts.update(_restart_facts(shown))
    if shown.state is None:
        return Decided(facts, None, is_changed)
    _add_state_facts(facts, Area.PODS, state_facts(shown.state))
    facts[FactOwner(Area.NODE, "")] = {
        FactName(Aspect.ALLOCATABLE, name): str(amount)
        for name, amount in shown.state.config.resources.allocatable.items()
    }
    _add_manifests(facts, shown.state, case.manifests)
    return Decided(facts, shown.state, is_changed)


# ---------------------------------------------------------------- the start


def _accepted_parts(
    case: UpgradeCase, table: ReleaseTable
) -> tuple[NodeParts | None, tuple[Fault, ...], bool]:
    """The kubelet's parts, the faults of its configuration, and whether settings were left out because of them."""
    profile, faults = case.profile, tuple[Fault, ...]()
    for _ in range(2):
        try:
            parts, _warnings = node_parts(profile, source=case.source, table=table)
        except InputError as error:
            faults = (*faults, *error.faults)
            profile = with_accepted_settings(profile, error.faults)
        else:
            return parts, faults, bool(faults)
    return None, tuple(dict.fromkeys(faults)), True


def with_accepted_settings(profile: NodeProfile, faults: Sequence[Fault]) -> NodeProfile:
    """The node without the settings at fault."""
    configuration = dict(profile.spec.kubelet_configuration)
    gates: Mapping[str, bool] = configuration.get("featureGates") or {}
    refused = {gate_of(fault.rule, gates) for fault in faults}
    if gates:
        configuration["featureGates"] = {name: value for name, value in gates.items() if name not in refused}
    for fault in faults:
        name = re.split(r"[.\[]", fault.path.removeprefix(_CONFIG_PATH))[0]
        if name == "failCgroupV1":
            configuration[name] = False
        elif name != "featureGates":
            configuration.pop(name, None)
    return replace(profile, spec=replace(profile.spec, kubelet_configuration=configuration))


def gate_of(error: str, gates: Mapping[str, bool]) -> str:
    """The gate of the settings that an error of the kubelet names; empty: none.

    >>> gate_of("unrecognized feature gate: MemoryManager", {"MemoryManager": True})
    'MemoryManager'
    """
    words = error.replace(",", " ").split()
    return next((word for word in words if word in gates), "")


def _error_fact(fault: Fault, profile: NodeProfile) -> FactName:
    gate = gate_of(fault.rule, profile.spec.kubelet_configuration.get("featureGates") or {})
    path = fault.path.removeprefix(_CONFIG_PATH)
    return FactName(Aspect.START_ERROR, f"featureGates[{gate}]" if gate else path or _CONFIGURATION)


def _ignored_fields(profile: NodeProfile, table: ReleaseTable) -> Iterator[tuple[FactName, str]]:
    document: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **profile.spec.kubelet_configuration,
    }
    for path in decode_kubelet_config(document, CONFIG_SOURCE, table).unknown_fields:
        yield FactName(Aspect.CONFIG_FIELD, path), "ignored"


def _settings(parts: NodeParts) -> Iterator[tuple[FactName, str]]:
    """The configuration with its defaults, and what becomes of the gates that it sets."""
    kubelet = parts.kubelet
    for field in msgspec.structs.fields(kubelet):
        if field.name != "feature_gates":
            yield FactName(Aspect.SETTING, field.encode_name), _setting_text(getattr(kubelet, field.name))


def _setting_text(value: Any) -> str:
    plain = msgspec.to_builtins(value, enc_hook=str)
    return (plain or NONE) if isinstance(plain, str) else json.dumps(plain)


def _file_facts(stored: StoredState) -> Iterator[tuple[FactName, str]]:
    read = {StateFile.CPU: stored.cpu, StateFile.MEMORY: stored.memory, StateFile.DEVICES: stored.devices}
    for file, verdict in read.items():
        if verdict is not None:
            yield (
                FactName(Aspect.STATE_FILE, str(file)),
                "refused" if isinstance(verdict, Refused) else "readable",
            )


# ---------------------------------------------------------------- pods and manifests


def _restart_facts(rehearsal: RestartRehearsal) -> ReleaseFacts:
    facts: ReleaseFacts = {}
    for outcome in rehearsal.outcomes:
        name = outcome.pod.full_name
        facts[FactOwner(Area.PODS, name, is_outcome=True)] = {FactName(Aspect.VERDICT): _verdict(outcome)}
        if not outcome.is_lost:
            facts[FactOwner(Area.PODS, name)] = dict(placement_facts(outcome.after))
    return facts


def _verdict(outcome: PodRestartOutcome) -> str:
    if outcome.preempted_by is not None:
        return f"lost: preempted by {outcome.preempted_by.full_name}"
    if outcome.is_lost:
        return f"lost: {_reason(outcome.because)}"
    return "undecided" if outcome.is_undecided else "runs on"


def _reason(because: Sequence[Reason]) -> str:
    text = kubelet_text(because[0])
    return f"{text.reason}: {text.message}" if text.message else text.reason


def _add_state_facts(facts: ReleaseFacts, area: Area, pods: PodFacts) -> None:
    for name, pod_facts in pods.items():
        owner = FactOwner(Area.NODE, name) if not name else FactOwner(area, name)
        facts.setdefault(owner, {}).update(pod_facts)


def _add_manifests(facts: ReleaseFacts, state: NodeState, manifests: Sequence[Workload]) -> None:
    """Adds the verdicts about the manifests' pods, admitted one after the other, and the facts of those that run."""
    node, admitted = Node(state), dict[str, str]()
    for workload in manifests:
        if workload.refusal is not None:
            continue
        result = node.admit(workload.pod)
        node, name = result.node, result.pod.full_name
        verdict = str(result.decision)
        if result.decision is Decision.REFUSED:
            verdict = f"refused: {_reason(result.because)}"
        facts[FactOwner(Area.MANIFESTS, name, is_outcome=True)] = {FactName(Aspect.VERDICT): verdict}
        if result.decision is not Decision.REFUSED:
            admitted[result.pod.uid] = name
            facts[FactOwner(Area.MANIFESTS, name)] = {
                FactName(Aspect.POD_LEVEL): _pod_level(workload.pod, node),
                **(dict(placement_facts(result.placement)) if result.placement else {}),
            }
    if admitted:
        pods = state_facts(node.state, only=frozenset(admitted))
        _add_state_facts(facts, Area.MANIFESTS, {name: of for name, of in pods.items() if name})


def _pod_level(pod: Pod, node: Node) -> str:
    if pod.spec.resources is None:
        return NONE
    return "counted" if node.config.gates["PodLevelResources"] else "ignored"
