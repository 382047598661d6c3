"""What BestEffort pods could have of a fleet's memory: loans of a run equal those of an agent that samples."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.engine.core.lending.node_loans import NodeSamples, node_reservations
from nodewright.engine.core.lending.predictors import PREDICTORS, Predictor, State, UsageSamples
from nodewright.engine.core.requests.effective_resources import scheduler_requests
from nodewright.fleet import Options, run
from nodewright.fleet.fleet_lending import FleetLoans, PodStays, fleet_loans
from nodewright.fleet.simulation.outcomes import FleetResult
from nodewright.fleet.workload import FleetPod, UsageStep
from nodewright.model.errors import InputError
from nodewright.testing.fleets import a_template, some_nodes, some_pods

GIB = 1 << 30
predictors = st.sampled_from(list(PREDICTORS.values()))


def run_of(pods: list[FleetPod], nodes: int = 1, until_s: float = 7200) -> tuple[FleetResult, PodStays]:
    stays = PodStays()
    arriving = sorted(pods, key=lambda pod: pod.arrives_s)
    return run(some_nodes(nodes), arriving, Options(until_s=until_s), sink=stays), stays


def loans_of(pods: list[FleetPod], predictor: str, nodes: int = 1) -> FleetLoans | None:
    result, stays = run_of(pods, nodes)
    return fleet_loans(result, stays.stays, PREDICTORS[predictor])


@st.composite
def workloads(draw: st.DrawFn) -> list[FleetPod]:
    steps = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), max_size=4)
    return [
        FleetPod(
            name=f"p{number}",
            pod=a_template(f"cpu=500m memory={draw(st.integers(1, 3))}Gi"),
            arrives_s=draw(st.integers(0, 900)),
            runs_s=draw(st.one_of(st.none(), st.integers(1, 1800))),
            usage=tuple(UsageStep(at * 60, size * GIB) for at, size in sorted(draw(steps))),
        )
        for number in range(draw(st.integers(1, 4)))
    ]


def slow_room(result: FleetResult, stays: PodStays, predictor: Predictor, at: int) -> list[int]:
    """What is left beside the pods, sample by sample as an agent takes them, up to this sample."""
    allocatable = result.nodes[0].state.config.view.allocatable["memory"]
    states: Mapping[str, State] = {}
    room = []
    for now_s in range(0, 60 * at, 60):
        present = {}
        for number, stay in enumerate(stays.stays):
            if stay.begins_s <= now_s < stay.ends_s:
                pod = result.pods[stay.pod].pod
                past = [step.memory_bytes for step in pod.usage if stay.begins_s + step.at_s <= now_s]
                request = int(str(pod.pod.spec.containers[0].resources.requests["memory"])[:-2]) * GIB
                present[str(number)] = UsageSamples(
                    times_ns=(now_s * 10**9,),
                    usage=(past[-1] if past else None,),
                    request=request,
                    capacity=allocatable,
                    is_memory=True,
                )
        samples = NodeSamples(
            times_ns=(now_s * 10**9,),
            pods=tuple(present.values()),
            names=tuple(present),
            capacity=allocatable,
            is_memory=True,
        )
        states, (reserved,) = node_reservations(predictor, samples, states)
        room.append(max(allocatable - reserved, 0))
    return room


@given(workloads(), predictors)
def test_loans_are_those_of_an_agent_that_samples(pods: list[FleetPod], predictor: Predictor) -> None:
    pods = [replace(pods[0], usage=(UsageStep(0, GIB),)), *pods[1:]]
    result, stays = run_of(pods)
    count = int(result.ended_s // 60) + 1
    room = slow_room(result, stays, predictor, count)
    without = slow_room(result, stays, PREDICTORS["request"], count)
    loans = fleet_loans(result, stays.stays, predictor)
    assert (loans is None) == (room == without)
    if loans is not None:
        assert loans.lending.mean == sum(room) // count
        assert loans.without.mean == sum(without) // count
        assert sum(room) >= sum(without)
        if all(step.memory_bytes <= _requested(pod) for pod in pods for step in pod.usage):
            assert loans.used <= loans.allocatable - loans.lending.mean


def _requested(pod: FleetPod) -> int:
    return scheduler_requests(pod.pod).get("memory", 0)


@given(workloads())
def test_requests_lend_nothing(pods: list[FleetPod]) -> None:
    pods = [replace(pods[0], usage=(UsageStep(0, GIB),)), *pods[1:]]
    assert loans_of(pods, "request") is None


def test_a_fleet_lends_what_steady_pods_do_not_use() -> None:
    """After five minutes half of 12 GiB; a borrower on each of two nodes ends when its owner uses all."""
    usage = (UsageStep(0, 3 * GIB), UsageStep(3600, 6 * GIB))
    end = some_pods(1, a_template("cpu=100m"), name="last", arrives_s=7200)
    owners = some_pods(2, a_template("cpu=5 memory=6Gi"), usage=usage)
    loans = loans_of([*owners, *end], "borg-decay", nodes=2)
    assert loans is not None
    assert loans.requested == 12 * GIB
    assert loans.without.ended == 0
    assert loans.lending.ended == 4
    assert loans.lending.utilization > loans.without.utilization
    assert 0 < loans.lending.hours - loans.without.hours < 6


@pytest.mark.parametrize(
    ("usage", "until_s", "rule"),
    [
        ((), 60, "needs the pods' usage over time"),
        ((UsageStep(0, 1),), 10**8, "at most 600000 are supported"),
    ],
)
def test_runs_that_say_nothing_are_errors(usage: tuple[UsageStep, ...], until_s: float, rule: str) -> None:
    pods = some_pods(1, a_template("memory=1Gi"), usage=usage, runs_s=until_s)
    result, stays = run_of(pods, until_s=until_s)
    with pytest.raises(InputError, match=rule):
        fleet_loans(result, stays.stays, PREDICTORS["request"])
