"""Faults at a chosen operation: the agent is killed, the operation fails, or it does not come back."""

import asyncio
import inspect
from collections.abc import Callable, Collection
from enum import StrEnum
from typing import Any, TypeVar, cast

from nodewright.model.errors import HostError

T = TypeVar("T")

CHANGES_RUNTIME = (
    "run_sandbox",
    "stop_sandbox",
    "remove_sandbox",
    "create_container",
    "start_container",
    "stop_container",
    "remove_container",
    "update_container",
)
READS_RUNTIME = ("pods", "pod")
CHANGES_DISK = ("write", "put", "rename", "remove", "sync")
CHANGES_CGROUPS = ("ensure", "kill", "remove")


class Fault(StrEnum):
    """What happens at the chosen operation."""

    KILLED_BEFORE = "killed before"
    KILLED_WITHIN = "killed within"
    """Of what is written, half is there; other operations are whole."""
    KILLED_AFTER = "killed after"
    FAILS = "fails"
    HANGS = "hangs"

    @property
    def kills_agent(self) -> bool:
        """Whether it is the end of the agent."""
        return self in (Fault.KILLED_BEFORE, Fault.KILLED_WITHIN, Fault.KILLED_AFTER)


class AgentKilled(BaseException):
    """The agent was killed; only the test that killed it catches this."""


class FaultInjector:
    """Counts operations; at number ``at`` the fault happens, and for ``times`` operations of its kind."""

    def __init__(self, at: int | None = None, fault: Fault = Fault.KILLED_BEFORE, times: int = 1) -> None:
        self.at, self.fault, self.times = at, fault, times
        self.count = 0
        self.place = ""
        """The operation at which it happened."""
        self.is_dead = False
        self._part = ""
        self.after_each: Callable[[], None] = lambda: None

    def wrap(self, part: T, operations: Collection[str]) -> T:
        """A proxy of the same part that counts operations."""
        return cast("T", _FaultyPart(part, operations, self))

    def _happens(self, part: str, operation: str) -> bool:
        """Whether the fault strikes this operation."""
        if self.is_dead:
            raise AgentKilled
        number, self.count = self.count, self.count + 1
        if self.at is None or number < self.at or self.times == 0:
            return False
        if self._part not in ("", part):
            return False
        self._part = part
        self.times -= 1
        self.place = self.place or f"{part}.{operation} ({self.fault}, number {number})"
        return True

    def kill(self) -> None:
        """The agent ends here."""
        self.is_dead = True
        raise AgentKilled


class _FaultyPart:
    """A proxy that counts the operations of a part."""

    def __init__(self, part: Any, operations: Collection[str], faults: FaultInjector) -> None:
        self._target, self._operations, self._faults = part, operations, faults

    def __getattr__(self, name: str) -> Any:
        result = getattr(self._target, name)
        if name not in self._operations:
            return result
        return (
            self._waited(name, result) if inspect.iscoroutinefunction(result) else self._called(name, result)
        )

    def _called(self, name: str, doing: Callable[..., Any]) -> Callable[..., Any]:
        faults, part = self._faults, type(self._target).__name__

        def call(*args: Any) -> Any:
            strikes = faults._happens(part, name)
            if strikes and faults.fault is Fault.KILLED_BEFORE:
                faults.kill()
            if strikes and faults.fault is Fault.KILLED_WITHIN and name == "put":
                doing(*args[:-1], args[-1][: len(args[-1]) // 2])
                faults.kill()
            if strikes and not faults.fault.kills_agent:
                raise HostError(name, str(args[0]) if args else "", "no space left on device")
            result = doing(*args)
            faults.after_each()
            if strikes:
                faults.kill()
            return result

        return call

    def _waited(self, name: str, doing: Callable[..., Any]) -> Callable[..., Any]:
        faults, part = self._faults, type(self._target).__name__

        async def call(*args: Any) -> Any:
            strikes = faults._happens(part, name)
            if strikes and faults.fault is Fault.KILLED_BEFORE:
                faults.kill()
            if strikes and faults.fault is Fault.FAILS:
                raise HostError(name, str(args[0]) if args else "", "connection reset")
            if strikes and faults.fault is Fault.HANGS:
                await asyncio.get_running_loop().create_future()
            result = await doing(*args)
            if faults.is_dead:
                raise AgentKilled
            faults.after_each()
            if strikes:
                faults.kill()
            return result

        return call
