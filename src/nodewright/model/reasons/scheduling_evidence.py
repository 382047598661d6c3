"""Facts that the conditions of a pod prove: why the scheduler finds no node, and why a resize waits.

Follows: v1.36, pkg/scheduler/framework/types.go, FitError.Error, and the reasons of the plugins in
    pkg/scheduler/framework/plugins; pkg/kubelet/allocation/allocation_manager.go.
"""

import re
from collections.abc import Iterator
from typing import TypeAlias

from nodewright.model.kubernetes.objects import Pod, PodCondition
from nodewright.model.kubernetes.resource_names import readable_amount
from nodewright.model.reasons.container_evidence import StatusClue

UNSCHEDULABLE, SCHEDULING_GATED = "Unschedulable", "SchedulingGated"


class NodesUnsuitable(StatusClue, frozen=True, kw_only=True):
    """A reason of the scheduler, and the number of nodes that it concerns."""

    reason: str
    """As the scheduler wrote it."""
    node_count: int
    total: int
    requested: str = ""
    """The pod's requests of the resource that is short, container by container."""

    def sentence(self) -> str:
        if not self.total:
            return self.reason
        nodes = f"{self.node_count} of {self.total} node{'' if self.total == 1 else 's'}"
        for pattern, text, _ in _SCHEDULER_REASONS:
            match = re.fullmatch(pattern, self.reason)
            if match is not None:
                return f"{nodes}: {match.expand(text)}{self.requested and f' ({self.requested})'}"
        return f"{nodes}: {self.reason}"

    def open_question(self) -> str:
        if not self.reason.startswith("Insufficient "):
            return ""
        return f"how much {self.reason.partition(' ')[2]} each node has left: the message has no amounts"

    def remedies(self) -> tuple[str, ...]:
        for pattern, _, remedy in _SCHEDULER_REASONS:
            match = re.fullmatch(pattern, self.reason)
            if match is not None:
                return (match.expand(remedy),) if remedy else ()
        return ()


# The scheduler's reason, our sentence, and the remedy.
_SCHEDULER_REASONS = (
    (
        r"Insufficient (\S+)",
        r"too little \1 left for the pod",
        (
            r"request less \1, or make some available: `nodewright explain -f POD --node NODE` shows how much is missing "
            "on a node and which pods hold it"
        ),
    ),
    (
        r"Too many pods",
        "as many pods as the node may run",
        "a larger maxPods in the KubeletConfiguration, or another node",
    ),
    (
        r"node\(s\) had untolerated taint(?:\(s\))?(?: (\{.*\}))?",
        r"a taint that the pod does not tolerate \1",
        r"a toleration for the taint \1, or nodes without it (`kubectl describe node` lists them)",
    ),
    (
        r"node\(s\) didn't match Pod's node affinity/selector",
        "labels that do not match the pod's nodeSelector or node affinity",
        "a nodeSelector and node affinity that match a node's labels (`kubectl get nodes --show-labels`)",
    ),
    (r"node\(s\) were unschedulable", "cordoned (spec.unschedulable)", "`kubectl uncordon` of a node"),
    (
        r"node\(s\) didn't have free ports for the requested pod ports",
        "a hostPort of the pod is in use",
        "another hostPort, or none",
    ),
    (
        r"node\(s\) didn't match pod topology spread constraints( \(missing required label\))?",
        r"the pod's topologySpreadConstraints do not allow it\1",
        "`whenUnsatisfiable: ScheduleAnyway`, a larger maxSkew, or nodes with the topologyKey",
    ),
    (
        r"node\(s\) didn't match pod affinity rules",
        "no pod there that the pod's podAffinity requires",
        "a podAffinity that matches running pods, or preferred instead of required",
    ),
    (
        r"node\(s\) didn't (?:match pod|satisfy existing pods) anti-affinity rules",
        "a podAntiAffinity, of this pod or of a pod there, forbids it",
        "fewer replicas than nodes, or a preferred podAntiAffinity instead of a required one",
    ),
    (
        r"pod has unbound immediate PersistentVolumeClaims",
        "a PersistentVolumeClaim of the pod is not bound",
        "bind the claim: `kubectl describe pvc` shows what its provisioner waits for",
    ),
    (
        r"node\(s\) (?:had volume node affinity conflict|didn't match PersistentVolume's node affinity)",
        "the pod's PersistentVolume is not accessible from there",
        "a node in the zone of the volume, or a StorageClass with `volumeBindingMode: WaitForFirstConsumer`",
    ),
    (
        r"node\(s\) exceed max volume count",
        "as many volumes attached as the driver allows",
        "fewer volumes, or another node",
    ),
)


class PreemptionOutcome(StatusClue, frozen=True, kw_only=True):
    """Why the scheduler preempts no pods for the pod."""

    message: str

    def sentence(self) -> str:
        if "not eligible due to preemptionPolicy=Never" in self.message:
            return "the scheduler preempts no pods for it: its preemptionPolicy is Never"
        if "No preemption victims found" in self.message:
            return "the scheduler preempts no pods for it: there are no pods of lower priority to remove, where that could help"
        if "Preemption is not helpful" in self.message:
            return "the scheduler preempts no pods for it: no node becomes suitable by removing pods"
        return f"the scheduler preempts no pods for it: {self.message}"


