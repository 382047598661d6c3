"""What came of a fleet, gathered from where it stands."""

from nodewright.sim.fleet.play import Play
from nodewright.sim.fleet.scheduler import lacks
from nodewright.sim.fleet.tally import Tally
from nodewright.sim.fleet.values import Fate, FleetResult, Lack, NodeRecord, Sample


def result_of(play: Play, *, complete: bool) -> FleetResult:
    """What came of it until now."""
    _say_why_they_wait(play)
    allocatable: dict[str, int] = {}
    for seat in play.board.seats:
        for name, amount in seat.allocatable.items():
            allocatable[name] = allocatable.get(name, 0) + amount
    return FleetResult(
        nodes=tuple(
            NodeRecord(
                node=kubelet.node,
                state=kubelet.known.state.collected(),
                pods={uid: one.pod for uid, one in seat.tenants.items()},
                placed=kubelet.placed,
                refused=kubelet.refused,
            )
            for kubelet, seat in zip(play.kubelets.all, play.board.seats, strict=True)
        ),
        pods=tuple(play.records.records.values()),
        forgotten=play.records.forgotten,
        samples=_samples(play, play.tally),
        refusals=play.tally.counted(),
        allocatable=allocatable,
        placements=play.tally.placements,
        preemptions=play.tally.preemptions,
        evictions=play.tally.evictions,
        ended_s=play.now_s,
        complete=complete,
        steps=play.kubelets.steps,
        remembered=play.kubelets.remembered,
    )


def _say_why_they_wait(play: Play) -> None:
    """Worked out at the end, once for each shape: nobody reads it before."""
    why: dict[int, tuple[Lack, ...]] = {}
    for line, one in play.lines.waiting():
        record = play.records[one.pod]
        if line.is_looping:
            record.fate = Fate.LOOPING
            continue
        record.fate = Fate.WAITING
        if line.shape.number not in why:
            why[line.shape.number] = lacks(line.shape, play.board)
        record.lacks = why[line.shape.number]


def _samples(play: Play, tally: Tally) -> tuple[Sample, ...]:
    """The samples, the last moment among them."""
    last = Sample(play.now_s, play.board.running, play.lines.length, play.board.requested())
    return (*tally.samples[:-1], last) if _is_last(play, tally) else (*tally.samples, last)


def _is_last(play: Play, tally: Tally) -> bool:
    return bool(tally.samples) and tally.samples[-1].at_s == play.now_s
