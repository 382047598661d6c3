"""Facts that the status of a pod proves: about its containers, its eviction or preemption, its scheduling and its resize.

About containers: terminations, OOM kills, back-off, lost containers. The message of the status proves evictions and preemption;
the conditions prove why the scheduler finds no node, and why a resize waits.

Follows: v1.36, pkg/kubelet/eviction/helpers.go, evictionMessage; pkg/kubelet/preemption/preemption.go.
Follows: v1.36, pkg/scheduler/framework/types.go, FitError.Error, and the reasons of the plugins in
    pkg/scheduler/framework/plugins; pkg/kubelet/allocation/allocation_manager.go.
"""

import re
from collections.abc import Iterator
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.model.kubernetes.objects import (
    Container,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodCondition,
)
from nodewright.model.kubernetes.resource_names import MEMORY, is_in_bytes, readable_amount
from nodewright.model.kubernetes.runtime_status import OOM_KILLED
from nodewright.model.values.golang import saturated_int

CRASH_LOOP_BACK_OFF, CONTAINER_STATUS_UNKNOWN = "CrashLoopBackOff", "ContainerStatusUnknown"

UNSCHEDULABLE, SCHEDULING_GATED = "Unschedulable", "SchedulingGated"


class StatusClue(msgspec.Struct, frozen=True, kw_only=True):
    """A fact in a status, with what it leaves open and what helps."""

    def sentence(self) -> str:
        """The fact in words, without a full stop."""
        raise NotImplementedError

    def open_question(self) -> str:
        """What the status cannot prove about it; empty: nothing."""
        return ""

    def remedies(self) -> tuple[str, ...]:
        """What helps, one change each."""
        return ()


