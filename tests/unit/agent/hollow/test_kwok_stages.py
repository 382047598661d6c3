"""Stages of kwok as what containers do."""

from typing import Any

import pytest

from nodewright.agent.hollow.behaviour import Behaviour, PodStage, behaviour_of
from nodewright.agent.hollow.kwok_stages import pod_stage
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import Container, ObjectMeta, OwnerReference, Pod, PodSpec

SECOND = 10**9
LIVE = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
DELETED = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
OF_JOB = {"key": ".metadata.ownerReferences.[].kind", "operator": "In", "values": ["Job"]}
IS_READY = {
    "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
    "operator": "In",
    "values": ["True"],
}
NO_IP = {"key": ".status.podIP", "operator": "DoesNotExist"}
INIT_STATE = ".status.initContainerStatuses.[].state."
FAILING = """
{{ $code := or ( index .metadata.annotations "code" ) 1 }}
{{ $anExitCode := 7 }}
%s:
- state: {terminated: x}
  exitCode: 0
  exitCode: {{ $anExitCode }}
phase: "Failed"
"""


def phase(name: str) -> dict[str, Any]:
    return {"key": ".status.phase", "operator": "In", "values": [name]}


def stage(
    name: str, *expressions: dict[str, Any], template: str = "", delay: Any = None, **fields: Any
) -> dict[str, Any]:
    """A Stage of pods, as the API server has it."""
    spec = {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {"matchExpressions": [LIVE, *expressions]},
        "next": {"statusTemplate": template, "delete": False},
        **({"delay": delay} if delay is not None else {}),
        **fields,
    }
    return {"kind": "Stage", "metadata": {"name": name, "uid": name}, "spec": spec}


def from_annotation(name: str, field: str) -> dict[str, str]:
    return {"expressionFrom": f'.metadata.annotations["{name}.stage.kwok.x-k8s.io/{field}"]'}


def delayed(name: str, low_ms: int, high_ms: int) -> dict[str, Any]:
    return {
        "durationMilliseconds": low_ms,
        "durationFrom": from_annotation(name, "delay"),
        "jitterDurationMilliseconds": high_ms,
        "jitterDurationFrom": from_annotation(name, "jitter-delay"),
    }


CREATE = stage(
    "pod-create",
    NO_IP,
    template="phase: Pending\n",
    delay=delayed("pod-create", 1000, 2000),
    next={"event": {"type": "Normal", "reason": "Created"}, "statusTemplate": "phase: Pending\n"},
)
READY = stage(
    "pod-ready", phase("Pending"), template="  phase: Running", delay=delayed("pod-ready", 4000, 4000)
)
COMPLETE = stage(
    "pod-complete",
    phase("Running"),
    IS_READY,
    OF_JOB,
    template="phase: Succeeded",
    delay={"durationMilliseconds": 3000},
    weight=1,
)
INIT_BEGINS = stage(
    "pod-init-container-running",
    phase("Pending"),
    {"key": f"{INIT_STATE}waiting.reason", "operator": "Exists"},
    template="initContainerStatuses: []",
)
INIT_ENDS = stage(
    "pod-init-container-completed",
    phase("Pending"),
    {"key": f"{INIT_STATE}running.startedAt", "operator": "Exists"},
    template="initContainerStatuses: []",
    delay={"durationMilliseconds": 500},
)
FAILED = stage(
    "pod-container-running-failed",
    {"key": '.metadata.labels["chaos"]', "operator": "In", "values": ["true"]},
    phase("Running"),
    template=FAILING % "containerStatuses",
    delay={"durationMilliseconds": 6000},
    weight=10_000,
    weightFrom=from_annotation("pod-container-running-failed", "weight"),
)
INIT_FAILED = stage("init-failed", phase("Pending"), template=FAILING % "initContainerStatuses")
DELETE = stage("pod-delete", DELETED, {"key": ".metadata.finalizers", "operator": "DoesNotExist"})
DELETE["spec"] |= {
    "selector": {"matchExpressions": [DELETED, {"key": ".metadata.finalizers", "operator": "DoesNotExist"}]},
    "next": {"delete": True},
    "delay": {"jitterDurationFrom": {"expressionFrom": ".metadata.deletionTimestamp"}},
}


def read(*documents: dict[str, Any]) -> tuple[PodStage, ...]:
    return tuple(found for document in documents if (found := pod_stage(document)) is not None)


def behaviour(
    stages: tuple[PodStage, ...],
    container: str = "main",
    owner: str = "",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    seed: str = "0",
) -> Behaviour:
    owners = (OwnerReference(kind=owner, name="o", uid="o"),) if owner else ()
    meta = ObjectMeta(
        name="web",
        namespace="shop",
        uid="u",
        labels=labels or {},
        annotations=annotations or {},
        owner_references=owners,
    )
    init = (Container(name="first"), Container(name="beside", restart_policy="Always"))
    pod = Pod(
        meta, PodSpec(containers=(Container(name="main"), Container(name="side")), init_containers=init)
    )
    found, faults = behaviour_of(pod, container, 0, seed, stages)
    assert not faults
    return found


