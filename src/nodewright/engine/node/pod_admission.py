"""The kubelet's admission handlers in order, and the preemption of victims for a critical pod.

Also the exclusive allocations of a pod, and the unallocated resources of a node.
"""

from collections.abc import Mapping

import msgspec

from nodewright.engine.core.devices.device_assignment import (
    DevicesByResource,
    container_device_ids,
    free_devices,
    in_use_counts,
)
from nodewright.engine.core.eviction.eviction_state import pressure_refusal
from nodewright.engine.core.memory.memory_state import Block
from nodewright.engine.core.pod_features import (
    app_armor_refusal,
    disabled_pod_level_resources,
    forbidden_sysctl,
    missing_features,
)
from nodewright.engine.core.predicates.predicate_check import PredicateResult, check_predicates
from nodewright.engine.core.preemption.greedy import PreemptionVictims, victims_for
from nodewright.engine.core.topology.manager_config import NONE_POLICY
from nodewright.engine.node.actions import Action, CountPreemption, KillPod, RecordPodEvent, StatusChange
from nodewright.engine.node.managers.hint_providers import Holdings
from nodewright.engine.node.managers.manager_admission import AlignmentResult, ResourceManagers, align_pod
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState, container_names, without_ungated_resources
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import NotJudged, Reason
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.model.values.idset import CPUSet, NUMASet
from nodewright.model.values.topology_hints import Hint


class AdmissionResult(msgspec.Struct, frozen=True):
    """The result of the admission handlers: reasons for rejection (empty: admitted), victims and holdings."""

    rejected_for: tuple[Reason, ...] = ()
    victims: PreemptionVictims | None = None
    held: Holdings | None = None
    """The holdings after the resource managers; None: an earlier handler rejected the pod."""
    because: tuple[Reason, ...] = ()
    """The evidence for the managers' allocations."""
    by_managers: bool = False
    """Whether the resource managers rejected the pod."""


def admission_result(state: NodeState, pod: Pod) -> AdmissionResult:
    """The result of the handlers in order; the first refusal decides."""
    config = state.config
    counted = without_ungated_resources(pod, config)
    if state.conditions:
        under_pressure = pressure_refusal(
            state.conditions, counted, comparisons=config.gates["TaintTolerationComparisonOperators"]
        )
        if under_pressure is not None:
            return AdmissionResult((under_pressure,))
    forbidden = forbidden_sysctl(pod, config.sysctls)
    if forbidden is not None:
        return AdmissionResult((forbidden,))
    alignment = alignment_result(state, pod)
    if alignment.rejected_for:
        return AdmissionResult(
            alignment.rejected_for, held=alignment.held, because=alignment.because, by_managers=True
        )
    rejected_for, victims = _predicates_and_preemption(state, counted, alignment.held)
    if not rejected_for:
        # Victims are already killed at this point, even if a later handler rejects the pod.
        rejected_for = _late_refusal(config, pod)
    return AdmissionResult(rejected_for, victims, alignment.held, alignment.because)


def alignment_result(state: NodeState, pod: Pod) -> AlignmentResult:
    """The resource managers' result for a pod."""
    return align_pod(state.config.managers, state.held, pod, state.containers_to_collect(pod))


def predicate_result(state: NodeState, pod: Pod, held: Holdings) -> PredicateResult:
    """The predicates' result with these holdings, which include the pod's own."""
    config = state.config
    view = config.view.with_allocated_devices(in_use_counts(held.devices))
    return check_predicates(pod, view, state.usage, fresh=view, rules=config.rules)


def admission_doubts(state: NodeState, pod: Pod, result: AdmissionResult) -> tuple[NotJudged, ...]:
    """The doubt about this decision because of earlier undecided pods; empty if it is the same without them."""
    if not state.undecided_pods:
        return ()
    without = state
    for uid in state.undecided_pods:
        without = without.without_pod(uid)
    same = bool(result.rejected_for) == bool(admission_result(without, pod).rejected_for)
    if same and result.victims is None:
        return ()
    names = ", ".join(
        undecided.full_name for uid, undecided in state.pods.items() if uid in state.undecided_pods
    )
    return (NotJudged(what="the room that is left", because=f"undecided before it: {names}"),)


def is_rejected_regardless(state: NodeState, pod: Pod, result: AdmissionResult) -> bool:
    """Whether the pod is rejected for every possible placement on the node."""
    if not result.by_managers:
        return True
    rejected_for, _ = _predicates_and_preemption(
        state, without_ungated_resources(pod, state.config), state.held
    )
    return bool(rejected_for)


def without_victims(state: NodeState, victims: PreemptionVictims | None) -> NodeState:
    """The node without the preempted pods."""
    if victims is None:
        return state
    return state.without_active([victim.pod.uid for victim in victims.victims])


PREEMPTING_REASON = "Preempting"
PREEMPTED_MESSAGE = "Preempted in order to admit critical pod"
DISRUPTION_MESSAGE = "Pod was preempted by Kubelet to accommodate a critical pod."


def preemption_actions(victims: PreemptionVictims) -> tuple[Action, ...]:
    """For each victim: the event, then the kill, counted if it succeeds. The pod is admitted even if a kill fails.

    Follows: v1.36, pkg/kubelet/preemption/preemption.go, evictPodsToFreeRequests.
    """
    status = StatusChange(
        phase="Failed",
        reason=PREEMPTING_REASON,
        message=PREEMPTED_MESSAGE,
        disruption_target=DISRUPTION_MESSAGE,
    )
    count = CountPreemption(signal=victims.signal)
    actions: list[Action] = []
    for victim in victims.victims:
        uid = victim.pod.uid
        actions.append(
            RecordPodEvent(pod_uid=uid, type="Warning", reason=PREEMPTING_REASON, message=PREEMPTED_MESSAGE)
        )
        actions.append(KillPod(pod_uid=uid, status=status, if_done=(count,)))
    return tuple(actions)


class ContainerPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """The exclusive allocations of one container."""

    name: str
    cpus: CPUSet | None
    """None: the container runs in the shared pool."""
    memory: tuple[Block, ...]
    """For init containers only the blocks that later containers do not reuse."""
    devices: DevicesByResource
    hint: Hint | None
    """The topology manager's hint; None: no hint was merged, or it is unknown."""

    @property
    def holds_anything(self) -> bool:
        """Whether the container has an exclusive allocation."""
        return bool(self.cpus or self.memory or self.devices)


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The allocations of a pod: of its containers in order, init containers first, and of the pod level."""

    containers: tuple[ContainerPlacement, ...]
    cpus: CPUSet | None = None
    """The pod-level CPUs, shared by its containers; only with the gate PodLevelResourceManagers."""
    memory: tuple[Block, ...] | None = None
    """The pod-level memory blocks."""

    @property
    def holds_anything(self) -> bool:
        """Whether the pod or one of its containers has an exclusive allocation."""
        return bool(self.cpus or self.memory) or any(
            container.holds_anything for container in self.containers
        )


class NUMAMemoryFree(msgspec.Struct, frozen=True, kw_only=True):
    """The free memory of one NUMA node.

    Units: bytes by kind of memory.
    """

    numa: int
    group: NUMASet
    """The NUMA nodes that share allocations with it, itself included."""
    assignments: int
    """Number of blocks that include the NUMA node."""
    free: Mapping[str, int]


class UnallocatedResources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources without an exclusive owner."""

    shared_cpus: CPUSet | None
    """The shared pool; None: there are no exclusive CPUs (policy none)."""
    reserved_cpus: CPUSet
    """The CPUs that are never allocated exclusively."""
    memory: tuple[NUMAMemoryFree, ...]
    """By NUMA node; empty: there are no memory allocations (policy None)."""
    devices: DevicesByResource
    """The healthy unallocated devices."""


def placement_of(state: NodeState, pod: Pod) -> Placement:
    """The allocations of the pod in this state."""
    return placement_by(state.config.managers, state.held, pod)


def placement_by(managers: ResourceManagers, held: Holdings, pod: Pod) -> Placement:
    """The allocations of the pod among these holdings of a node with such managers."""
    uid = pod.uid
    hints = held.hints.get(uid, {}) if managers.policy != NONE_POLICY else {}
    return Placement(
        containers=tuple(
            [
                ContainerPlacement(
                    name=name,
                    cpus=held.cpu.exclusive(uid, name),
                    memory=blocks_by_kind(held.memory.blocks(uid, name) or ()),
                    devices=container_device_ids(held.devices, uid, name),
                    hint=hints.get(name),
                )
                for name in container_names(pod)
            ]
        ),
        cpus=held.cpu.pods.get(uid),
        memory=blocks_by_kind(held.memory.pods[uid]) if uid in held.memory.pods else None,
    )


def unallocated_resources(state: NodeState) -> UnallocatedResources:
    """The unallocated resources of the node in this state."""
    held, managers = state.held, state.config.managers
    cpu_policy = managers.static_cpu_policy
    return UnallocatedResources(
        shared_cpus=held.cpu.default if cpu_policy else None,
        reserved_cpus=cpu_policy.reserved if cpu_policy else CPUSet(),
        memory=_memory_left(state) if managers.static_memory_policy else (),
        devices=free_devices(held.devices),
    )


def blocks_by_kind(blocks: tuple[Block, ...]) -> tuple[Block, ...]:
    """The blocks sorted by resource."""
    return tuple(sorted(blocks, key=lambda block: block.resource)) if len(blocks) > 1 else blocks


def _late_refusal(config: NodeConfig, pod: Pod) -> tuple[Reason, ...]:
    """The refusal of the handlers after the predicates; empty: none."""
    counts_pod_level = config.gates["PodLevelResources"] or not config.gates.rules.pod_features_checked
    refusal = (
        app_armor_refusal(pod, has_app_armor=config.facts.has_app_armor)
        or disabled_pod_level_resources(pod, gate=counts_pod_level)
        or missing_features(pod, config.declared_features)
    )
    return () if refusal is None else (refusal,)


def _predicates_and_preemption(
    state: NodeState, pod: Pod, held: Holdings
) -> tuple[tuple[Reason, ...], PreemptionVictims | None]:
    """The predicates' reasons for rejection and, if a critical pod fails them, the victims of its preemption."""
    result = predicate_result(state, pod, held)
    if isinstance(result.verdict, Granted):
        return (), None
    if not result.failures:
        return result.verdict.because, None
    victims = victims_for(pod, tuple(state.pods.values()), result.failures, state.config.requests)
    return (victims.because, None) if isinstance(victims, Refused) else ((), victims.value)


def _memory_left(state: NodeState) -> tuple[NUMAMemoryFree, ...]:
    return tuple(
        NUMAMemoryFree(
            numa=numa,
            group=node.cells,
            assignments=node.assignments,
            free={kind: table.free for kind, table in node.tables.items()},
        )
        for numa, node in sorted(state.held.memory.machine.items())
    )
