"""Pods with odd values: a real API server and this project give the same verdict with the same text."""

import json
import os
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec.structs import replace
from tests.support.odd_fields import OddFields
from tests.support.odd_pods import OddPods
from tests.support.real_api_server import APIAnswer, RealAPIServer, needs_real, real_api_server

from nodewright.documents.formats.api_objects import guessed_plural
from nodewright.documents.formats.manifests import workloads_from
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.api_request import CLUSTER_WIDE

pytestmark = [
    pytest.mark.live,
    needs_real(),
]
PODS = "/api/v1/namespaces/default/pods"
CLASSES = """
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: vm}, handler: vm, overhead: {podFixed: {cpu: 250m}}}
---
{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: plain}, handler: plain}
---
{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: high}, value: 5, preemptionPolicy: Never}
"""
RECORDED = Path(__file__).parents[1] / "golden/errors/workloads.jsonl"
RESOURCES = {
    "RuntimeClass": "/apis/node.k8s.io/v1/runtimeclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAPIServer]:
    with real_api_server(Path(tmp_path_factory.mktemp("api-server"))) as client:
        while client.request("GET", "/api/v1/namespaces/default").code != 200:
            time.sleep(0.1)
        for item in yaml.safe_load_all(CLASSES):
            assert client.create(RESOURCES[item["kind"]], item).code == 201
        time.sleep(1)  # the admission plugins read classes from a cache
        yield client


def real_verdict(answer: APIAnswer) -> tuple[str, frozenset[str]]:
    """`created`, `Forbidden` or `Invalid`, and the errors."""
    if answer.code == 201:
        return "created", frozenset()
    causes = (answer.body.get("details") or {}).get("causes") or ()
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes] or [answer.message]
    return str(answer.body["reason"]), frozenset(texts)


def verdict(pod: dict[str, Any], more: str = "") -> tuple[str, frozenset[str]]:
    content = f"{json.dumps(pod)}\n---{CLASSES}{more}"
    try:
        workloads = workloads_from(content.encode(), "pod.yaml").workloads
    except InputError as error:
        return "Invalid", frozenset(str(replace(fault, source="")) for fault in error.faults)
    refusal = workloads[0].refusal if workloads else None
    return ("created", frozenset()) if refusal is None else (refusal.status, frozenset([refusal.error]))


@pytest.mark.parametrize("seed", range(4))
def test_odd_pods_get_the_real_verdict_and_texts(seed: int, server: RealAPIServer) -> None:
    odd_pods, differences = OddPods(seed), []
    for _ in range(250):
        pod = odd_pods.pod()
        real = real_verdict(server.create(PODS, pod, is_dry_run=True))
        if real != (ours := verdict(pod)):
            differences.append((pod, real, ours))
    assert not differences


