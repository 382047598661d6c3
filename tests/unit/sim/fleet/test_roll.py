"""Runs that keep no pods that are done come to the same numbers, and hold no more than what is there."""

from pathlib import Path

from nodewright.fleet import Checkpoint, Options, run
from nodewright.model.fleet import FleetPod
from nodewright.sim.fleet.play import Progress
from nodewright.sim.fleet.summary import summary
from nodewright.sim.fleet.values import Fate, Forgotten, PodRecord
from nodewright.testing.fleets import a_template, some_nodes

NODES = some_nodes(2)
BIG, GPU = a_template("cpu=3 memory=1Gi"), a_template("cpu=1")
PODS = [
    FleetPod(
        name=f"p{number}",
        pod=BIG if number % 3 else GPU,
        arrives_s=number // 4,
        runs_s=3,
        gpu_milli=number % 2,
    )
    for number in range(400)
]
FORGETFUL = Options(keeps=False)


def test_numbers_are_the_same() -> None:
    found, kept = run(NODES, PODS, FORGETFUL), run(NODES, PODS)
    assert (len(found.pods), len(kept.pods)) == (0, 400)
    assert summary(found) == summary(kept)
    assert summary(found).time_to_place.most_s > 0


def test_who_is_there_or_waits_at_the_end_is_told() -> None:
    forever = [FleetPod(name=f"q{number}", pod=BIG, arrives_s=500) for number in range(6)]
    found = run(NODES, [*PODS, *forever], FORGETFUL)
    assert [(one.pod.name, str(one.fate)) for one in found.pods] == [
        *((f"q{number}", "running") for number in range(4)),
        *((f"q{number}", "waiting") for number in (4, 5)),
    ]
    assert found.forgotten.fates == {Fate.ENDED: 400}


def test_at_no_time_are_there_more_than_run_and_wait() -> None:
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return progress.arrived < 60

    found = run(NODES, PODS[:80], FORGETFUL, watch=watch)
    last = seen[-1]
    assert not found.complete
    assert len(found.pods) == last.running + last.waiting < last.arrived


def test_a_run_that_was_broken_off_remembers_whom_it_forgot(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "fleet.checkpoint")
    broken = run(NODES, PODS, FORGETFUL, watch=lambda progress: progress.arrived < 200, checkpoint=checkpoint)
    assert not broken.complete
    whole = run(NODES, PODS, FORGETFUL, checkpoint=checkpoint)
    assert whole.forgotten == run(NODES, PODS, FORGETFUL).forgotten


def test_of_very_many_waits_three_digits_are_told_apart() -> None:
    gone = Forgotten()
    for number in range(200_000):
        wait_s = 1000 + number / 1000
        gone.take(PodRecord(pod=PODS[0], fate=Fate.ENDED, arrived_s=0, placed_s=wait_s))
    assert gone.waits.total() == 200_000
    assert len(gone.waits) < 70_000
    assert gone.most_s == 1199.999
