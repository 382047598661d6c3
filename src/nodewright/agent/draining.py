"""Ends all pods, by priority, before the machine goes down or the agent does."""

import asyncio
from collections.abc import Callable

from nodewright.agent.board import Board
from nodewright.agent.stages import THERE
from nodewright.agent.values import Drained, Seen, Tell
from nodewright.core.lifecycle import Override
from nodewright.core.shutdown import MESSAGE, NO_MORE_PODS, REASON, shutdown_groups, shutdown_periods
from nodewright.world.ports import Clock

KILL_S = 5.0
"""What the end of a pod may take beyond its grace period."""
_TERMINATED = Override(phase="Failed", reason=REASON, message=MESSAGE, disruption_target=MESSAGE)


async def drain(board: Board, see: Callable[[Seen], None], clock: Clock) -> bool:
    """End all pods, group by group, and take no more; whether all are gone.

    Follows: v1.36, kubelet/nodeshutdown/nodeshutdown_manager.go, killPods.
    """
    parts = board.mind.node.config.parts
    active = [one.pod for one in board.mind.pods.values() if one.stage in THERE]
    groups = shutdown_groups(shutdown_periods(parts.kubelet, parts.gates), active)
    board.tell(
        Tell(uid="", is_warning=False, reason="Shutdown", message="Shutdown manager detected shutdown event")
    )
    see(Drained(why=NO_MORE_PODS, override=_TERMINATED, grace_periods_s={}))
    for group in groups:
        see(Drained(why=NO_MORE_PODS, override=_TERMINATED, grace_periods_s=dict(group.graces_s)))
        await _gone(board, frozenset(uid for uid, _ in group.graces_s), group.time_s + KILL_S, clock)
    return not any(one.stage in THERE for one in board.mind.pods.values())


async def _gone(board: Board, uids: frozenset[str], limit_s: float, clock: Clock) -> None:
    """Come back when nothing of these pods runs, or when the time is up."""
    timer = asyncio.ensure_future(clock.sleep(limit_s))
    try:
        while not timer.done():
            turn = board.turn()
            if not any(uid in uids and one.stage in THERE for uid, one in board.mind.pods.items()):
                return
            waiting = asyncio.ensure_future(turn.wait())
            await asyncio.wait({timer, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
    finally:
        timer.cancel()