def kwok(stage_name: str, field: str) -> str:
    return f"{stage_name}.stage.kwok.x-k8s.io/{field}"


def test_the_delays_before_a_pod_runs_are_its_start_delay() -> None:
    starts = {behaviour(read(CREATE, READY), seed=str(seed)).starts_after for seed in range(20)}
    assert all(5 * SECOND <= delay < 6 * SECOND for delay in starts)
    assert len(starts) > 10, "drawn by the seed"
    assert behaviour(read(CREATE)).starts_after == behaviour(read(CREATE)).starts_after


def test_pods_of_jobs_end_when_their_stage_says() -> None:
    stages = read(COMPLETE)
    assert (behaviour(stages, owner="Job").runs, behaviour(stages, owner="Job").exit_code) == (3 * SECOND, 0)
    assert behaviour(stages, owner="ReplicaSet").runs is None
    at_once = stage("pod-complete", phase("Running"), OF_JOB, template="phase: Succeeded")
    assert behaviour(read(at_once), owner="Job").runs == 0, "a Stage without a delay delays nothing"


def test_annotations_of_the_pod_win() -> None:
    stages = read(READY, COMPLETE)
    annotations = {
        kwok("pod-ready", "delay"): "1s",
        kwok("pod-ready", "jitter-delay"): "0.5s",
        kwok("pod-complete", "delay"): "9s",
    }
    changed = behaviour(stages, owner="Job", annotations=annotations)
    assert (changed.starts_after, changed.runs) == (SECOND // 2, 9 * SECOND), "kwok takes a shorter jitter"
    own = {**annotations, "nodewright.dev/runs": "2s", "nodewright.dev/starts-after": "3s"}
    changed = behaviour(stages, owner="Job", annotations=own)
    assert (changed.starts_after, changed.runs) == (3 * SECOND, 2 * SECOND)
    assert behaviour(stages, annotations={kwok("pod-ready", "delay"): "soon"}).starts_after == 4 * SECOND


def test_containers_of_selected_pods_fail_with_the_exit_code_of_the_template() -> None:
    stages, chaos = read(COMPLETE, FAILED), {"chaos": "true"}
    failed = behaviour(stages, labels=chaos)
    assert (failed.runs, failed.exit_code) == (6 * SECOND, 7)
    assert behaviour(stages) == Behaviour()
    assert behaviour(stages, "first", labels=chaos) == Behaviour(runs=0), "init containers have ended before"
    annotations = {
        kwok(FAILED["metadata"]["name"], field): text
        for field, text in (("exit-code", "9"), ("container-name", "side"))
    }
    assert behaviour(stages, labels=chaos, annotations=annotations) == Behaviour()
    assert behaviour(stages, "side", labels=chaos, annotations=annotations).exit_code == 9
    plain = stage("fails", phase("Running"), template="phase: Failed")
    assert behaviour(read(plain)).exit_code == 1


def test_stages_of_one_step_are_chosen_by_weight() -> None:
    stages, chaos = read(COMPLETE, FAILED), {"chaos": "true"}

    def codes(weight: str) -> list[int]:
        annotations = {kwok(FAILED["metadata"]["name"], "weight"): weight}
        return [
            behaviour(stages, owner="Job", labels=chaos, annotations=annotations, seed=str(seed)).exit_code
            for seed in range(60)
        ]

    assert set(codes("0")) == {0}
    assert set(codes("1")) == {0, 7}
    assert set(codes("9" * 5000)) == {7}
    assert codes("often").count(7) >= 55, "the weight of the Stage counts"
    unweighted = read({**COMPLETE, "spec": {**COMPLETE["spec"], "weight": 0}}, FAILED)
    annotations = {kwok(FAILED["metadata"]["name"], "weight"): "0"}
    ends = {
        behaviour(unweighted, owner="Job", labels=chaos, annotations=annotations, seed=str(seed)).exit_code
        for seed in range(60)
    }
    assert ends == {0, 7}


def test_init_containers_end_and_fail_when_their_stages_say() -> None:
    assert [behaviour((), name).runs for name in ("first", "beside", "main")] == [0, None, None]
    stages = read(INIT_BEGINS, INIT_ENDS)
    assert [behaviour(stages, name).runs for name in ("first", "beside", "main")] == [SECOND // 2, None, None]
    failed = behaviour(read(INIT_FAILED), "first")
    assert (failed.runs, failed.exit_code) == (0, 7)


def test_readiness_may_follow_the_start() -> None:
    template = """
conditions:
- type: Initialized
  status: "True"
- lastTransitionTime: {{ Now | Quote }}
  status: "True"
  type: Ready
"""
    late = stage("late", phase("Running"), template=template, delay={"durationMilliseconds": 8000})
    assert behaviour(read(late)) == Behaviour(ready_after=8 * SECOND)


@pytest.mark.parametrize(
    ("operator", "values", "selected"),
    [
        ("In", ["a", "b"], ["a"]),
        ("NotIn", ["a", "b"], ["c", None]),
        ("Exists", [], ["a", "c"]),
        ("DoesNotExist", [], [None]),
    ],
)
@pytest.mark.parametrize("kind", ["labels", "annotations"])
def test_pods_are_selected_by_labels_and_annotations(
    kind: str, operator: str, values: list[str], selected: list[str | None]
) -> None:
    expression = {"key": f'.metadata.{kind}["of"]', "operator": operator, "values": values}
    stages = read(stage("s", phase("Running"), expression, template="phase: Succeeded"))

    def runs_by(value: str | None) -> int | None:
        texts = {"of": value} if value else {}
        if kind == "labels":
            return behaviour(stages, labels=texts).runs
        return behaviour(stages, annotations=texts).runs

    found = [value for value in ("a", "c", None) if runs_by(value) is not None]
    assert found == selected


def test_labels_and_annotations_may_be_selected_as_a_map() -> None:
    selector = {
        "matchLabels": {"a": "1"},
        "matchAnnotations": {"b": "2"},
        "matchExpressions": [phase("Running")],
    }
    stages = read(stage("s", template="phase: Succeeded", selector=selector))
    assert behaviour(stages, labels={"a": "1"}, annotations={"b": "2"}).runs == 0
    assert behaviour(stages, labels={"a": "1"}).runs is None


def test_what_a_kubelet_does_anyway_needs_nothing() -> None:
    node = {"resourceRef": {"kind": "Node"}, "selector": {}, "next": {"statusTemplate": "x"}}
    heartbeat = {"metadata": {"name": "node-heartbeat-with-lease"}, "spec": node}
    assert read(DELETE, INIT_BEGINS, heartbeat) == ()


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"resourceRef": {"kind": "Node"}}, "spec.resourceRef.kind"),
        ({"next": {"finalizers": {"empty": True}}}, "finalizers"),
        ({"next": {"delete": True}}, "spec.next.delete"),
        ({"steps": []}, "steps"),
        ({"next": {"statusTemplate": "phase: Unknown"}}, "spec.next.statusTemplate"),
        ({"next": {"statusTemplate": "phase: Failed"}}, "spec.next.statusTemplate"),
        ({"next": {"statusTemplate": "initContainerStatuses:\nexitCode: 256\nphase: Failed"}}, "at most 255"),
        ({"next": {}}, "spec.next.statusTemplate"),
        (
            {
                "selector": {"matchExpressions": [phase("Running")]},
                "next": {"statusTemplate": "- type: Ready\n  status: False\n- status: True\n"},
            },
            "spec.next.statusTemplate",
        ),
        (
            {"selector": {"matchExpressions": [LIVE, {"key": ".spec.nodeName", "operator": "Exists"}]}},
            "spec.selector.matchExpressions[1]",
        ),
        ({"selector": {"matchExpressions": [{"cel": {"expression": "true"}}]}}, "matchExpressions[0]"),
        ({"delay": {"durationFrom": {"expressionFrom": ".status.startTime"}}}, "spec.delay"),
        ({"weightFrom": {"expressionFrom": '.metadata.labels["w"]'}}, "spec.weightFrom"),
    ],
)
def test_what_has_no_equal_is_named_with_its_field(spec: dict[str, Any], path: str) -> None:
    document = stage("s", template="phase: Running")
    with pytest.raises(InputError) as error:
        pod_stage({**document, "spec": {**document["spec"], **spec}})
    assert path in str(error.value)


