"""The dashboard's view of a plan, which is read again when its files change."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from nodewright.agent.serving.dashboard.view_sections import explanation_section, plan_sections
from nodewright.engine.node.node_state import NodeState
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.objects import Pod
from nodewright.predict.admit.admission_report import AdmissionEntry
from nodewright.predict.explain.explanation import explanation

POLL_PERIOD_S = 0.5
"""The period of checks for changed files."""


class AdmissionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A node's decisions about the pods of manifests, one after the other."""

    entries: Sequence[AdmissionEntry]
    states: Sequence[NodeState]
    """The node before each of the pods, and after the last."""
    skipped: Mapping[str, int] = {}
    warnings: Sequence[str] = ()


class PlanView:
    """The view of a plan. The files are checked for changes while a page is open."""

    def __init__(
        self, plan: AdmissionPlan, read: Callable[[], AdmissionPlan], stamp: Callable[[], object]
    ) -> None:
        """``read`` reads the plan again; ``stamp`` returns a value that changes with the files."""
        self.plan = plan
        self._read, self._stamp = read, stamp
        self._stamped, self._faults = stamp(), list[str]()
        self._sections = self._current_sections()
        self._is_closed = False
        self._reading, self._explaining = asyncio.Lock(), asyncio.Lock()
        self._why: dict[str, Mapping[str, Any]] = {}

    async def sections(self) -> Mapping[str, Any]:
        """The plan of the current files."""
        async with self._reading:
            stamp = self._stamp()
            if stamp != self._stamped:
                self._stamped = stamp
                await asyncio.to_thread(self._reread)
        return self._sections

    def samples(self, after_ms: int) -> Sequence[Mapping[str, Any]]:
        """A plan has no samples."""
        del after_ms
        return ()

    async def wait_for_change(self) -> bool:
        """Returns when the next check of the files is due."""
        await asyncio.sleep(POLL_PERIOD_S)
        return not self._is_closed

    def close(self) -> None:
        """Ends the event streams."""
        self._is_closed = True

    async def placement_reason(self, key: str) -> Mapping[str, Any] | None:
        """Why a pod of the plan is admitted or refused, in its order; the node's own pods as if they arrived last."""
        match = self._query(key)
        if match is None:
            return None
        async with self._explaining:
            if key not in self._why:
                state, pod, is_on_node = match
                now = explanation_section(await asyncio.to_thread(explanation, state, pod))
                self._why[key] = {"asNewArrival": is_on_node, "because": [], "cgroups": [], "now": now}
        return self._why[key]

    async def eviction_ranking(self) -> Mapping[str, Any] | None:
        """A plan has no usage."""
        return None

    def _query(self, key: str) -> tuple[NodeState, Pod, bool] | None:
        """The node, the pod, and whether the pod is already on the node."""
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
        except (InputError, HostError, OSError) as error:
            # The page keeps the previous plan, and shows the faults of the files.
            self._faults = [
                str(fault) for fault in (error.faults if isinstance(error, InputError) else [error])
            ]
        self._sections = self._current_sections()

    def _current_sections(self) -> dict[str, Any]:
        plan = self.plan
        sections = plan_sections(
            plan.entries, plan.states[0], plan.states[-1], skipped=plan.skipped, warnings=plan.warnings
        )
        sections["about"]["faults"] = self._faults
        return {**sections, "charts": []}
