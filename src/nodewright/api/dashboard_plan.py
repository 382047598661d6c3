"""A dashboard's view of a plan: pods put to a node that is only described, read anew when its files change."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from nodewright.model.objects import Pod
from nodewright.node.explanation import explanation
from nodewright.node.state import NodeState
from nodewright.render.admission import Entry
from nodewright.render.dashboard.plan import plan_sections
from nodewright.render.dashboard.why import explained_section
from nodewright.world.errors import InputError, WorldError

LOOKED_EVERY_S = 0.5
"""How often it is looked whether files have changed."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says to the pods of manifests, one after the other."""

    entries: Sequence[Entry]
    states: Sequence[NodeState]
    """The node before each of the pods, and after the last."""
    skipped: Mapping[str, int] = {}
    warnings: Sequence[str] = ()


class PlanView:
    """Shows a plan. The files are read again when they have changed and somebody looks."""

    def __init__(self, plan: Plan, read: Callable[[], Plan], stamp: Callable[[], object]) -> None:
        """``read`` reads the plan anew; ``stamp`` is another value once any of its files has changed."""
        self.plan = plan
        self._read, self._stamp = read, stamp
        self._stamped, self._faults = stamp(), list[str]()
        self._sections = self._made()
        self._is_closed = False
        self._reading, self._explaining = asyncio.Lock(), asyncio.Lock()
        self._why: dict[str, Mapping[str, Any]] = {}

    async def sections(self) -> Mapping[str, Any]:
        """The plan by the files as they are now."""
        async with self._reading:
            stamp = self._stamp()
            if stamp != self._stamped:
                self._stamped = stamp
                await asyncio.to_thread(self._reread)
        return self._sections

    def samples(self, after_ms: int) -> Sequence[Mapping[str, Any]]:
        """Nothing runs that could be measured."""
        del after_ms
        return ()

    async def turn(self) -> bool:
        """Come back when it is time to look at the files."""
        await asyncio.sleep(LOOKED_EVERY_S)
        return not self._is_closed

    def close(self) -> None:
        """Nothing will change any more."""
        self._is_closed = True

    async def why(self, key: str) -> Mapping[str, Any] | None:
        """Why a pod of the plan gets in or not, on the node as it found it; of the node's own pods, as if they came anew."""
        found = self._asked(key)
        if found is None:
            return None
        async with self._explaining:
            if key not in self._why:
                state, pod, anew = found
                now = explained_section(await asyncio.to_thread(explanation, state, pod))
                self._why[key] = {"anew": anew, "because": [], "cgroups": [], "now": now}
        return self._why[key]

    async def ranks(self) -> Mapping[str, Any] | None:
        """Of pods that do not run nobody knows what they use."""
        return None

    def _asked(self, key: str) -> tuple[NodeState, Pod, bool] | None:
        """The node to be asked, the pod, and whether it is there and asked about as if it came anew."""
        for entry, before in zip(self.plan.entries, self.plan.states, strict=False):
            if entry.pod.uid == key:
                return before, entry.pod, False
        after = self.plan.states[-1]
        pod = after.pods.get(key)
        return None if pod is None else (after.without_pod(key), pod, True)

    def _reread(self) -> None:
        try:
            self.plan, self._faults = self._read(), []
            self._why.clear()
        except (InputError, WorldError, OSError) as error:
            # What was there stays on the page, with what is wrong with the files now.
            self._faults = [str(one) for one in (error.faults if isinstance(error, InputError) else [error])]
        self._sections = self._made()

    def _made(self) -> dict[str, Any]:
        plan = self.plan
        made = plan_sections(
            plan.entries, plan.states[0], plan.states[-1], skipped=plan.skipped, warnings=plan.warnings
        )
        made["about"]["faults"] = self._faults
        return {**made, "charts": []}
