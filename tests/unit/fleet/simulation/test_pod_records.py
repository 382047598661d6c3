"""Runs that keep no pods that are done come to the same numbers, and hold no more than what is there."""

import pytest

from nodewright.fleet import Options, run
from nodewright.fleet.fleet_summary import fleet_summary
from nodewright.fleet.simulation.fleet_simulation import Progress
from nodewright.fleet.simulation.outcomes import FinishedPods, FleetPodRecord, PodOutcome
from nodewright.fleet.workload import FleetPod
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
FORGETFUL = Options(keep_finished_pods=False)


def test_numbers_are_the_same() -> None:
    found, kept = run(NODES, PODS, FORGETFUL), run(NODES, PODS)
    assert (len(found.pods), len(kept.pods)) == (0, 400)
    assert fleet_summary(found) == fleet_summary(kept)
    assert fleet_summary(found).time_to_place.longest_s > 0


def test_running_and_waiting_pods_at_the_end_have_records() -> None:
    forever = [FleetPod(name=f"q{number}", pod=BIG, arrives_s=500) for number in range(6)]
    fleet_result = run(NODES, [*PODS, *forever], FORGETFUL)
    assert [(pod.pod.name, str(pod.outcome)) for pod in fleet_result.pods] == [
        *((f"q{number}", "running") for number in range(4)),
        *((f"q{number}", "waiting") for number in (4, 5)),
    ]
    assert fleet_result.finished_pods.outcomes == {PodOutcome.ENDED: 400}


def test_records_are_kept_only_for_running_and_waiting_pods() -> None:
    seen: list[Progress] = []

    def watch(progress: Progress) -> bool:
        seen.append(progress)
        return progress.arrived < 60

    fleet_result = run(NODES, PODS[:80], FORGETFUL, watch=watch)
    last = seen[-1]
    assert not fleet_result.complete
    assert len(fleet_result.pods) == last.running + last.waiting < last.arrived


@pytest.mark.slow
def test_very_many_waits_are_counted_to_three_digits() -> None:
    gone = FinishedPods()
    for number in range(200_000):
        wait_s = 1000 + number / 1000
        gone.add(FleetPodRecord(pod=PODS[0], outcome=PodOutcome.ENDED, arrived_s=0, placed_s=wait_s))
    assert gone.waits.total() == 200_000
    assert len(gone.waits) < 70_000
    assert gone.longest_wait_s == 1199.999
