"""The phase of a pod, from the statuses of its containers."""

from collections.abc import Iterable

from nodewright.core.lifecycle.restarts import restarts_after
from nodewright.model.objects import Container, ContainerStatus, PodSpec


class _Count:
    """How many containers of a pod are how."""

    def __init__(self, spec: PodSpec) -> None:
        self.spec = spec
        self.pending_inits = self.pending_sidecars = 0
        self.fails = False
        self.unknown = self.running = self.waiting = self.stopped = self.ended = self.succeeded = 0

    def init(self, container: Container, status: ContainerStatus | None) -> None:
        """Of an init container that ends."""
        state = status.state if status is not None else None
        last = status.last_state.terminated if status is not None else None
        ended = None
        if state is not None:
            ended = state.terminated or (last if state.waiting is not None else None)
        if ended is None:
            self.pending_inits += 1
        elif ended.exit_code != 0:
            self.fails = self.fails or not restarts_after(container, self.spec, ended.exit_code)

    def sidecar(self, status: ContainerStatus | None) -> None:
        """Of an init container that stays."""
        if status is None:
            self.unknown += 1
        elif status.state.running is not None:
            self.running += 1
            self.pending_sidecars += not status.started
        elif status.state.terminated is not None:
            return
        elif status.state.waiting is not None:
            if status.last_state.terminated is None:
                self.pending_sidecars += 1
                self.waiting += 1
        else:
            self.pending_sidecars += 1
            self.unknown += 1

    def main(self, container: Container, status: ContainerStatus | None) -> None:
        """Of any other container."""
        if status is None:
            self.unknown += 1
            return
        state, last = status.state, status.last_state.terminated
        if state.running is not None:
            self.running += 1
        elif state.terminated is not None:
            self._stopped(container, state.terminated.exit_code)
            self.succeeded += state.terminated.exit_code == 0
        elif state.waiting is None:
            self.unknown += 1
        elif last is not None:
            self._stopped(container, last.exit_code)
        else:
            self.waiting += 1

    def _stopped(self, container: Container, exit_code: int) -> None:
        self.stopped += 1
        self.ended += not restarts_after(container, self.spec, exit_code)


def phase_of(
    spec: PodSpec, statuses: Iterable[ContainerStatus], *, is_terminal: bool, has_initialized: bool
) -> str:
    """`Pending`, `Running`, `Succeeded` or `Failed`.

    ``is_terminal``: nothing of it runs or will run again. ``has_initialized``: a main container was made.

    Follows: v1.36, kubelet/kubelet_pods.go, getPhase.
    """
    by_name = {one.name: one for one in statuses}
    count = _Count(spec)
    for container in spec.init_containers:
        if container.is_sidecar:
            count.sidecar(by_name.get(container.name))
        else:
            count.init(container, by_name.get(container.name))
    for container in spec.containers:
        count.main(container, by_name.get(container.name))
    if count.fails:
        return "Failed"
    if count.pending_inits or (count.pending_sidecars and not has_initialized) or count.waiting:
        return "Pending"
    if count.unknown or not (count.running or count.stopped):
        return "Pending"
    if count.running or (not is_terminal and count.stopped != count.ended):
        return "Running"
    return "Succeeded" if count.stopped == count.succeeded else "Failed"
