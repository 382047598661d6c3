"""What the kubelet of one release makes of a node: its start, its state files, its pods and manifests to come, as facts."""

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.workloads import Workload
from nodewright.documents.profiles.kubelet_config_files import decode_kubelet_config
from nodewright.documents.profiles.state_files.checkpoints import StateFiles, stored_state, unread_pod_level
from nodewright.engine.core.cgroups.cgroup_names import CgroupNameError
from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel, PlannedCgroup
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.config.complete_config import events_per_second
from nodewright.engine.core.eviction.eviction_ranking import ranked_pods
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems, threshold_amount
from nodewright.engine.core.requests.effective_resources import (
    pod_requests,
    reclaimable_requests,
)
from nodewright.engine.core.requests.oom_adjust import oom_scores
from nodewright.engine.core.requests.qos_and_priority import qos_class
from nodewright.engine.node.eviction_pass import eviction_capacities, eviction_claims
from nodewright.engine.node.node_cgroups import AllocatedPod, cgroup_rules, node_and_pod_cgroups
from nodewright.engine.node.node_config import NodeParts
from nodewright.engine.node.node_state import NodeState, without_ungated_resources
from nodewright.engine.node.pod_admission import Placement
from nodewright.engine.node.restart.kubelet_startup import StoredState
from nodewright.engine.node.restart.restart_rehearsal import (
    PodRestartOutcome,
    RestartRehearsal,
    RunningPods,
    rehearse_restart,
)
from nodewright.engine.node.step import Decision, running_containers
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import MEMORY, amount_text
from nodewright.model.kubernetes.stats_summary import MemoryStats, PodReference, PodStats
from nodewright.model.printable import counted
from nodewright.model.reasons.kubelet_start import StateFile, StateFileDamaged
from nodewright.model.reasons.reason import Reason, kubelet_fatal_error, kubelet_text
from nodewright.model.reasons.verdict import Refused
from nodewright.model.releases.release_changes import unknown_flags
from nodewright.model.releases.release_rules import ReleaseTable
from nodewright.model.values.quantity import Quantity, QuantityFormat
from nodewright.predict.node import Node
from nodewright.predict.node_from_profile import node_parts
from nodewright.predict.pod_claims import ClaimedDevice, devices_on

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


NONE = "-"
"""The value of a fact that does not exist."""


class Aspect(StrEnum):
    """What is compared; the worst first."""

    START_ERROR = "start of the kubelet"
    STATE_FILE = "state file"
    VERDICT = "verdict"
    CPUS = "CPUs"
    MEMORY = "memory"
    DEVICES = "devices"
    QOS_CLASS = "QoS class"
    POD_LEVEL = "spec.resources"
    REQUEST = "effective request"
    RECLAIMABLE = "request that eviction and preemption count"
    EVICTION = "memory in use at which pods are evicted"
    EVICTION_RANK = "eviction rank"
    """Under memory pressure, if no pod exceeds its request."""
    OOM_SCORE = "oom_score_adj"
    CGROUP_FILE = "cgroup file"
    ALLOCATABLE = "allocatable"
    CONFIG_FIELD = "configuration field"
    SETTING = "default"


class FactName(msgspec.Struct, frozen=True, order=True):
    """A value of a subject."""

    aspect: str
    detail: str = ""
    """The container, resource, field or file; empty: there is one only."""


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
    is_complete: bool = True
    """Whether all pods of the node are known."""
    manifests: Sequence[Workload] = ()
    claims: ClaimCluster | None = None
    """What the cluster has of Dynamic Resource Allocation, for the pods of the manifests; None: that is not known."""
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
PodFacts = Mapping[str, Mapping[FactName, str]]
"""The values of facts by the pod as namespace/name; those of the node have an empty name."""


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
    facts[FactOwner(Area.STATE_FILES, "")].update(_file_facts(stored, case.held))
    running = RunningPods(
        pods=case.pods,
        containers=running_containers(case.pods),
        held=case.held,
        is_complete=case.is_complete,
    )
    rehearsal = rehearse_restart(parts, stored, running)
    for failure in rehearsal.start_failures:
        reason = failure.because
        file = f" {reason.file}" if isinstance(reason, StateFileDamaged) else ""
        start[FactName(Aspect.START_ERROR, f"{failure.stage}{file}")] = kubelet_fatal_error(reason)
    shown = rehearsal if rehearsal.remedy is None else rehearsal.remedy.then
    facts.update(_restart_facts(shown))
    if shown.state is None:
        return Decided(facts, None, is_changed)
    _add_state_facts(facts, Area.PODS, state_facts(shown.state))
    facts[FactOwner(Area.NODE, "")] = {
        FactName(Aspect.ALLOCATABLE, name): str(amount)
        for name, amount in shown.state.config.resources.allocatable.items()
    } | dict(_evictions(shown.state))
    _add_manifests(facts, shown.state, case)
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
    gates = gates_of(profile)
    refused = {gate_of(fault.rule, gates) for fault in faults}
    if gates:
        configuration["featureGates"] = {name: value for name, value in gates.items() if name not in refused}
    for fault in faults:
        name = re.split(r"[.\[]", fault.path.removeprefix(_CONFIG_PATH))[0]
        if name == "failCgroupV1":
            configuration[name] = False
        elif name != "featureGates" or not gates:
            configuration.pop(name, None)
    return replace(profile, spec=replace(profile.spec, kubelet_configuration=configuration))