class ContainerEnded(StatusClue, frozen=True, kw_only=True):
    """A container that terminated with an exit code other than 0."""

    name: str
    reason: str
    exit_code: int

    def sentence(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"container {self.name} ended with exit code {self.exit_code}{reason}"

    def open_question(self) -> str:
        if self.exit_code != 137:
            return ""
        return (
            f"what sent SIGKILL (exit code 137) to container {self.name}: the runtime does not report an OOM kill; the "
            "kubelet sends it after the grace period of a termination or a failed liveness probe"
        )

    def remedies(self) -> tuple[str, ...]:
        return (f"the container's own output: kubectl logs --previous -c {self.name}",)


class ContainerOOMKilled(StatusClue, frozen=True, kw_only=True):
    """The kernel's OOM killer ended a process of the container.

    The runtime derives the reason from the counter `oom_kill` of the container's cgroup, which also counts kills for
    the limit of a cgroup above it and for the memory of the node.

    Units:   amounts as in the spec; empty: no such limit.
    Follows: Linux, Documentation/admin-guide/cgroup-v2.rst, memory.events, oom_kill.
    """

    name: str
    exit_code: int
    limit: str = ""
    pod_limit: str = ""
    """The limit of `spec.resources`."""

    def sentence(self) -> str:
        limit = f"memory limit {self.limit}" if self.limit else "no memory limit of its own"
        return (
            f"the kernel's OOM killer ended a process of container {self.name} "
            f"(OOMKilled, exit code {self.exit_code}); the container has {limit}"
        )

    def open_question(self) -> str:
        places = [
            *([f"the container's limit of {self.limit}"] if self.limit else []),
            *([f"the pod's limit of {self.pod_limit}"] if self.pod_limit else []),
            "the memory of the node or of all its pods together",
        ]
        if len(places) == 1:
            return (
                f"how much memory container {self.name} used; without a limit on it, the memory of the node "
                "or of all its pods together ran out"
            )
        return f"how much memory container {self.name} used, and what ran out: {', or '.join(places)}"

    def remedies(self) -> tuple[str, ...]:
        usage = "how far above is not in the status: measure container_memory_working_set_bytes"
        changes = []
        if self.limit:
            changes.append(f"a memory limit above {self.limit} for container {self.name} ({usage})")
        if self.pod_limit:
            changes.append(f"a pod-level memory limit above {self.pod_limit}")
        if not changes:
            changes.append(
                f"a memory request of what container {self.name} uses, so that the scheduler chooses a node "
                "with as much left and the OOM killer prefers other containers"
            )
        return (
            *changes,
            "less memory used by the application, e.g. a heap limit below the container's limit",
        )


class ContainerBackOff(StatusClue, frozen=True, kw_only=True):
    """The kubelet waits before it restarts the container.

    Units: back_off as the kubelet wrote it; empty: not in the message.
    """

    name: str
    restart_count: int
    back_off: str = ""

    def sentence(self) -> str:
        times = "once" if self.restart_count == 1 else f"{self.restart_count} times"
        waits = f" and waits {self.back_off}" if self.back_off else " and waits"
        return f"the kubelet has restarted container {self.name} {times}{waits} before the next restart (CrashLoopBackOff)"


class ContainerLost(StatusClue, frozen=True, kw_only=True):
    """The runtime no longer knows the container, which had been running.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, convertToAPIContainerStatuses.
    """

    name: str

    def sentence(self) -> str:
        return (
            f"container {self.name} had been running, and the container runtime no longer knows it "
            "(ContainerStatusUnknown); the kubelet sets exit code 137 itself, so it is no sign of an OOM kill"
        )

    def open_question(self) -> str:
        return (
            f"how container {self.name} ended: a reboot of the node, a runtime that lost its containers, or a container "
            "that was removed before the kubelet read its exit code; after a reboot the node's "
            "status.nodeInfo.bootID is new"
        )

    def remedies(self) -> tuple[str, ...]:
        return (
            (
                "with a controller: delete the pod, and the controller creates another; without one, create it again: "
                "the kubelet does not restart it if restartPolicy is Never"
            ),
        )


ContainerFact: TypeAlias = ContainerEnded | ContainerOOMKilled | ContainerBackOff | ContainerLost


def failed_containers(pod: Pod) -> Iterator[ContainerFact]:
    """The containers that have terminated with an exit code other than 0."""
    for status, container in _statuses(pod):
        terminated = status.state.terminated
        if terminated is not None and terminated.exit_code != 0:
            yield _ending(pod, container, status.name, terminated)


def restarted_containers(pod: Pod) -> Iterator[ContainerFact]:
    """Back-off, and the last terminations, of the containers of a pod that has not ended."""
    for status, container in _statuses(pod):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason == CRASH_LOOP_BACK_OFF:
            delay = re.match(r"back-off (\S+) restarting failed container", waiting.message)
            yield ContainerBackOff(
                name=status.name,
                restart_count=status.restart_count,
                back_off="" if delay is None else delay[1],
            )
        terminated = status.state.terminated or status.last_state.terminated
        if terminated is not None and (terminated.exit_code != 0 or terminated.reason == OOM_KILLED):
            yield _ending(pod, container, status.name, terminated)


class ConditionsThen(StatusClue, frozen=True, kw_only=True):
    """The node had these conditions at admission."""

    conditions: tuple[str, ...]

    def sentence(self) -> str:
        return f"the node had the condition {', '.join(self.conditions)}"

    def remedies(self) -> tuple[str, ...]:
        if self.conditions == ("MemoryPressure",):
            return (
                "a request of cpu or memory: under MemoryPressure alone the kubelet rejects BestEffort pods only",
            )
        return ("another node, until the condition ends: the kubelet admits critical pods only",)


def _with_unit(resource: str, amount: str) -> str:
    """An amount as the kubelet wrote it; of plain bytes also what they are in the largest unit."""
    if not (is_in_bytes(resource) and amount.isdecimal() and len(amount) > 3):
        return amount
    return f"{amount} bytes ({readable_amount(resource, saturated_int(amount))})"


class LowOnResource(StatusClue, frozen=True, kw_only=True):
    """The node was short of a resource.

    Units: amounts as the kubelet wrote them; empty: not in the message.
    """

    resource: str
    threshold: str = ""
    available: str = ""

    def sentence(self) -> str:
        if not (self.threshold or self.available):
            return f"the node was short of {self.resource}"
        return (
            f"the node was short of {self.resource}: {_with_unit(self.resource, self.available)} left, "
            f"less than the threshold of {_with_unit(self.resource, self.threshold)}"
        )


class MoreThanRequested(StatusClue, frozen=True, kw_only=True):
    """A container (or the pod: ``is_pod``) used more than its request.

    Units: amounts as the kubelet wrote them.
    """

    name: str
    is_pod: bool = False
    used: str
    requested: str
    resource: str

    def sentence(self) -> str:
        kind = "pod" if self.is_pod else "container"
        used, requested = _with_unit(self.resource, self.used), _with_unit(self.resource, self.requested)
        return f"{kind} {self.name} used {used} of {self.resource} and had requested {requested}"

    def remedies(self) -> tuple[str, ...]:
        return (
            (
                f"a {self.resource} request of at least {self.used} for {'the pod' if self.is_pod else f'container {self.name}'}: "
                f"the kubelet evicts pods that use more {self.resource} than they request before all others"
            ),
        )


class OverLimit(StatusClue, frozen=True, kw_only=True):
    """Local storage usage exceeded a limit; ``what`` is `container`, `pod` or `emptyDir`.

    Units: limit as the kubelet wrote it.
    """

    what: str
    name: str
    limit: str

    def sentence(self) -> str:
        match self.what:
            case "container":
                return f"container {self.name} used more local storage than its limit of {self.limit}"
            case "emptyDir":
                return f"emptyDir volume {self.name} held more than its limit of {self.limit}"
            case _:
                return f"the pod used more local storage than its containers' limits of {self.limit} together"

    def open_question(self) -> str:
        return "how much it used: the message has the limit only"

    def remedies(self) -> tuple[str, ...]:
        field = "sizeLimit" if self.what == "emptyDir" else "ephemeral-storage limit"
        return (f"a {field} above {self.limit}, or less data",)


class PreemptedForCriticalPod(StatusClue, frozen=True, kw_only=True):
    """The kubelet removed the pod to admit another.

    Follows: v1.36, pkg/kubelet/types/pod_update.go, Preemptable.
    """

    def sentence(self) -> str:
        return "the node was short of what a critical pod requested, so the kubelet ended this one"

    def open_question(self) -> str:
        return "which pod it was and what was short: the events of the node around this time show it"

    def remedies(self) -> tuple[str, ...]:
        return (
            (
                "requests equal to limits on cpu and memory: the kubelet preempts BestEffort and Burstable pods before Guaranteed ones, "
                "and no critical pods of the same priority"
            ),
            "more headroom on the node for static and system pods, e.g. a larger systemReserved",
        )


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
        if texts := self._texts():
            return f"{nodes}: {texts[0]}{self.requested and f' ({self.requested})'}"
        return f"{nodes}: {self.reason}"

    def open_question(self) -> str:
        if not self.reason.startswith("Insufficient "):
            return ""
        return f"how much {self.reason.partition(' ')[2]} each node has left: the message has no amounts"

    def remedies(self) -> tuple[str, ...]:
        return self._texts()[1:]

    def _texts(self) -> tuple[str, ...]:
        """Our sentence and the remedy; none for a reason that is not in the table."""
        for pattern, *templates in _SCHEDULER_REASONS:
            if match := re.fullmatch(pattern, self.reason):
                return tuple(map(match.expand, templates))
        return ()


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


def _ending(
    pod: Pod, container: Container | None, name: str, terminated: ContainerStateTerminated
) -> ContainerFact:
    if terminated.reason == CONTAINER_STATUS_UNKNOWN:
        return ContainerLost(name=name)
    if terminated.reason != OOM_KILLED:
        return ContainerEnded(name=name, reason=terminated.reason, exit_code=terminated.exit_code)
    limit = None if container is None else container.resources.limits.get(MEMORY)
    pod_level = None if pod.spec.resources is None else pod.spec.resources.limits.get(MEMORY)
    return ContainerOOMKilled(
        name=name,
        exit_code=terminated.exit_code,
        limit="" if limit is None else str(limit),
        pod_limit="" if pod_level is None else str(pod_level),
    )


def _statuses(pod: Pod) -> Iterator[tuple[ContainerStatus, Container | None]]:
    containers = {
        container.name: container for container in (*pod.spec.init_containers, *pod.spec.containers)
    }
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        yield status, containers.get(status.name)


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
        r"cannot allocate all claims",
        "the devices do not suffice for the pod's resource claims",
        "`kubectl nodewright explain pod/NAME`, which says which devices were refused and why",
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


_AFTER_CLAIMS = re.compile(
    r"[. ]*(no new claims to deallocate|still not schedulable|de(alloca|le)tion of ResourceClaim completed),$"
)
"""What the scheduler tried with the pod's resource claims, at the end of its message."""


def _unsuitable(pod: Pod, message: str) -> Iterator[NodesUnsuitable | PreemptionOutcome]:
    match = re.match(r"0/(\d+) nodes are available: (.*)", message, re.DOTALL)
    if match is None:
        yield NodesUnsuitable(reason=message, node_count=0, total=0)
        return
    total = saturated_int(match[1])
    text, _, preemption = match[2].partition("preemption: ")
    text = _AFTER_CLAIMS.sub("", text.strip()).removesuffix(".")
    for reason in re.split(r", (?=\d+ )", text):
        counted = re.match(r"(\d+) (.*)", reason, re.DOTALL)
        count, words = (saturated_int(counted[1]), counted[2]) if counted else (total, reason)
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


def _resize(condition: PodCondition) -> ResizeWaits:
    waits = ResizeWaits(reason=condition.reason, message=condition.message)
    shortage = re.match(
        r"Node didn't have enough (?:resource: (\S+), requested: (\d+), used: (\d+)|capacity: (\S+), requested: (\d+))"
        r", capacity: (\d+)",
        condition.message,
    )
    if shortage is None:
        return waits
    resource, requested, used, other_resource, other_requested, capacity = shortage.groups("")
    return replace(
        waits,
        resource=resource or other_resource,
        requested=saturated_int(requested or other_requested),
        available=max(saturated_int(capacity) - saturated_int(used or "0"), 0),
    )
