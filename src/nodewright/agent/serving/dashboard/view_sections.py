"""All sections of a dashboard, of an agent's state and of a plan: node, pods, events, explanations."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import msgspec

from nodewright.agent.observe.event_recorder import RecordedEvent
from nodewright.agent.serving.api_objects import NodeSystemInfo, lending_texts, node_object
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodStage
from nodewright.documents.output.json_yaml import plain_value
from nodewright.documents.output.kubectl_tables import pod_columns
from nodewright.engine.core.eviction.eviction_ranking import EvictionCandidate
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.engine.core.requests.qos_and_priority import is_critical, qos_class
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement, placement_of, unallocated_resources
from nodewright.engine.node.previews import NodeEvictionForecast
from nodewright.engine.node.step import Decision
from nodewright.model.hardware import Core, NUMANode
from nodewright.model.kubernetes.eviction_thresholds import SIGNAL_RESOURCES
from nodewright.model.kubernetes.node_profile import API_VERSION
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.resource_names import MEMORY, PIDS, readable_amount
from nodewright.model.reasons.reason import kubelet_text
from nodewright.model.values.idset import CPUSet
from nodewright.predict.admit.admission_report import AdmissionEntry
from nodewright.predict.evict.evict_report import ranking_key_text
from nodewright.predict.explain.explanation import Explanation
from nodewright.predict.explain.reason_tree import ReasonBranch, numa_tables, reason_tree
from nodewright.predict.explain.suggestion_text import (
    incomplete_search_text,
    largest_pod_texts,
    pair_text,
    suggestion_text,
)
from nodewright.predict.node_report.cgroup_report import ReportedCgroup
from nodewright.predict.node_report.report_parts import (
    message_origin,
    pod_allocations,
    policy_notices,
    requested_and_allocatable,
)

MAX_EVENTS = 200


def agent_sections(
    state: AgentState,
    records: Sequence[PodRecord],
    marks: Mapping[str, int],
    events: Iterable[RecordedEvent],
    system_info: NodeSystemInfo,
) -> dict[str, Any]:
    """The sections of an agent's dashboard."""
    config = state.node.config
    return {
        "about": {
            "apiVersion": API_VERSION,
            "kind": "AgentView",
            **setup_section(config, lending_texts(state)),
            "version": system_info.kubelet_version,
            "runtime": system_info.container_runtime_version,
            "startedMs": system_info.started_ns // 10**6,
            "takesNoPods": state.shutdown_reason,
        },
        "machine": machine_section(config),
        "holdings": allocations_section(state.node),
        "resources": resources_section(state.node),
        "conditions": node_object(state, system_info)["status"]["conditions"],
        "pods": agent_pods(records, state, marks),
        "events": events_section(events),
    }


def events_section(events: Iterable[RecordedEvent]) -> list[dict[str, Any]]:
    """Recent events, the newest first.

    Units: milliseconds since 1970.
    """
    return [
        {
            "number": event.sequence_number,
            "atMs": event.last_timestamp_ns // 10**6,
            "count": event.count,
            "isWarning": event.is_warning,
            "reason": event.reason,
            "message": event.message,
            "namespace": event.namespace if event.name else "",
            "name": event.name,
        }
        for event in list(events)[: -MAX_EVENTS - 1 : -1]
    ]


def pods_to_mark(records: Iterable[PodRecord], state: AgentState) -> list[str]:
    """The pods with marks: those on the node."""
    uids = [
        record.pod.uid for record in records if record.stage not in (PodStage.REJECTED, PodStage.TERMINATED)
    ]
    return pods_by_exclusive_use(uids, state.node)