def gates_of(profile: NodeProfile) -> Mapping[str, bool]:
    """The feature gates that the node's configuration sets; none if they are no mapping, which is an error of its own."""
    gates = profile.spec.kubelet_configuration.get("featureGates")
    return gates if isinstance(gates, Mapping) else {}


def gate_of(error: str, gates: Mapping[str, bool]) -> str:
    """The gate of the settings that an error of the kubelet names; empty: none.

    >>> gate_of("unrecognized feature gate: MemoryManager", {"MemoryManager": True})
    'MemoryManager'
    """
    words = error.replace(",", " ").split()
    return next((word for word in words if word in gates), "")


def _error_fact(fault: Fault, profile: NodeProfile) -> FactName:
    gate = gate_of(fault.rule, gates_of(profile))
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
    for field in _setting_fields():
        if field.name != "feature_gates":
            value = getattr(kubelet, field.name)
            if field.name == "event_record_qps" and not value:
                limit = events_per_second(kubelet, parts.gates.rules)
                value = f"{limit} a second" if limit else "no limit"
            yield FactName(Aspect.SETTING, field.encode_name), _setting_text(value)


@cache
def _setting_fields() -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(KubeletConfiguration)


def _setting_text(value: Any) -> str:
    if value is None:
        return NONE
    plain = msgspec.to_builtins(value, enc_hook=str)
    return (plain or NONE) if isinstance(plain, str) else json.dumps(plain)


def _file_facts(stored: StoredState, held: StoredState) -> Iterator[tuple[FactName, str]]:
    """What is read of each file; a kubelet that reads no entries of the pod level loses them without a word."""
    read = {StateFile.CPU: stored.cpu, StateFile.MEMORY: stored.memory, StateFile.DEVICES: stored.devices}
    lost = unread_pod_level(stored, held)
    for file, verdict in read.items():
        if verdict is not None:
            value = (
                f"lost: the pod level of {counted(len(lost[file]), 'pod')}" if lost.get(file) else "readable"
            )
            value = "refused" if isinstance(verdict, Refused) else value
            yield FactName(Aspect.STATE_FILE, str(file)), value


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


def _add_manifests(facts: ReleaseFacts, state: NodeState, case: UpgradeCase) -> None:
    """Adds the verdicts about the manifests' pods, admitted one after the other, and the facts of those that run."""
    node, claims, admitted = Node(state), case.claims, dict[str, str]()
    for workload in case.manifests:
        if workload.refusal is not None:
            continue
        result, devices = node.admit(workload.pod), tuple[ClaimedDevice, ...]()
        name, verdict = result.pod.full_name, str(result.decision)
        before, node = node, result.node
        is_refused = result.decision is Decision.REFUSED
        if is_refused:
            verdict = f"refused: {_reason(result.because)}"
        elif claims is not None:
            answer = devices_on(node.config, claims, result.pod)
            claims, devices = answer.after, answer.devices
            if answer.obstacle is not None and not answer.obstacle.is_open:
                node, is_refused = before, True
                verdict = f"refused by the scheduler: {answer.obstacle.why}"
        facts[FactOwner(Area.MANIFESTS, name, is_outcome=True)] = {FactName(Aspect.VERDICT): verdict}
        if not is_refused:
            admitted[result.pod.uid] = name
            facts[FactOwner(Area.MANIFESTS, name)] = {
                FactName(Aspect.POD_LEVEL): _pod_level(workload.pod, node),
                **(dict(placement_facts(result.placement)) if result.placement else {}),
                **_claimed(devices),
            }
    if admitted:
        pods = state_facts(node.state, only=frozenset(admitted))
        _add_state_facts(facts, Area.MANIFESTS, {name: of for name, of in pods.items() if name})


def _claimed(devices: Sequence[ClaimedDevice]) -> Mapping[FactName, str]:
    """The devices that each request of the pod's claims gets."""
    names: dict[FactName, list[str]] = {}
    for each in devices:
        fact = FactName(Aspect.DEVICES, f"claim {each.claim} {each.request}")
        names.setdefault(fact, []).append(f"{each.driver}/{each.pool}/{each.device}")
    return {fact: ",".join(sorted(of)) for fact, of in names.items()}


