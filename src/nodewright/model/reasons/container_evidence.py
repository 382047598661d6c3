"""Facts about containers that the status of a pod proves: terminations, OOM kills, back-off, lost containers."""

import re
from collections.abc import Iterator
from typing import TypeAlias

import msgspec

from nodewright.model.kubernetes.objects import Container, ContainerStateTerminated, ContainerStatus, Pod
from nodewright.model.kubernetes.resource_names import MEMORY
from nodewright.model.kubernetes.runtime_status import OOM_KILLED

CRASH_LOOP_BACK_OFF, CONTAINER_STATUS_UNKNOWN = "CrashLoopBackOff", "ContainerStatusUnknown"


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
