"""Workloads without their templates: what a real API server answers."""

from typing import Any

import pytest

from nodewright.engine.admission.validation.violation import violation_fault
from nodewright.engine.admission.validation.workload_spec import workload_violations

NEGATIVE = "must be greater than or equal to 0"
MISMATCH = "`selector` does not match template `labels`"
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
CLAIMS = "spec.volumeClaimTemplates[0].spec"


def selecting(selector: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {"selector": selector, "template": {"metadata": {"labels": labels}}}


def matching(operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "a", "operator": operator, "values": list(values)}]}


def mismatch(shown: str) -> list[str]:
    return [f"spec.template.metadata.labels: Invalid value: {shown}: {MISMATCH}"]


VALID = selecting({"matchLabels": {"a": "b"}}, a="b")
"""Of a workload that selects the pods of its template."""
NO_SELECTOR = "spec.selector: Required value"

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("Deployment", VALID | {"replicas": 0}, []),
    ("Deployment", VALID | {"replicas": -1}, [f"spec.replicas: Invalid value: -1: {NEGATIVE}"]),
    ("Deployment", VALID | {"progressDeadlineSeconds": 5, "minReadySeconds": 5},
     ["spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds"]),
    ("Deployment", selecting({"matchLabels": {"a": "b"}}, a="b", c="d"), []),
    ("Deployment", selecting({"matchLabels": {"a": "b"}}, c="d", a="c"), mismatch('{"a":"c","c":"d"}')),
    ("Deployment", selecting({"matchLabels": {"a": "b"}}), mismatch("{}")),
    ("Deployment", {"selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {}}}, mismatch("null")),
    ("Deployment", selecting({}, a="b"), ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"]),
    ("ReplicaSet", selecting(matching("In", "b", "c"), a="c"), []),
    ("ReplicaSet", selecting(matching("NotIn", "b"), a="b"), mismatch('{"a":"b"}')),
    ("StatefulSet", selecting(matching("Exists"), b="c"), mismatch('{"b":"c"}')),
    ("DaemonSet", selecting(matching("DoesNotExist"), b="c"), []),
    ("DaemonSet", selecting(matching("Gt", "1"), a="2"),
     ['spec.selector.matchExpressions[0].operator: Invalid value: "Gt": not a valid selector operator']),
    ("DaemonSet", VALID | {"replicas": -1}, []),
    ("StatefulSet", VALID | {"podManagementPolicy": "Any"},
     ["spec.podManagementPolicy: Invalid value: \"Any\": must be 'OrderedReady' or 'Parallel'"]),
    ("StatefulSet", VALID | {"ordinals": {"start": -1}}, [f"spec.ordinals.start: Invalid value: -1: {NEGATIVE}"]),
    ("StatefulSet", VALID | {"volumeClaimTemplates": [{"spec": CLAIM}]}, []),
    ("StatefulSet", VALID | {"volumeClaimTemplates": [{}]},
     [f"{CLAIMS}.accessModes: Required value: at least 1 access mode is required",
      f"{CLAIMS}.resources[storage]: Required value"]),
    ("StatefulSet", VALID | {"volumeClaimTemplates": [{"spec": {**CLAIM, "volumeMode": "Tape"}}]},
     [f'{CLAIMS}.volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"']),
    ("Job", {"completions": -2, "backoffLimit": -1},
     [f"spec.completions: Invalid value: -2: {NEGATIVE}", f"spec.backoffLimit: Invalid value: -1: {NEGATIVE}"]),
    ("Job", {"completionMode": "Indexed"}, []),
    ("Job", {"completionMode": "Indexed", "parallelism": 2},
     ["spec.completions: Required value: when completion mode is Indexed"]),
    ("Job", {"completionMode": "Sorted"},
     ['spec.completionMode: Unsupported value: "Sorted": supported values: "NonIndexed", "Indexed"']),
    ("CronJob", {"schedule": "* * * * *"}, []),
    ("CronJob", {}, ["spec.schedule: Required value"]),
    ("CronJob", {"schedule": "@daily", "concurrencyPolicy": "Queue", "jobTemplate": {"spec": {"parallelism": -1}}},
     [f"spec.jobTemplate.spec.parallelism: Invalid value: -1: {NEGATIVE}",
      'spec.concurrencyPolicy: Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"']),
    ("PodTemplate", {"replicas": -1}, []),
    ("Deployment", {}, [NO_SELECTOR, *mismatch("null")]),
    ("ReplicaSet", {**VALID, "selector": None}, [NO_SELECTOR, *mismatch('{"a":"b"}')]),
    ("StatefulSet", {**VALID, "selector": None}, [NO_SELECTOR, *mismatch('{"a":"b"}')]),
    ("DaemonSet", {**VALID, "selector": None}, mismatch('{"a":"b"}')),
    ("ReplicationController", {**VALID, "selector": None}, []),  # by default the labels of the template
    ("ReplicationController", {"template": {}}, [NO_SELECTOR]),
    ("ReplicationController", {}, [NO_SELECTOR, "spec.template: Required value"]),
    ("ReplicationController", {"selector": {"a": "b"}}, ["spec.template: Required value"]),
    ("Job", {"template": {}}, []),  # its selector is generated
]  # fmt: skip


@pytest.mark.parametrize(("kind", "spec", "wanted"), CASES)
def test_workloads_are_judged_as_the_api_server_does(
    kind: str, spec: dict[str, Any], wanted: list[str]
) -> None:
    assert [str(violation_fault(each)) for each in workload_violations(kind, spec)] == wanted
