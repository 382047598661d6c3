"""Workloads that contradict themselves: the recorded errors of a real API server, object by object."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.manifests import workloads_from
from nodewright.model.errors import InputError

RECORDED = Path(__file__).parents[3] / "golden/errors/workloads.jsonl"
CASES = [json.loads(line) for line in RECORDED.read_text("utf-8").splitlines()]


def errors_of(item: dict[str, Any]) -> list[str]:
    try:
        workloads_from(json.dumps(item).encode(), "web.yaml")
    except InputError as error:
        return sorted(str(replace(fault, source="")) for fault in error.faults)
    return []


def job(meta: dict[str, Any], labels: dict[str, str], **fields: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}
    spec = {"template": {"metadata": {"labels": labels}, "spec": pod}, **fields}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "web", **meta}, "spec": spec}


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_workloads_have_the_recorded_errors(case: dict[str, Any]) -> None:
    assert errors_of(case["object"]) == case["errors"]


def test_a_deployment_has_600_seconds_to_progress_by_default() -> None:
    deployment = {**CASES[0]["object"], "spec": {**CASES[0]["object"]["spec"], "minReadySeconds": 600}}
    deployment["spec"].pop("strategy")
    rule = "spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"
    assert errors_of(deployment) == [rule]


UID_LABELS = {"controller-uid": "u1", "batch.kubernetes.io/controller-uid": "u1", "job-name": "web"}


def test_a_job_of_a_cluster_has_the_selector_that_was_generated_for_it() -> None:
    selector = {"matchLabels": UID_LABELS}
    assert errors_of(job({"uid": "u1"}, UID_LABELS, selector=selector)) == []
    other = errors_of(job({"uid": "u2"}, UID_LABELS, selector=selector))
    assert [text.partition(": ")[0] for text in other] == [
        "spec.selector",
        "spec.template.metadata.labels[batch.kubernetes.io/controller-uid]",
        "spec.template.metadata.labels[controller-uid]",
    ]
    assert other[-1].endswith(": must be 'u2'")


def test_the_uid_of_a_new_job_is_not_known() -> None:
    texts = errors_of(job({}, UID_LABELS))
    assert len(texts) == 3
    assert texts[-1].endswith(": must be the uid that the Job gets")


def test_template_labels_are_located_though_their_path_leaves_out_metadata() -> None:
    text = "kind: Deployment\napiVersion: apps/v1\nmetadata: {name: web}\nspec:\n  template:\n    metadata:\n      labels:\n        a: '-'\n    spec: {containers: [{name: a}]}\n"
    with pytest.raises(InputError, match=r"web.yaml:7:\d+, Deployment default/web: spec.template.labels"):
        workloads_from(text.encode(), "web.yaml")


@pytest.mark.parametrize(
    ("resources", "is_set"),
    [
        ({"limits": {}}, True),
        ({"requests": {}}, True),
        ({"claims": []}, True),
        ({"limits": None}, False),
        ({}, False),
        (None, False),
        ({"limits": {"cpu": "1"}}, True),
    ],
)
def test_written_resources_of_ephemeral_containers_are_errors_though_they_name_none(
    resources: Any, is_set: bool
) -> None:
    debugger = {"name": "debugger", "image": "x", "resources": resources}
    spec = {"containers": [{"name": "main", "image": "x"}], "ephemeralContainers": [debugger]}
    texts = errors_of({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": spec})
    error = "spec.ephemeralContainers[0].resources: Forbidden: cannot be set for an Ephemeral Container"
    assert (error in texts) == is_set
    assert "spec.ephemeralContainers: Forbidden: cannot be set on create" in texts