def _pod_level(pod: Pod, node: Node) -> str:
    if pod.spec.resources is None:
        return NONE
    return "counted" if node.config.gates["PodLevelResources"] else "ignored"


def placement_facts(placement: Placement) -> Iterator[tuple[FactName, str]]:
    """The exclusive allocations of a pod and its containers."""
    if placement.cpus:
        yield FactName(Aspect.CPUS, "pod"), str(placement.cpus)
    for container in placement.containers:
        if container.cpus:
            yield FactName(Aspect.CPUS, container.name), str(container.cpus)
        if numa := sorted({node for block in container.memory for node in block.numa}):
            yield FactName(Aspect.MEMORY, container.name), f"NUMA {','.join(map(str, numa))}"
        for resource, devices in sorted(container.devices.items()):
            yield FactName(Aspect.DEVICES, f"{container.name} {resource}"), ",".join(sorted(devices))


def state_facts(state: NodeState, only: Collection[str] | None = None) -> PodFacts:
    """The facts of the pods of a node, and of its own cgroups; ``only`` these uids.

    Errors: InputError for a uid that is not valid in a cgroup name.
    """
    pods = [pod for uid, pod in state.pods.items() if only is None or uid in only]
    facts: dict[str, dict[FactName, str]] = {pod.full_name: dict(_amounts(pod, state)) for pod in pods}
    for name, fact, value in (*_ranks(state), *_cgroups(state, pods)):
        if not name or name in facts:
            facts.setdefault(name, {})[fact] = value
    return facts


def _amounts(pod: Pod, state: NodeState) -> Iterator[tuple[FactName, str]]:
    config = state.config
    gates, rules = config.gates, config.requests
    counted = without_ungated_resources(pod, config)
    yield FactName(Aspect.QOS_CLASS), str(qos_class(counted, gates.pod_level_qos))
    for resource, amount in pod_requests(counted, rules.options(use_status=True)).items():
        yield FactName(Aspect.REQUEST, resource), str(amount)
    for resource, amount in reclaimable_requests(pod, rules).items():
        yield FactName(Aspect.RECLAIMABLE, resource), str(amount)
    for score in oom_scores(counted, config.parts.machine.memory_capacity, gates):
        yield FactName(Aspect.OOM_SCORE, score.container), str(score.adj)


def _evictions(state: NodeState) -> Iterator[tuple[FactName, str]]:
    """The memory in use beyond which each threshold of `memory.available` is met, huge pages not counted."""
    capacity = Quantity.of(eviction_capacities(state.config).memory, QuantityFormat.BINARY_SI)
    for threshold in state.config.eviction.thresholds:
        if threshold.signal is Signal.MEMORY_AVAILABLE:
            used = capacity.value() - threshold_amount(threshold, capacity).value()
            after = "" if threshold.is_hard else f" for {threshold.grace_period}"
            detail = f"memory.available<{threshold.value.text}{after}"
            yield FactName(Aspect.EVICTION, detail), amount_text(MEMORY, max(used, 0))


def _ranks(state: NodeState) -> Iterator[tuple[str, FactName, str]]:
    """The ranks of pods that use no memory: by priority, then by the request."""
    claims = eviction_claims(state)
    stats = {
        claim.uid: PodStats(pod_ref=PodReference(uid=claim.uid), memory=MemoryStats(working_set_bytes=0))
        for claim in claims
    }
    ranking = ranked_pods(Signal.MEMORY_AVAILABLE, NodeFilesystems(), claims, stats)
    for rank, candidate in enumerate(ranking, 1):
        pod = candidate.active_pod.pod
        yield pod.full_name, FactName(Aspect.EVICTION_RANK), f"{rank} of {len(ranking)}"


def _cgroups(state: NodeState, pods: Collection[Pod]) -> Iterator[tuple[str, FactName, str]]:
    rules = cgroup_rules(state.config)
    allocated = [AllocatedPod(pod, state.held.memory) for pod in pods]
    try:
        groups = node_and_pod_cgroups(state, allocated, rules)
    except CgroupNameError as error:
        raise InputError([Fault(path="metadata.uid", rule=f"the kubelet crashes: {error}")]) from None
    for group in groups:
        for file in group.files:
            yield group.pod, FactName(Aspect.CGROUP_FILE, f"{_place(group)} {file.name}"), file.value


def _place(group: PlannedCgroup) -> str:
    """The cgroup within its pod, or its path; paths of pods name the QoS class, which is a fact of its own."""
    if group.container:
        return group.container
    return "pod" if group.pod or group.level is CgroupLevel.POD else group.path
