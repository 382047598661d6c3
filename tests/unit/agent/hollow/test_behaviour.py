"""Annotations as what containers do."""

import pytest

from nodewright.agent.hollow.behaviour import Behaviour, UsageCurve, behaviour_of, has_usage
from nodewright.model.kubernetes.objects import Container, ObjectMeta, OwnerReference, Pod, PodSpec

SECOND, MIB = 10**9, 1 << 20


def a_pod(annotations: dict[str, str], owner: str = "") -> Pod:
    owners = (OwnerReference(kind=owner, name="o", uid="o"),) if owner else ()
    meta = ObjectMeta(name="web", namespace="shop", uid="u", annotations=annotations, owner_references=owners)
    return Pod(meta, PodSpec(containers=(Container(name="main"), Container(name="side"))))


def behaviour(annotations: dict[str, str], container: str = "main", owner: str = "") -> Behaviour:
    found, faults = behaviour_of(a_pod(annotations, owner), container, 0, "0")
    assert not faults
    return found


def test_without_annotations_a_container_runs_until_it_is_stopped() -> None:
    assert behaviour({}) == Behaviour()
    assert not has_usage(a_pod({}))


def test_every_annotation_is_read() -> None:
    annotations = {
        "starts-after": "2s",
        "runs": "1m",
        "exit-code": "3",
        "stops-after": "5s",
        "ready-after": "10s",
        "fails-after": "20s",
        "memory": "0s=100Mi,10s=200Mi",
        "disk": "1Gi",
        "logs": "started\n",
        "exec": "fine",
        "exec-code": "2",
    }
    read = behaviour({f"nodewright.dev/{name}": text for name, text in annotations.items()})
    assert read == Behaviour(
        starts_after=2 * SECOND,
        runs=60 * SECOND,
        exit_code=3,
        stops_after=5 * SECOND,
        ready_after=10 * SECOND,
        fails_after=20 * SECOND,
        memory=UsageCurve(((0, 100 * MIB), (10 * SECOND, 200 * MIB))),
        disk=UsageCurve(((0, 1 << 30),)),
        logs="started\n",
        exec="fine",
        exec_code=2,
    )


def test_an_annotation_of_one_container_wins() -> None:
    annotations = {"nodewright.dev/runs": "1s", "nodewright.dev/runs.side": "2s"}
    assert (behaviour(annotations).runs, behaviour(annotations, "side").runs) == (SECOND, 2 * SECOND)
    assert has_usage(a_pod({"nodewright.dev/memory.side": "1Mi"}))


def test_a_range_draws_by_seed_and_names() -> None:
    pod = a_pod({"nodewright.dev/runs": "10s..1h"})
    first, again = (behaviour_of(pod, "main", 0, "a")[0].runs for _ in range(2))
    assert first == again
    assert first is not None
    assert 10 * SECOND <= first <= 3600 * SECOND
    others = {
        behaviour_of(pod, *place)[0].runs for place in (("side", 0, "a"), ("main", 1, "a"), ("main", 0, "b"))
    }
    assert len({first, *others}) == 4


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("runs", "soon", "invalid duration"),
        ("runs", "-1s", "must be between"),
        ("runs", "3s..1s", "must not be shorter"),
        ("exit-code", "256", "from 0 to 255"),
        ("exit-code", "x", "from 0 to 255"),
        ("exit-code", "9" * 5000, "from 0 to 255"),
        ("runs", "9" * 5000 + "s", "invalid duration"),
        ("memory", "9" * 5000, "quantities must match"),
        ("memory", "1s=1Mi,1s=2Mi", "must ascend"),
        ("memory", "1s=lots", "quantities must match"),
        ("memory", "-1Mi", "must be an amount"),
        ("disk", "", ""),
    ],
)
def test_what_cannot_be_read_is_named_and_counts_as_absent(name: str, text: str, rule: str) -> None:
    key = f"nodewright.dev/{name}"
    read, faults = behaviour_of(a_pod({key: text}), "main", 0, "0")
    assert read == Behaviour()
    (fault,) = faults
    assert fault.path == f'metadata.annotations["{key}"]'
    assert rule in str(fault)


def test_annotations_of_kwok_that_mean_the_same_are_read() -> None:
    stage = {
        "pod-ready.stage.kwok.x-k8s.io/delay": "2s",
        "pod-create.stage.kwok.x-k8s.io/delay": "1s",
        "pod-complete.stage.kwok.x-k8s.io/delay": "5s",
        "pod-complete.stage.kwok.x-k8s.io/jitter-delay": "7s",
        "kwok.x-k8s.io/usage-memory": "64Mi",
    }
    job = behaviour(stage, owner="Job")
    assert job.runs is not None
    assert (job.starts_after, job.memory.at(0)) == (3 * SECOND, 64 * MIB)
    assert 5 * SECOND <= job.runs < 7 * SECOND
    assert behaviour(stage, owner="ReplicaSet").runs is None, "kwok completes pods of Jobs only"
    assert behaviour({**stage, "nodewright.dev/runs": "1s"}, owner="Job").runs == SECOND
    assert behaviour({"kwok.x-k8s.io/usage-memory": "x"}).memory == UsageCurve()


@pytest.mark.parametrize("limit", [*range(90, 301, 7), 300])
def test_the_first_moment_above_a_limit_is_the_first_one(limit: int) -> None:
    curve = UsageCurve(((0, 100), (10, 200), (20, 120), (27, 300)))
    slow = next((at for at in range(40) if curve.at(at) > limit), None)
    assert curve.first_above(limit) == slow
