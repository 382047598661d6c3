"""Pods whose use is told, until a node runs short."""

from nodewright.fleet import run
from nodewright.model.fleet import Used
from nodewright.sim.fleet.values import Fate, FleetResult, Happening, Kind
from nodewright.testing.fleets import a_template, some_nodes, some_pods
from nodewright.testing.nodes import a_profile

GIB = 1 << 30
NODE = a_profile(evictionHard={"memory.available": "1Gi"})
"""8 GiB."""
CALM = some_pods(1, a_template("cpu=1 memory=2Gi"), "calm", usage=(Used(0, 2 * GIB),))
GREEDY = some_pods(1, a_template("cpu=1 memory=1Gi"), "greedy", usage=(Used(0, GIB), Used(60, 6 * GIB)))


def played(*, controlled: bool = False, runs_s: float | None = None) -> tuple[list[Happening], FleetResult]:
    happened: list[Happening] = []
    greedy = some_pods(
        1, GREEDY[0].pod, "greedy", usage=GREEDY[0].usage, controlled=controlled, runs_s=runs_s
    )
    result = run(some_nodes(1, NODE), [*CALM, *greedy], sink=happened.append)
    return happened, result


def test_who_uses_more_than_it_asked_for_goes() -> None:
    happened, result = played()
    assert [(one.at_s, one.kind, one.pod) for one in happened[2:]] == [(60, Kind.EVICTED, 1)]
    assert [one.fate for one in result.pods] == [Fate.RUNNING, Fate.EVICTED]
    assert result.evictions == 1


def test_conditions_last_and_then_go() -> None:
    _, result = played()
    assert result.nodes[0].state.conditions == ()
    assert result.ended_s == 360


def test_a_pod_that_is_evicted_over_and_over_is_not_made_for_ever() -> None:
    happened, result = played(controlled=True)
    assert happened[-1].kind is Kind.LOOPING
    assert (result.pods[1].fate, result.pods[1].stays, result.evictions) == (Fate.EVICTED, 100, 100)


def test_a_pod_that_leaves_in_time_stays_whole() -> None:
    _, result = played(runs_s=50)
    assert [one.fate for one in result.pods] == [Fate.RUNNING, Fate.ENDED]