class SchedulingGates(StatusClue, frozen=True, kw_only=True):
    """The pod has scheduling gates, so that the scheduler does not consider it."""

    gates: tuple[str, ...]

    def sentence(self) -> str:
        return f"the scheduler does not consider it: scheduling gates {', '.join(self.gates)}"

    def remedies(self) -> tuple[str, ...]:
        return ("the controller that set a scheduling gate removes it when its condition is met",)


class ResizeWaits(StatusClue, frozen=True, kw_only=True):
    """The kubelet has not performed a resize.

    Units: cpu in thousandths, memory in bytes; 0: the message has no amounts.
    """

    reason: str
    """`Deferred`, `Infeasible`, or `Error`."""
    message: str
    resource: str = ""
    requested: int = 0
    available: int = 0

    def sentence(self) -> str:
        match self.reason:
            case "Deferred":
                lead = "the kubelet defers the resize and retries it; the containers keep their resources"
            case "Infeasible":
                lead = "the resize is infeasible on this node, and the kubelet does not retry it; the containers keep their resources"
            case _:
                lead = "the kubelet has admitted the resize and fails to carry it out"
        return f"{lead}: {self.message}" if self.message else lead

    def remedies(self) -> tuple[str, ...]:
        fits: tuple[str, ...] = ()
        if self.resource:
            amount = readable_amount(self.resource, self.available)
            fits = (f"requests of at most {amount} {self.resource} for the whole pod",)
        if self.reason == "Deferred":
            return (*fits, "pods that leave the node: the kubelet then retries the resize")
        if "alongside" in self.message:
            return ("recreate the pod with the new resources: the static policy pins those of a running one",)
        return (*fits, "recreate the pod with the new resources on a larger node") if fits else ()


SchedulingFact: TypeAlias = NodesUnsuitable | PreemptionOutcome | SchedulingGates
"""Why the scheduler has not bound the pod to a node."""


def scheduling_facts(pod: Pod) -> Iterator[SchedulingFact]:
    """Why the pod has no node."""
    for condition in pod.status.conditions:
        if condition.type != "PodScheduled" or condition.status != "False":
            continue
        if condition.reason == SCHEDULING_GATED:
            yield SchedulingGates(gates=tuple(str(gate.get("name")) for gate in pod.spec.scheduling_gates))
        elif condition.reason == UNSCHEDULABLE:
            yield from _unsuitable(pod, condition.message)


def _unsuitable(pod: Pod, message: str) -> Iterator[NodesUnsuitable | PreemptionOutcome]:
    match = re.match(r"0/(\d+) nodes are available: (.*)", message, re.DOTALL)
    if match is None:
        yield NodesUnsuitable(reason=message, node_count=0, total=0)
        return
    total = int(match[1])
    text, _, preemption = match[2].partition("preemption: ")
    text = text.strip().removesuffix("no new claims to deallocate,").strip().removesuffix(".")
    for reason in re.split(r", (?=\d+ )", text):
        counted = re.match(r"(\d+) (.*)", reason, re.DOTALL)
        count, words = (int(counted[1]), counted[2]) if counted else (total, reason)
        yield NodesUnsuitable(
            reason=words, node_count=count, total=total, requested=_requested(pod, words.partition(" ")[2])
        )
    if preemption:
        yield PreemptionOutcome(message=preemption.strip().removesuffix("."))


def _requested(pod: Pod, resource: str) -> str:
    amounts = (
        f"container {container.name} requests {container.resources.requests[resource]}"
        for container in (*pod.spec.init_containers, *pod.spec.containers)
        if resource in container.resources.requests
    )
    return ", ".join(amounts)


def resize_fact(pod: Pod) -> ResizeWaits | None:
    """Why a resize of the pod has not been performed; None: none is pending, or it proceeds."""
    for condition in pod.status.conditions:
        if condition.status == "True" and (
            condition.type == "PodResizePending"
            or (condition.type == "PodResizeInProgress" and condition.reason == "Error")
        ):
            return _resize(condition)
    if pod.status.resize in ("Deferred", "Infeasible"):  # kubelets up to 1.32
        return ResizeWaits(reason=pod.status.resize, message="")
    return None


def _resize(condition: PodCondition) -> ResizeWaits:
    short = re.match(
        r"Node didn't have enough resource: (\S+), requested: (\d+), used: (\d+), capacity: (\d+)",
        condition.message,
    )
    if short is not None:
        requested, used, capacity = map(int, short.groups()[1:])
        return ResizeWaits(
            reason=condition.reason,
            message=condition.message,
            resource=short[1],
            requested=requested,
            available=max(capacity - used, 0),
        )
    small = re.match(
        r"Node didn't have enough capacity: (\S+), requested: (\d+), capacity: (\d+)", condition.message
    )
    if small is not None:
        return ResizeWaits(
            reason=condition.reason,
            message=condition.message,
            resource=small[1],
            requested=int(small[2]),
            available=int(small[3]),
        )
    return ResizeWaits(reason=condition.reason, message=condition.message)
