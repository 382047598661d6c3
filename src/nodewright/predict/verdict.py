"""What becomes of a pod that is meant for a node: the kubelet's decision beside the scheduler's."""

from collections.abc import Collection, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from nodewright.engine.core.predicates.scheduler_filters import (
    BoundVolume,
    SchedulerObstacle,
    scheduler_obstacles,
)
from nodewright.engine.node.node_config import NodeConfig
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.pod_admission import Placement
from nodewright.engine.node.restart.initial_node import next_start_refusals
from nodewright.engine.node.step import Decision
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.reason import Reason, kubelet_fatal_error, sentence

if TYPE_CHECKING:
    from nodewright.engine.core.claims.claim_explanation import KnownAnswers
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
    from nodewright.predict.pod_claims import ClaimedDevice, ClaimsOnNode


class SchedulerAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler makes of a pod and a node, whatever pods are there."""

    obstacles: tuple[SchedulerObstacle, ...] = ()
    """Why it never binds the pod to the node; empty: it may."""
    claims: "ClaimCluster | None" = None
    """The claims of the cluster once it is bound; None: nothing is known about claims."""
    on_node: "ClaimsOnNode | None" = None
    """What the claims of the pod get; None: it has none."""

    @property
    def binds(self) -> bool:
        """Whether nothing keeps it from binding the pod."""
        return not self.obstacles

    @property
    def devices(self) -> "tuple[ClaimedDevice, ...]":
        """The devices that the pod's resource claims get."""
        return () if self.on_node is None else self.on_node.devices


def scheduler_answer(
    config: NodeConfig,
    claims: "ClaimCluster | None",
    pod: Pod,
    volumes: Sequence[BoundVolume] = (),
    known: "KnownAnswers | None" = None,
) -> SchedulerAnswer:
    """The answer for a pod that is meant for the node; ``volumes``: those of its claims.

    ``known``: the answers about the pod's resource claims so far, for many nodes; what refuses these is explained briefly.
    """
    if claims is None and not pod.spec.resource_claims:
        return SchedulerAnswer(obstacles=obstacles_on(config, pod, volumes))
    from nodewright.predict.pod_claims import claims_on  # noqa: PLC0415 - start-up time without claims

    answer = claims_on(config, claims, pod, known)
    others = obstacles_on(config, pod, volumes, answer.served)
    of_claims = () if answer.obstacle is None else (answer.obstacle,)
    return SchedulerAnswer(obstacles=(*others, *of_claims), claims=answer.after, on_node=answer)


def obstacles_on(
    config: NodeConfig, pod: Pod, volumes: Sequence[BoundVolume] = (), served: Collection[str] = ()
) -> tuple[SchedulerObstacle, ...]:
    """Why the scheduler never binds the pod to the node, by the node's gates, its resource claims aside.

    ``served``: the extended resources that device classes serve.
    """
    comparisons = config.gates["TaintTolerationComparisonOperators"]
    return scheduler_obstacles(pod, config.view, volumes, comparisons=comparisons, served=served)


def unaligned(
    config: NodeConfig,
    claims: "ClaimCluster | None",
    scheduler: SchedulerAnswer,
    pod: Pod,
    placement: Placement | None,
) -> tuple[str, ...]:
    """What of the pod's claims is not aligned with its CPUs and memory, with what would be; a sentence each.

    ``claims``: those before the pod is bound. ``placement``: of the pod if it is admitted.
    """
    if not scheduler.devices or scheduler.on_node is None or claims is None or placement is None:
        return ()
    from nodewright.predict.claim_alignment import alignment_sentences  # noqa: PLC0415 - start-up time without claims

    return tuple(alignment_sentences(config, claims, scheduler.on_node, pod, placement))


class Verdict(StrEnum):
    """What becomes of a pod that is meant for the node."""

    ADMITTED = "admitted"
    REFUSED = "refused"
    """By the API server or the kubelet."""
    UNDECIDED = "undecided"
    UNSCHEDULABLE = "unschedulable"
    """The kubelet would not refuse it, but the scheduler never binds it to the node."""


def verdict_of(decision: Decision, obstacles: Sequence[SchedulerObstacle]) -> Verdict:
    """The kubelet's decision, unless it is no refusal and the scheduler never binds the pod, or may not bind it."""
    if not obstacles or decision is Decision.REFUSED:
        return Verdict(decision)
    return Verdict.UNDECIDED if all(each.is_open for each in obstacles) else Verdict.UNSCHEDULABLE


def next_start_sentence(reason: Reason) -> str:
    """Why the kubelet does not start the next time, as a sentence."""
    error = kubelet_fatal_error(reason)
    return f"the kubelet does not start again, after a restart, a reboot or an upgrade: {error} ({sentence(reason)})"


def later_sentences(state: NodeState, uid: str) -> tuple[str, ...]:
    """What comes later of the admission of a pod that holds resources on the node; empty: nothing."""
    holders = {*state.held.cpu.assignments, *state.held.cpu.pods, *state.held.memory.assignments}
    if uid not in holders:
        return ()
    return tuple(map(next_start_sentence, next_start_refusals(state)))
