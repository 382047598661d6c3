"""What a release makes of the pods of a node: classes, amounts, scores, ranks and the values of cgroup files."""

from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum

import msgspec

from nodewright.engine.core.cgroups.cgroup_names import CgroupNameError
from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel, PlannedCgroup
from nodewright.engine.core.eviction.eviction_ranking import ranked_pods
from nodewright.engine.core.eviction.eviction_thresholds import NodeFilesystems
from nodewright.engine.core.requests.effective_resources import pod_requests
from nodewright.engine.core.requests.integer_requests import reclaimable_requests
from nodewright.engine.core.requests.oom_adjust import oom_scores
from nodewright.engine.core.requests.qos_and_priority import qos_class
from nodewright.engine.node.eviction_pass import eviction_claims
from nodewright.engine.node.node_cgroups import AllocatedPod, cgroup_rules, node_and_pod_cgroups
from nodewright.engine.node.node_state import NodeState, without_ungated_resources
from nodewright.engine.node.pod_placement import Placement
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.stats_summary import MemoryStats, PodReference, PodStats

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


PodFacts = Mapping[str, Mapping[FactName, str]]
"""The values of facts by the pod as namespace/name; those of the node have an empty name."""


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
    yield FactName(Aspect.QOS_CLASS), str(qos_class(counted, gates["PodLevelResources"]))
    for resource, amount in pod_requests(counted, rules.options()).items():
        yield FactName(Aspect.REQUEST, resource), str(amount)
    for resource, amount in reclaimable_requests(pod, rules).items():
        yield FactName(Aspect.RECLAIMABLE, resource), str(amount)
    for score in oom_scores(counted, config.parts.machine.memory_capacity, gates):
        yield FactName(Aspect.OOM_SCORE, score.container), str(score.adj)


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
    return "pod" if group.pod else group.path if group.level is not CgroupLevel.POD else "pod"