OWNER = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}
ODD_METADATA: list[dict[str, Any]] = [
    *(
        {"finalizers": [name]}
        for name in ("", "/", "a/b/c", "Example.com/a", "a" * 64, " orphan", "kubernetes")
    ),
    {"finalizers": ["foregroundDeletion", "orphan", "x"]},
    {"finalizers": ["example.com/a", "example.com/a"]},
    *(
        {"ownerReferences": [{**OWNER, field: value}]}
        for field, value in (
            ("apiVersion", "a/b/c"),
            ("apiVersion", "/v1"),
            ("uid", " "),
            ("kind", "Event"),
            ("name", "a/b"),
        )
    ),
    {"ownerReferences": [{**OWNER, "controller": True}, {**OWNER, "controller": True, "uid": "v"}]},
    {"ownerReferences": [OWNER, OWNER]},
    {"generation": -1},
    {"annotations": {"A b": "c"}},
    {"annotations": {"EXAMPLE.com/Ab": "c"}},
    {"labels": {"a": None}},
    {"generateName": "A_"},
    {"name": "a..b"},
]
ODD_SPECS: list[dict[str, Any]] = [
    {"shareProcessNamespace": False, "hostPID": True},
    {"shareProcessNamespace": True, "hostNetwork": True},
    *({"hostUsers": False, field: True} for field in ("hostPID", "hostIPC", "hostNetwork")),
    *({"activeDeadlineSeconds": value} for value in (0, -5, 2**31)),
    *({"initContainers": [{"name": "x", **more}]} for more in ({}, {"image": " "}, {"image": "a "})),
    {"initContainers": [{"name": "x", "restartPolicy": "Always"}]},
    {"ephemeralContainers": [{"name": "x", "image": ""}]},
    *({"resources": {"limits": {"cpu": value}}} for value in ("1e999", "100e18", "10E", "-0", "1e-20", ".5")),
    {"tolerations": [{"operator": "Exists", "effect": "Foo"}]},
    {"schedulingGates": [{"name": "a"}, {"name": "a"}]},
    {"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}]},
]


@pytest.mark.parametrize("odd", [*ODD_METADATA, *ODD_SPECS], ids=str)
def test_odd_metadata_and_fields_get_the_real_verdict_and_texts(
    odd: dict[str, Any], server: RealAPIServer
) -> None:
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    pod["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    pod["metadata" if odd in ODD_METADATA else "spec"].update(odd)
    assert verdict(pod) == real_verdict(server.create(PODS, pod, is_dry_run=True))


def test_pods_under_limit_ranges_get_the_real_verdict(server: RealAPIServer) -> None:
    odd_pods, accepted, differences = OddPods(5), [], []
    for number in range(60):
        namespace, limits = f"limits-{number}", odd_pods.limit_range("limits")
        server.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        if server.create(f"/api/v1/namespaces/{namespace}/limitranges", limits).code == 201:
            accepted.append((namespace, {**limits, "metadata": {"name": "limits", "namespace": namespace}}))
    assert accepted
    time.sleep(1)
    for namespace, limits in accepted * 8:
        pod = odd_pods.pod()
        pod["metadata"]["namespace"] = namespace
        real, _ = real_verdict(server.create(PODS.replace("default", namespace), pod, is_dry_run=True))
        ours, _ = verdict(pod, f"---\n{json.dumps(limits)}\n")
        if real != ours:
            differences.append((pod, limits, real, ours))
    assert not differences


def test_recorded_errors_of_workloads_are_the_real_ones(server: RealAPIServer) -> None:
    for line in RECORDED.read_text("utf-8").splitlines():
        case = json.loads(line)
        version, kind = case["object"]["apiVersion"], case["object"]["kind"]
        prefix = "/api/v1" if version == "v1" else f"/apis/{version}"
        path = f"{prefix}/namespaces/default/{kind.lower()}s"
        _, texts = real_verdict(server.create(path, case["object"], is_dry_run=True))
        assert sorted(texts) == case["errors"]


TEMPLATE_KINDS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
}


def test_templates_of_all_kinds_get_the_real_texts(server: RealAPIServer) -> None:
    odd_pods, differences = OddPods(6), []
    for kind, version in list(TEMPLATE_KINDS.items()) * 40:
        spec = odd_pods.pod()["spec"]
        template = {"metadata": {"labels": {"a": "b"}}, "spec": spec}
        selector = {} if kind == "Job" else {"selector": {"matchLabels": {"a": "b"}}}
        service = {"serviceName": "web"} if kind == "StatefulSet" else {}
        owner: dict[str, Any] = {"apiVersion": version, "kind": kind, "metadata": {"name": "web"}}
        owner["spec"] = {"template": template, **selector, **service}
        path = f"/apis/{version}/namespaces/default/{kind.lower()}s"
        answer = server.create(path, owner, is_dry_run=True)
        causes = (answer.body.get("details") or {}).get("causes") or ()
        real = {f"{cause['field']}: {cause['message']}" for cause in causes}
        try:
            workloads_from(json.dumps(owner).encode(), "owner.yaml")
            ours: set[str] = set()
        except InputError as error:
            ours = {str(replace(fault, source="")) for fault in error.faults}
        if real != ours:
            differences.append((owner, real, ours))
    assert not differences


MANAGED_FIELDS = {
    "manager": "a",
    "operation": "Update",
    "apiVersion": "v1",
    "time": "2026-01-31T12:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:b": {}}}},
}