ODD: tuple[Any, ...] = (5, -1, 10**30, 1.5, "x", True, [5], {"x": 5}, [[]], {"x": {}})


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_malformed_stage_is_named(odd: Any) -> None:
    document = stage("s", template="phase: Running", delay=delayed("s", 1, 2), weight=1)
    malformed = [{**document, "spec": odd}, {"metadata": {"name": odd}}]

    def replaced(value: Any, place: tuple[Any, ...]) -> Any:
        if not place:
            return odd
        if isinstance(value, list):
            return [replaced(value[0], place[1:]), *value[1:]]
        return {**value, place[0]: replaced(value.get(place[0]), place[1:])}

    places = [
        ("resourceRef",),
        ("resourceRef", "kind"),
        ("selector",),
        ("selector", "matchLabels"),
        ("selector", "matchExpressions"),
        ("selector", "matchExpressions", 0),
        ("selector", "matchExpressions", 0, "key"),
        ("selector", "matchExpressions", 0, "operator"),
        ("selector", "matchExpressions", 0, "values"),
        ("delay",),
        ("delay", "durationFrom"),
        ("delay", "durationFrom", "expressionFrom"),
        ("next",),
        ("next", "statusTemplate"),
    ]
    if odd != 5:
        places += [("weight",), ("delay", "durationMilliseconds"), ("delay", "jitterDurationMilliseconds")]
    malformed += [{**document, "spec": replaced(document["spec"], place)} for place in places]
    for each in malformed:
        with pytest.raises(InputError, match="spec"):
            pod_stage(each)
