"""What a container runtime says of the pods that it holds: facts, whoever made them and whenever.

Units: moments in nanoseconds since 1970 (0: not yet, or not known).
"""

from enum import StrEnum

import msgspec


class ContainerPhase(StrEnum):
    """How far a container has come, in the words of the CRI without their prefix."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


OOM_KILLED, COMPLETED, ERROR = "OOMKilled", "Completed", "Error"
"""Why a container ended, as its status tells it."""


class ContainerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One container, that is one attempt at running one container of a pod."""

    id: str
    name: str
    attempt: int
    """0 the first time; the restart count of the container when this one is the newest."""
    phase: ContainerPhase
    sandbox_id: str = ""
    spec_hash: str = ""
    """Of the container's spec when it was created: another one means that it has to be made anew."""
    image: str = ""
    image_id: str = ""
    created_ns: int = 0
    started_ns: int = 0
    finished_ns: int = 0
    exit_code: int = 0
    """As the shell has it: 128 + the signal's number where a signal ended it."""
    reason: str = ""
    """`Completed`, `Error`, `OOMKilled`, or what else the runtime says of the end."""
    message: str = ""
    """The termination message, or the runtime's error."""
    log_path: str = ""
    cgroup: str = ""
    """The path of its group from the root of the tree; empty: not known."""


class SandboxFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What holds the containers of a pod together."""

    id: str
    attempt: int = 0
    is_ready: bool = True
    created_ns: int = 0
    ip: str = ""
    """Empty: that of the host, or not known."""


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A pod as the runtime holds it, known by its uid."""

    uid: str
    namespace: str
    name: str
    sandboxes: tuple[SandboxFacts, ...] = ()
    """The newest first."""
    containers: tuple[ContainerFacts, ...] = ()
    """All attempts that are still held, the newest of each first."""

    def newest(self, container: str) -> ContainerFacts | None:
        """The newest attempt at a container; None: there is none.

        >>> PodFacts(uid="u", namespace="default", name="web").newest("app") is None
        True
        """
        return next((one for one in self.containers if one.name == container), None)
