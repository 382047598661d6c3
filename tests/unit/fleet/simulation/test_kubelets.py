"""Pods whose use is told, until a node runs short."""

from nodewright.fleet import run
from nodewright.fleet.simulation.outcomes import FleetEvent, FleetEventKind, FleetResult, PodOutcome
from nodewright.fleet.workload import UsageStep
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile

GIB = 1 << 30
NODE = a_profile(evictionHard={"memory.available": "1Gi"})
"""8 GiB."""
CALM = some_pods(1, a_template("cpu=1 memory=2Gi"), "calm", usage=(UsageStep(0, 2 * GIB),))
GREEDY = some_pods(
    1, a_template("cpu=1 memory=1Gi"), "greedy", usage=(UsageStep(0, GIB), UsageStep(60, 6 * GIB))
)


def played(
    *, has_controller: bool = False, runs_s: float | None = None
) -> tuple[list[FleetEvent], FleetResult]:
    happened: list[FleetEvent] = []
    greedy = some_pods(
        1, GREEDY[0].pod, "greedy", usage=GREEDY[0].usage, has_controller=has_controller, runs_s=runs_s
    )
    result = run(some_nodes(1, NODE), [*CALM, *greedy], sink=happened.append)
    return happened, result


def test_the_pod_that_exceeds_its_requests_is_evicted() -> None:
    happened, result = played()
    assert [(fleet_event.at_s, fleet_event.kind, fleet_event.pod) for fleet_event in happened[2:]] == [
        (60, FleetEventKind.EVICTED, 1)
    ]
    assert [pod.outcome for pod in result.pods] == [PodOutcome.RUNNING, PodOutcome.EVICTED]
    assert result.evictions == 1


def test_conditions_end_after_their_transition_period() -> None:
    _, result = played()
    assert result.nodes[0].state.conditions == ()
    assert result.ended_s == 360


def test_a_pod_that_is_evicted_repeatedly_is_not_replaced_forever() -> None:
    happened, result = played(has_controller=True)
    assert happened[-1].kind is FleetEventKind.LOOPING
    assert (result.pods[1].outcome, result.pods[1].placements, result.evictions) == (
        PodOutcome.EVICTED,
        100,
        100,
    )


def test_a_pod_that_completes_before_pressure_is_not_evicted() -> None:
    _, result = played(runs_s=50)
    assert [pod.outcome for pod in result.pods] == [PodOutcome.RUNNING, PodOutcome.ENDED]
