from typing import Any

import pytest

from nodewright.documents.formats.controllers import derived_uid, first_pod
from nodewright.model.kubernetes.objects import Pod

TEMPLATE = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": {"nodeName": "here"}}


def template_and_replicas(
    version: str, kind: str, spec: dict[str, Any], **meta: str
) -> tuple[Pod, int | None]:
    value = {"apiVersion": version, "kind": kind, "metadata": {"name": "web", **meta}, "spec": spec}
    if kind == "PodTemplate":
        value = {**value, "template": spec["template"]}
    return first_pod(value, "shop")


KINDS: list[tuple[str, str, dict[str, Any], str, int | None, str]] = [
    ("apps/v1", "Deployment", {"replicas": 3, "template": TEMPLATE}, "web-0", 3, "ReplicaSet"),
    ("apps/v1", "Deployment", {"template": TEMPLATE}, "web-0", 1, "ReplicaSet"),
    ("apps/v1", "Deployment", {"replicas": 0, "template": TEMPLATE}, "web-0", 0, "ReplicaSet"),
    ("apps/v1", "StatefulSet", {"replicas": 2, "template": TEMPLATE}, "web-0", 2, "StatefulSet"),
    ("apps/v1", "StatefulSet", {"ordinals": {"start": 5}, "template": TEMPLATE}, "web-5", 1, "StatefulSet"),
    ("apps/v1", "ReplicaSet", {"replicas": 2, "template": TEMPLATE}, "web-0", 2, "ReplicaSet"),
    ("apps/v1", "DaemonSet", {"template": TEMPLATE}, "web-0", None, "DaemonSet"),
    ("batch/v1", "Job", {"parallelism": 4, "completions": 8, "template": TEMPLATE}, "web-0", 4, "Job"),
    ("batch/v1", "CronJob", {"jobTemplate": {"spec": {"template": TEMPLATE}}}, "web-0", 1, "Job"),
    ("v1", "ReplicationController", {"replicas": 1, "template": TEMPLATE}, "web-0", 1, "ReplicationController"),
    ("v1", "PodTemplate", {"template": TEMPLATE}, "web-0", None, "PodTemplate"),
]  # fmt: skip


@pytest.mark.parametrize(("version", "kind", "spec", "name", "replicas", "owner"), KINDS)
def test_each_kind_makes_its_pod(
    version: str, kind: str, spec: dict[str, Any], name: str, replicas: int | None, owner: str
) -> None:
    pod, wanted = template_and_replicas(version, kind, spec)
    assert (pod.full_name, wanted) == (f"shop/{name}", replicas)
    assert pod.metadata.labels == {"app": "web"}
    assert pod.metadata.annotations == {"a": "b"}
    assert pod.spec.node_name == "here"
    assert [(reference.kind, reference.controller) for reference in pod.metadata.owner_references] == [
        (owner, True)
    ]


def test_pods_of_a_daemon_set_tolerate_node_conditions() -> None:
    pod, _ = template_and_replicas("apps/v1", "DaemonSet", {"template": TEMPLATE})
    assert [
        (toleration.key.removeprefix("node.kubernetes.io/"), toleration.effect)
        for toleration in pod.spec.tolerations
    ] == [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ]


def test_daemon_pods_on_the_host_network_also_tolerate_a_missing_network() -> None:
    spec = {"hostNetwork": True, "tolerations": [{"key": "mine", "operator": "Exists"}]}
    pod, _ = template_and_replicas("apps/v1", "DaemonSet", {"template": {"spec": spec}})
    keys = [toleration.key for toleration in pod.spec.tolerations]
    assert keys[0] == "mine"
    assert keys[-1] == "node.kubernetes.io/network-unavailable"


def test_uids_follow_from_kind_namespace_and_name() -> None:
    spec = {"template": TEMPLATE}
    first, second = (
        template_and_replicas("apps/v1", "ReplicaSet", spec)[0],
        template_and_replicas("apps/v1", "ReplicaSet", spec)[0],
    )
    assert first.uid == second.uid == derived_uid("ReplicaSet/shop/web/0")
    assert template_and_replicas("apps/v1", "DaemonSet", spec)[0].uid != first.uid


def test_an_owner_that_has_a_uid_keeps_it_unless_something_stands_between() -> None:
    alone, _ = template_and_replicas("apps/v1", "ReplicaSet", {"template": TEMPLATE}, uid="abc")
    between, _ = template_and_replicas("apps/v1", "Deployment", {"template": TEMPLATE}, uid="abc")
    assert alone.metadata.owner_references[0].uid == "abc"
    assert between.metadata.owner_references[0].uid == derived_uid("ReplicaSet/shop/web")


def test_a_generated_name_gets_a_number_for_its_letters() -> None:
    pod, _ = first_pod(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"generateName": "run-"}, "spec": None}, "shop"
    )
    assert pod.full_name == "shop/run-0-0"
