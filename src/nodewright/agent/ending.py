"""A pod has to end: from now on that is all that is done for it."""

from msgspec.structs import replace

from nodewright.agent.turn import Turn
from nodewright.agent.values import Stage
from nodewright.core.lifecycle import NO_RESIZE, Override


def ends(
    turn: Turn, uid: str, override: Override | None, grace_period_s: int | None, *, makes_way: bool = False
) -> None:
    """A pod has to end, with this status and so much time; one that ends already may be given less."""
    record = turn.pods.get(uid)
    if record is None or record.stage in (Stage.ENDED, Stage.REFUSED):
        return
    has_less = grace_period_s is not None and (
        record.grace_period_s is None or grace_period_s < record.grace_period_s
    )
    was_ending = record.stage is Stage.ENDING
    record = replace(
        record,
        stage=Stage.ENDING,
        override=record.override or override,
        makes_way=record.makes_way or makes_way,
        grace_period_s=grace_period_s if has_less else record.grace_period_s,
        look_at_ns=None,
        retry_at_ns=None,
        asks_at_ns={},
        resizing=NO_RESIZE,
    )
    turn.put(record)
    if record.is_busy and (has_less or not was_ending):
        turn.cancel(uid)
