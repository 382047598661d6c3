"""Stops the containers of a pod, each within its grace period: preStop hooks, the order of sidecars, signals."""

import asyncio
from collections.abc import Callable, Iterable

from nodewright.agent.host.ports import ContainerRuntime, Prober
from nodewright.agent.pods.container_lifecycle import HookError, container_named, pod_ip, run_pre_stop
from nodewright.agent.rules.pod_actions import (
    MIN_GRACE_PERIOD_S,
    KillReason,
    grace_period_s,
    termination_ordering,
)
from nodewright.cluster.tasks.timing import Clock, elapsed_s, gather_all
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.kubernetes.runtime_status import (
    ContainerPhase,
    RuntimeContainerStatus,
    RuntimePodStatus,
)

_HOOK_EXTRA_S = 1.0
"""A hook that is still running when its time is up has not failed."""


class ContainerStopper:
    """Stops containers; ``record_event`` gets the hooks that failed."""

    def __init__(
        self,
        runtime: ContainerRuntime,
        prober: Prober,
        clock: Clock,
        record_event: Callable[[RecordEvent], None],
    ) -> None:
        self._runtime, self._prober, self._clock, self._record_event = runtime, prober, clock, record_event

    async def stop_all(self, pod: Pod, runtime_status: RuntimePodStatus, override_s: int | None) -> None:
        """Stops all containers at once, except for sidecars, which stop after the containers that they serve.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, killContainersWithSyncResult.
        """
        alive = (ContainerPhase.RUNNING, ContainerPhase.UNKNOWN, ContainerPhase.CREATED)
        running = {
            container.name: container
            for container in reversed(runtime_status.containers)
            if container.phase in alive
        }
        waits = termination_ordering(pod, running.keys())
        ended = {name: asyncio.Event() for name in running}

        async def stop(container: RuntimeContainerStatus) -> None:
            try:
                before = [ended[name] for name in waits.get(container.name, ())]
                await self.stop(pod, container, None, override_s, before)
            finally:
                ended[container.name].set()

        await gather_all(stop(container) for container in running.values())

    async def stop(
        self,
        pod: Pod,
        runtime_status: RuntimeContainerStatus,
        reason: KillReason | None,
        override_s: int | None,
        before: Iterable[asyncio.Event] = (),
    ) -> None:
        """Stops one container within its grace period: its preStop hook, the containers before it, the container itself.

        A hook that takes longer than the grace period runs on until the container has ended.

        Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, killContainer, executePreStopHook.
        """
        container = container_named(pod, runtime_status.name)
        left_s = float(grace_period_s(pod, container, reason, override_s))
        handler, hook = (container.lifecycle or {}).get("preStop"), None
        try:
            if handler is not None and left_s > 0 and runtime_status.phase is ContainerPhase.RUNNING:
                hook = asyncio.create_task(self._pre_stop(pod, container, runtime_status, left_s))
                left_s -= await elapsed_s(self._clock, _finished(hook), left_s)
            for event in before:
                if left_s > 0:
                    left_s -= int(await elapsed_s(self._clock, event.wait(), left_s))
            await self._runtime.stop_container(runtime_status.id, max(left_s, MIN_GRACE_PERIOD_S))
        finally:
            if hook is not None:
                hook.cancel()
                await asyncio.gather(hook, return_exceptions=True)

    async def _pre_stop(
        self, pod: Pod, container: Container, runtime_status: RuntimeContainerStatus, left_s: float
    ) -> None:
        timeout_s = left_s + MIN_GRACE_PERIOD_S + _HOOK_EXTRA_S
        try:
            pod_status = await self._runtime.pod(pod.uid)
            ip = pod_ip(pod_status) if pod_status is not None else ""
            await run_pre_stop(self._prober, pod, container, runtime_status.id, (ip, timeout_s))
        except (HookError, HostError):
            # A failed hook does not keep its container from stopping. Its output may be secret.
            reason, message = "FailedPreStopHook", "PreStopHook failed"
            self._record_event(RecordEvent(uid=pod.uid, is_warning=True, reason=reason, message=message))


async def _finished(hook: asyncio.Task[None]) -> None:
    """Waits for a hook, which goes on if the wait is cancelled."""
    await asyncio.wait((hook,))