@pytest.mark.parametrize("value", [None, "", "a", "a/b/c", "v2", 5, True, [], {}, {"f:spec": {}}, {"x:y": 1}])
def test_managed_fields_of_each_type_get_the_real_verdict(value: Any, server: RealAPIServer) -> None:
    entries = [{**MANAGED_FIELDS, field: value} for field in (*MANAGED_FIELDS, "subresource", "unknown")]
    for managed_fields in (value, [value], *([entry] for entry in entries)):
        if managed_fields == [None]:  # A list item that is null is a fault here, in every list of structures.
            continue
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "managedFields": managed_fields}}
        pod["spec"] = {"containers": [{"name": "a", "image": "a"}]}
        code = server.create(PODS, pod, is_dry_run=True).code
        assert (code == 201) == (verdict(pod)[0] == "created"), (code, managed_fields)


TEMPLATE = "{metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}"
OF_PODS = "selector: {matchLabels: {a: b}}, template: " + TEMPLATE
JOB = "template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}"
CLAIM = "devices: {requests: [{name: r, exactly: {deviceClassName: c}}]}"
WITH_ODD_FIELDS = [
    ("v1", "Pod", "{spec: {containers: [{name: c, image: i}]}}", ""),
    ("v1", "LimitRange", "{spec: {limits: [{type: Container}]}}", ""),
    ("v1", "ResourceQuota", "{spec: {}}", ""),
    ("scheduling.k8s.io/v1", "PriorityClass", "{value: 5}", ""),
    ("node.k8s.io/v1", "RuntimeClass", "{handler: h}", "podFixed"),
    ("apps/v1", "Deployment", f"{{spec: {{{OF_PODS}}}}}", "template"),
    ("apps/v1", "StatefulSet", f"{{spec: {{serviceName: s, {OF_PODS}}}}}", "template"),
    ("apps/v1", "DaemonSet", f"{{spec: {{{OF_PODS}}}}}", "template"),
    ("apps/v1", "ReplicaSet", f"{{spec: {{{OF_PODS}}}}}", "template"),
    ("batch/v1", "Job", f"{{spec: {{{JOB}}}}}", "selector"),
    ("batch/v1", "CronJob", f"{{spec: {{schedule: '@daily', jobTemplate: {{spec: {{{JOB}}}}}}}}}", "jobTemplate timeZone"),
    ("resource.k8s.io/v1", "ResourceClaim", f"{{spec: {{{CLAIM}}}}}", "expression cel adminAccess"),
    ("resource.k8s.io/v1", "DeviceClass", "{spec: {}}", "expression cel"),
]  # fmt: skip
"""API version, kind, an object, and the fields in which this project departs or the answer has a random uid."""
DEPARTURES = (
    *("metadata", "image", "claims", "ephemeralContainers", "priorityClassName", "runtimeClassName"),
    *("serviceAccountToken", "sources"),
)
"""Of all kinds: what is documented in departures.md, and what depends on plugins that the server of these tests lacks."""
SHARE = int(os.environ.get("RECORDED_SHARE") or 30)
"""One in so many changes is tried, others with another seed."""
SEED = int(os.environ.get("FAULT_SEED") or 0)


@pytest.mark.parametrize(
    ("version", "kind", "text", "skipped"), WITH_ODD_FIELDS, ids=lambda value: str(value)[:20]
)
def test_each_field_gets_the_real_verdict_and_texts(
    version: str, kind: str, text: str, skipped: str, server: RealAPIServer
) -> None:
    prefix = ("/apis/" if "/" in version else "/api/") + version
    schemas = server.request("GET", f"/openapi/v3{prefix}").body["components"]["schemas"]
    plural = guessed_plural(kind)
    is_namespaced = (version.rpartition("/")[0], kind) not in CLUSTER_WIDE
    path = f"{prefix}/namespaces/default/{plural}" if is_namespaced else f"{prefix}/{plural}"
    base = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, **yaml.safe_load(text)}
    odd, differences = OddFields(schemas, kind), []
    changes = odd.changes(*DEPARTURES, *skipped.split())
    for field, value in islice(changes, SEED % SHARE, None, SHARE):
        # A null item of a list is a fault here, and a container may lack an image.
        if not value and field[-1] == 0:
            continue
        item = odd.changed(base, field, value)
        answer = server.create(path, item, is_dry_run=True)
        real, ours = real_verdict(answer), verdict(item)
        if kind != "Pod" and ours[0] == "Forbidden":  # Its pods are refused, not itself.
            ours = ("created", frozenset())
        is_alike = ours[0] != "created" if answer.code == 400 else real == ours
        if not is_alike:
            differences.append((field, value, real, ours))
    assert not differences
