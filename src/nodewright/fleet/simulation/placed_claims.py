"""The resource claims of a fleet: pods get devices where they are placed, and give them back when they leave."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from nodewright.engine.core.claims.claim_explanation import KnownAnswers
from nodewright.engine.core.claims.claim_lifecycle import without_pod
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.engine.core.claims.device_pools import IndexedSlices
from nodewright.engine.core.claims.extended_resources import classes_of_resources
from nodewright.engine.core.predicates.scheduler_filters import SchedulerObstacle
from nodewright.engine.node.node_state import NodeState
from nodewright.fleet.simulation.outcomes import FleetPodRecord
from nodewright.fleet.simulation.pod_templates import PodTemplate
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.feature_gates import FeatureGates
from nodewright.predict.pod_claims import ClaimsOnNode, claims_on

SERVED_AMOUNT = 2**62
"""Of an extended resource that a device class serves, on a node that has none: its devices are counted by claims."""


def with_served(
    amounts: Mapping[str, int], claims: ClaimCluster | None, gates: FeatureGates
) -> Mapping[str, int]:
    """The allocatable amounts, with the extended resources that device classes serve on a node that has none."""
    if claims is None or not gates["DRAExtendedResource"]:
        return amounts
    unlisted = (name for name in classes_of_resources(claims.classes) if not amounts.get(name))
    return {**amounts, **dict.fromkeys(unlisted, SERVED_AMOUNT)}


class PlacedClaims:
    """The claims at a time of the simulation. Changed in place.

    Departs: the pods of a dump have the devices of their claims, whatever these ask for.
    """

    def __init__(self, cluster: ClaimCluster, state_of: Callable[[int], NodeState]) -> None:
        """``state_of``: a state of the node of a number, whose configuration has its name and labels."""
        self.cluster = replace(cluster, is_whole=True)
        self._state_of = state_of
        self._served = frozenset(classes_of_resources(cluster.classes))
        self._uids = {
            (claim.metadata.namespace, user.name): user.uid
            for claim in cluster.claims
            for user in claim.status.reserved_for
        }
        self._is_by_node = not IndexedSlices(cluster.slices).for_many
        """Whether what is allocated on a node is of no concern to the others, unless pods share claims."""
        self._obstacles: dict[int, dict[int, str]] = {}
        """What is known, by template and node."""
        self._answers: dict[int, KnownAnswers] = {}
        """By template."""
        self._texts: dict[str, str] = {}
        """By the kind of obstacle."""
        self._holders: dict[int, tuple[Pod, int]] = {}
        """The pods with claims and their nodes."""

    def has_claims(self, template: PodTemplate) -> bool:
        """Whether a pod of the template needs devices by claims."""
        return bool(template.pod.spec.resource_claims) or any(
            name in self._served for name, _ in template.other_requests
        )

    def obstacle(self, template: PodTemplate, record: FleetPodRecord, number: int, node: int) -> str:
        """Why the pod does not get its devices on the node; empty: it does."""
        known = self._obstacles.setdefault(template.number, {})
        if node not in known:
            answers = self._answers.setdefault(template.number, {})
            obstacle = self._answer(self._pod(template, record, number), node, answers).obstacle
            known[node] = "" if obstacle is None else self._text(obstacle)
        return known[node]

    def _text(self, obstacle: SchedulerObstacle) -> str:
        """Why: one text for all nodes where it is of the same kind, with the first of them as the example."""
        text, why = obstacle.message, obstacle.why
        return self._texts.setdefault(obstacle.family, why if text in why else f"{text}, for example: {why}")

    def add(self, template: PodTemplate, record: FleetPodRecord, number: int, node: int) -> None:
        """Allocates the devices of a pod that is placed; nothing is allocated where they do not suffice."""
        pod = self._pod(template, record, number)
        self._holders[number] = pod, node
        if any(user.uid == pod.uid for claim in self.cluster.claims for user in claim.status.reserved_for):
            return
        answer = self._answer(pod, node)
        if answer.obstacle is None and answer.after is not None:
            self.cluster = answer.after
            self._forget(pod, node)

    def remove(self, number: int) -> None:
        """Gives back the devices of a pod that has left."""
        if number in self._holders:
            pod, node = self._holders.pop(number)
            self.cluster = without_pod(self.cluster, pod)
            self._forget(pod, node)

    def _forget(self, pod: Pod, node: int) -> None:
        """Forgets what the change of the pod's claims may have made untrue."""
        if self._is_by_node and all("resourceClaimName" not in each for each in pod.spec.resource_claims):
            for known in self._obstacles.values():
                known.pop(node, None)
        else:
            self._obstacles.clear()

    def _answer(self, pod: Pod, node: int, known: KnownAnswers | None = None) -> ClaimsOnNode:
        return claims_on(self._state_of(node).config, self.cluster, pod, known)

    def _pod(self, template: PodTemplate, record: FleetPodRecord, number: int) -> Pod:
        name, namespace = record.pod.name, template.namespace
        uid = self._uids.get((namespace, name), f"fleet-{number}") if record.pod.node else f"fleet-{number}"
        meta = replace(template.pod.metadata, name=name, namespace=namespace, uid=uid)
        return replace(template.pod, metadata=meta)
