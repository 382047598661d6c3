"""The sandboxes and containers that a container runtime reports; events that are published about pods and about the node.

Units: times in nanoseconds since 1970 (0: not yet, or not known).
"""

from enum import StrEnum

import msgspec


class ContainerPhase(StrEnum):
    """The state of a container: CRI's names without their prefix."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


OOM_KILLED, COMPLETED, ERROR = "OOMKilled", "Completed", "Error"
"""Reasons of terminated containers, as in their status."""


class RuntimeContainerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to run a container of a pod."""

    id: str
    name: str
    attempt: int
    """0 for the first; the container's restart count if this is the newest attempt."""
    phase: ContainerPhase
    sandbox_id: str = ""
    spec_hash: str = ""
    """Hash of the container's spec at creation: if it differs, the container must be recreated."""
    image: str = ""
    image_id: str = ""
    created_ns: int = 0
    started_ns: int = 0
    finished_ns: int = 0
    exit_code: int = 0
    """As in a shell: 128 + the signal number if a signal ended it."""
    reason: str = ""
    """`Completed`, `Error`, `OOMKilled`, or another reason of the runtime."""
    message: str = ""
    """The termination message, or the runtime's error."""
    log_path: str = ""
    cgroup: str = ""
    """The path of its cgroup from the root of the hierarchy; empty: not known."""


class RuntimeSandboxStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A pod sandbox."""

    id: str
    attempt: int = 0
    is_ready: bool = True
    created_ns: int = 0
    ip: str = ""
    """Empty: the host's, or not known."""
    other_ips: tuple[str, ...] = ()
    """Its addresses of other families."""

    @property
    def ips(self) -> tuple[str, ...]:
        """All its addresses; none: those of the host, or not known."""
        return (self.ip, *self.other_ips) if self.ip else ()


class RuntimePodStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The sandboxes and containers of a pod."""

    uid: str
    namespace: str
    name: str
    sandboxes: tuple[RuntimeSandboxStatus, ...] = ()
    """The newest first."""
    containers: tuple[RuntimeContainerStatus, ...] = ()
    """All attempts that the runtime still has, the newest of each container first."""

    def newest_attempt(self, container: str) -> RuntimeContainerStatus | None:
        """The newest attempt to run a container; None: there is none.

        >>> RuntimePodStatus(uid="u", namespace="default", name="web").newest_attempt("app") is None
        True
        """
        return next((attempt for attempt in self.containers if attempt.name == container), None)