def plan_sections(
    entries: Sequence[AdmissionEntry],
    before: NodeState,
    after: NodeState,
    *,
    skipped: Mapping[str, int],
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """The sections of a plan's dashboard."""
    decision_counts = Counter(entry.decision.value for entry in entries)
    return {
        "about": {
            "apiVersion": API_VERSION,
            "kind": "PlanView",
            **setup_section(after.config),
            "answers": dict(sorted(decision_counts.items())),
            "skipped": dict(skipped),
            "warnings": list(warnings),
        },
        "machine": machine_section(after.config),
        "holdings": allocations_section(after),
        "resources": resources_section(after),
        "conditions": [
            {"type": str(condition), "status": "True", "reason": ""} for condition in after.conditions
        ],
        "pods": list(plan_pods(entries, before, after)),
        "events": [],
    }


# ---------------------------------------------------------------- node


def machine_section(config: NodeConfig) -> dict[str, Any]:
    """The machine, which is constant.

    Units: bytes.
    """
    nodes = sorted(config.parts.machine.topology, key=lambda node: node.node_id)
    return {
        "cpus": sum(len(core.thread_ids) for node in nodes for core in node.cores),
        "memoryBytes": config.parts.machine.memory_capacity,
        "numa": [_numa(node) for node in nodes],
    }


def _numa(node: NUMANode) -> dict[str, Any]:
    return {
        "id": node.node_id,
        "memoryBytes": node.memory,
        "distances": list(node.distances),
        "cpus": str(CPUSet.from_ids(id_ for core in node.cores for id_ in core.thread_ids)),
        "sockets": sorted({core.socket_id for core in node.cores}),
        "hugePages": [
            {"bytes": hugepage.page_size << 10, "count": hugepage.num_pages} for hugepage in node.hugepages
        ],
        "groups": _groups(node),
    }


def _groups(node: NUMANode) -> list[dict[str, Any]]:
    """The cores that share a socket and the cache next to memory, in the order of their first CPUs."""
    groups: dict[tuple[int, int | None], list[Core]] = {}
    for core in sorted(node.cores, key=lambda core: (min(core.thread_ids, default=0), core.core_id)):
        cache = core.uncore_caches[0].id if core.uncore_caches else None
        groups.setdefault((core.socket_id, cache), []).append(core)
    return [
        {
            "socket": socket,
            "cache": cache,
            "cacheBytes": cores[0].uncore_caches[0].size if cache is not None else 0,
            "cores": [{"id": core.core_id, "cpus": sorted(core.thread_ids)} for core in cores],
        }
        for (socket, cache), cores in groups.items()
    ]


def allocations_section(state: NodeState) -> dict[str, Any]:
    """The exclusive CPUs, memory and devices of each pod, by uid.

    Units: bytes.
    """
    left = unallocated_resources(state)
    return {
        "reservedCPUs": str(left.reserved_cpus),
        "sharedCPUs": None if left.shared_cpus is None else str(left.shared_cpus),
        "cpus": [
            {"pod": holder.pod, "container": holder.container, "cpus": str(holder.cpus)}
            for holder in state.held.cpu.holders()
            if holder.pod in state.pods and holder.cpus
        ],
        "memory": [
            {
                "numa": memory_state.numa,
                "with": [other for other in memory_state.group if other != memory_state.numa],
                "kinds": [
                    {"type": kind, "total": table.total, "allocatable": table.allocatable, "free": table.free}
                    for kind, table in sorted(
                        state.held.memory.machine[memory_state.numa].tables.items(),
                        key=lambda kind: (kind[0] != MEMORY, kind[0]),
                    )
                ],
            }
            for memory_state in left.memory
        ],
        "blocks": list(_blocks(state)),
        "devices": list(_devices(state)),
    }


def _blocks(state: NodeState) -> Iterator[dict[str, Any]]:
    held = state.held.memory
    for uid in state.pods:
        own = (
            [("", held.pods.get(uid, ()))]
            if uid in held.pods
            else list(held.assignments.get(uid, {}).items())
        )
        for container, blocks in own:
            for block in blocks:
                if block.size:
                    yield {
                        "pod": uid,
                        "container": container,
                        "type": block.resource,
                        "numa": list(block.numa),
                        "bytes": block.size,
                    }


def _devices(state: NodeState) -> Iterator[dict[str, Any]]:
    holders = {
        (resource, device): (uid, container)
        for uid, containers in state.held.devices.pod_devices.items()
        if uid in state.pods
        for container, resources in containers.items()
        for resource, devices in resources.items()
        for device in devices
    }
    for resource, listed in sorted(state.config.facts.devices.items()):
        for device in sorted(listed, key=lambda device: device.id):
            uid, container = holders.get((resource, device.id), (None, ""))
            yield {
                "resource": resource,
                "id": device.id,
                "numa": sorted(device.numa_nodes or ()),
                "healthy": device.healthy,
                "pod": uid,
                "container": container,
            }


def pods_by_exclusive_use(uids: Iterable[str], state: NodeState) -> list[str]:
    """The pods, those with exclusive resources first, so that they get the first marks."""
    held = state.held
    having = {*held.cpu.assignments, *held.cpu.pods, *held.memory.assignments, *held.devices.pod_devices}
    return sorted(uids, key=lambda uid: uid not in having)


def resources_section(state: NodeState) -> list[dict[str, Any]]:
    """The allocatable, requested and remaining amount of each resource.

    Units: cpu in thousandths, memory and storage in bytes, everything else as counts.
    """
    return [
        {
            "name": name,
            "allocatable": allocatable,
            "requested": requested,
            "texts": [
                readable_amount(name, requested),
                readable_amount(name, allocatable),
                readable_amount(name, allocatable - requested),
            ],
        }
        for name, allocatable, requested in requested_and_allocatable(state)
        if allocatable or requested
    ]


def setup_section(config: NodeConfig, lending: Mapping[str, str] = MappingProxyType({})) -> dict[str, Any]:
    """The applied release rules, policies, labels and taints of the node, and what it lends."""
    kubelet = config.parts.kubelet
    settings = {
        "topology manager": f"{kubelet.topology_manager_policy}, by {kubelet.topology_manager_scope}",
        "CPU manager": kubelet.cpu_manager_policy,
        "memory manager": kubelet.memory_manager_policy,
        **{name.replace("-", " "): text for name, text in lending.items()},
    }
    return {
        "node": config.facts.name,
        "release": config.release.release.text,
        "rulesOf": config.release.rules_of,
        "settings": [[name, value] for name, value in settings.items()],
        "policies": policy_notices(config).splitlines(),
        "labels": dict(sorted(config.facts.labels.items())),
        "taints": [
            f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"
            for taint in config.facts.taints
        ],
    }


# ---------------------------------------------------------------- pods


def pod_marks(uids: Iterable[str], before: Mapping[str, int] | None = None) -> dict[str, int]:
    """The mark of each pod: its previous one, or the smallest free number.

    A mark is a number that determines a pod's colour, pattern and letters.

    >>> pod_marks(["a", "b"])
    {'a': 0, 'b': 1}
    >>> pod_marks(["b", "c", "d"], {"a": 0, "b": 1})
    {'b': 1, 'c': 0, 'd': 2}
    """
    previous = before or {}
    unique_uids = list(dict.fromkeys(uids))
    kept = {uid: previous[uid] for uid in unique_uids if uid in previous}
    used, free, marks = set(kept.values()), 0, dict[str, int]()
    for uid in unique_uids:
        if uid not in kept:
            while free in used:
                free += 1
            used.add(free)
        marks[uid] = kept.get(uid, free)
    return marks


def mark_letters(mark: int) -> str:
    """The letters of a mark.

    >>> [mark_letters(mark) for mark in (0, 25, 26, 109)]
    ['A', 'Z', 'AA', 'DF']
    """
    text = ""
    mark += 1
    while mark:
        mark, rest = divmod(mark - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


Tone: TypeAlias = Literal["good", "wait", "bad", "over"]
"""The state of a pod: running, pending, failed, or ended."""

_STAGES: Mapping[PodStage, Tone] = {
    PodStage.ALLOCATING: "wait",
    PodStage.WAITING: "wait",
    PodStage.TERMINATING: "wait",
    PodStage.TERMINATED: "over",
    PodStage.REJECTED: "bad",
}
_DECISIONS: Mapping[Decision, Tone] = {Decision.ADMITTED: "good", Decision.REFUSED: "bad"}
PRE_EXISTING = "there"
"""The stage of pods that were on the node before the plan."""


def agent_pods(
    records: Sequence[PodRecord], state: AgentState, marks: Mapping[str, int]
) -> list[dict[str, Any]]:
    """The cards of an agent's pods."""
    return [_record_card(record, state, marks) for record in records]


def _record_card(record: PodRecord, state: AgentState, marks: Mapping[str, int]) -> dict[str, Any]:
    pod, stage = record.pod, record.stage
    columns = pod_columns(msgspec.structs.replace(pod, status=record.status))
    placement = placement_of(state.node, pod) if pod.uid in state.node.pods else None
    created, started = pod.metadata.creation_timestamp, record.status.start_time
    waits_for = [state.pods[uid].pod.full_name for uid in sorted(record.waits_for) if uid in state.pods]
    return {
        **_card(pod, placement, marks),
        "stage": str(stage),
        "word": columns.status or str(stage).capitalize(),
        "tone": _STAGES.get(stage) or _tone(record, columns.ready, columns.total),
        "ready": f"{columns.ready}/{columns.total}",
        "restarts": columns.restarts,
        "created": str(created) if created is not None else started or None,
        "source": str(record.source),
        "reason": record.status_override.reason if record.status_override is not None else "",
        "message": record.status_override.message if record.status_override is not None else "",
        "waitsFor": waits_for,
        "preempts": [],
        "preemptedBy": "",
        "makesWay": record.is_preempted,
        "asked": stage is not PodStage.TERMINATED,
    }


def _tone(record: PodRecord, ready: int, of: int) -> Tone:
    if record.status.phase == "Failed" or record.container_waiting:
        return "bad"
    if record.status.phase == "Succeeded":
        return "over"
    return "good" if ready == of else "wait"


def plan_pods(
    entries: Sequence[AdmissionEntry], before: NodeState, after: NodeState
) -> Iterator[dict[str, Any]]:
    """The cards of a plan's pods, in order; then of the pods that were on the node before."""
    marks = pod_marks(pods_by_exclusive_use(after.pods, after))
    preempted_by = {victim.uid: entry.pod.full_name for entry in entries for victim in entry.preempted}
    for entry in entries:
        yield _entry_card(entry, preempted_by.get(entry.pod.uid, ""), after, marks)
    planned_uids = {entry.pod.uid for entry in entries}
    for uid, pod in before.pods.items():
        if uid not in planned_uids:
            yield _node_pod_card(pod, preempted_by.get(uid, ""), after, marks)


def _entry_card(
    entry: AdmissionEntry, preempted_by: str, after: NodeState, marks: Mapping[str, int]
) -> dict[str, Any]:
    is_on_node = entry.pod.uid in after.pods
    tone: Tone = "over" if preempted_by else _DECISIONS.get(entry.decision, "wait")
    return {
        **_card(entry.pod, entry.placement if is_on_node else None, marks),
        "stage": entry.decision.value,
        "word": "preempted" if preempted_by else entry.decision.value,
        "tone": tone,
        "source": entry.origin,
        "reason": entry.kubelet.reason,
        "message": entry.kubelet.message,
        "preempts": [pod.full_name for pod in entry.preempted],
        "preemptedBy": preempted_by,
        "asked": True,
    }


def _node_pod_card(pod: Pod, preempted_by: str, after: NodeState, marks: Mapping[str, int]) -> dict[str, Any]:
    is_on_node = pod.uid in after.pods
    return {
        **_card(pod, placement_of(after, pod) if is_on_node else None, marks),
        "stage": PRE_EXISTING if is_on_node else "gone",
        "word": "preempted" if preempted_by else "on the node",
        "tone": "good" if is_on_node else "over",
        "source": "",
        "reason": "",
        "message": "",
        "preempts": [],
        "preemptedBy": preempted_by,
        "asked": is_on_node,
    }


def _card(pod: Pod, placement: Placement | None, marks: Mapping[str, int]) -> dict[str, Any]:
    """The fields of every card; pods without exclusive resources have no mark."""
    mark = marks.get(pod.uid)
    card: dict[str, Any] = {
        "key": pod.uid,
        "namespace": pod.metadata.namespace or "default",
        "name": pod.metadata.name,
        "qosClass": qos_class(pod).value,
        "priority": pod.spec.priority or 0,
        "isCritical": is_critical(pod),
        "requests": [
            [name, readable_amount(name, amount)]
            for name, amount in sorted(scheduler_requests(pod).items())
            if amount
        ],
        "mark": mark,
        "letters": "" if mark is None else mark_letters(mark),
    }
    if placement is not None and placement.holds_anything:
        card["placement"] = plain_value(pod_allocations(placement))
    return card


# ---------------------------------------------------------------- explanations


def explanation_section(explained: Explanation) -> dict[str, Any]:
    """The node's decision about a pod, its reasons as a tree, and the smallest changes that would let it in."""
    step, counterfactuals = explained.step, explained.counterfactuals
    document: dict[str, Any] = {
        "verdict": step.decision.value if step.decision is not None else "",
        "tree": _branches(reason_tree(explained)),
        "tables": [msgspec.to_builtins(table) for table in numa_tables(explained)],
    }
    if step.decision is Decision.REFUSED:
        text = kubelet_text(step.because[0])
        document |= {
            "speaker": message_origin(step.because[0]),
            "reason": text.reason,
            "message": text.message,
            "fixes": [
                {"kind": suggestion.kind, "text": suggestion_text(suggestion)}
                for suggestion in counterfactuals.suggestions
            ]
            + [{"kind": "two changes", "text": pair_text(pair)} for pair in explained.pairs],
            "beside": list(
                filter(None, (*largest_pod_texts(explained), incomplete_search_text(counterfactuals)))
            ),
        }
    return document


def _branches(branches: Iterable[ReasonBranch]) -> list[dict[str, Any]]:
    return [
        {
            "text": branch.text,
            "tone": branch.tone,
            "detail": branch.is_detail,
            "below": _branches(branch.children),
        }
        for branch in branches
    ]


def eviction_ranking_section(forecast: NodeEvictionForecast) -> dict[str, Any]:
    """The order in which pods are evicted for the signal, and the pods that are evicted at the current usage."""
    ranked = forecast.ranking
    return {
        "signal": str(forecast.signal),
        "pods": [
            _rank(forecast, candidate, next_candidate)
            for candidate, next_candidate in zip(ranked, [*ranked[1:], None], strict=True)
        ],
        "going": [eviction.eviction.active_pod.pod.full_name for eviction in forecast.outlook.evictions],
    }


def _rank(
    forecast: NodeEvictionForecast, candidate: EvictionCandidate, next_candidate: EvictionCandidate | None
) -> dict[str, Any]:
    resource = SIGNAL_RESOURCES[forecast.signal]
    meta = candidate.active_pod.pod.metadata
    return {
        "key": candidate.active_pod.uid,
        "namespace": meta.namespace or "default",
        "name": meta.name,
        "isCritical": candidate.active_pod.is_critical,
        "priority": candidate.active_pod.priority,
        "uses": readable_amount(resource, candidate.usage) if candidate.has_stats else "?",
        "requests": ""
        if resource == PIDS or not candidate.has_stats
        else readable_amount(resource, int(candidate.request or 0)),
        "before": ""
        if next_candidate is None
        else ranking_key_text(forecast.signal, candidate, next_candidate),
    }


def cgroups_section(groups: Sequence[ReportedCgroup]) -> list[dict[str, Any]]:
    """The cgroup values of a pod with their reasons."""
    return [
        {
            "path": group.path,
            "container": group.container or "",
            "files": [[file.file, file.value, file.why] for file in group.files],
        }
        for group in groups
    ]
