"""The admission policy of `publish`: what an exporter may write, and that everything else is refused."""

import importlib
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from nodewright.cluster.exports.export_places import EXPORT_URL
from nodewright.scheduling.exporter.export_member import DIGEST_ANNOTATION
from tools.source import ROOT

POLICY = ROOT / "packaging" / "kubernetes" / "components" / "publish" / "own-node-policy.yaml"
EXTRA = {"authentication.kubernetes.io/node-name": ["worker-1"]}
Change = Callable[[dict[str, Any]], object]


def node() -> dict[str, Any]:
    metadata = {
        "name": "worker-1",
        "uid": "u1",
        "resourceVersion": "7",
        "labels": {"zone": "a"},
        "annotations": {"owner": "team", DIGEST_ANNOTATION: "sha256:1"},
        "finalizers": ["example.com/cloud"],
        "managedFields": [{"manager": "kubelet"}],
    }
    status = {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": status,
    }


def topology() -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": "worker-1", "uid": "u1"}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "worker-1", "uid": "u2", "labels": {"a": "b"}, "ownerReferences": [owner]},
        "zones": [{"name": "node-0", "type": "Node"}],
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
    }


def refusals(
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
    *,
    resource: str = "nodes",
    extra: dict[str, list[str]] | None = None,
) -> list[str]:
    """The messages of the validations that do not hold; an error counts as one, as `failurePolicy: Fail` has it.

    The API server evaluates the expressions with cel-go; this is the C++ implementation of the same language.
    """
    try:
        cel = importlib.import_module("cel_expr_python.cel")
    except ImportError:
        pytest.skip("no implementation of CEL: the package cel-expr-python is not installed")
    policy, _binding = yaml.safe_load_all(POLICY.read_text("utf-8"))
    spec = policy["spec"]
    assert spec["failurePolicy"] == "Fail"
    operation = "CREATE" if before is None else "DELETE" if after is None else "UPDATE"
    user = {"username": "system:serviceaccount:nodewright:nodewright-export", "extra": extra or EXTRA}
    request = {"operation": operation, "resource": {"resource": resource}, "userInfo": user}
    names = ("object", "oldObject", "request", "variables")
    environment = cel.NewEnv(variables=dict.fromkeys(names, cel.Type.DYN))
    variables: dict[str, Any] = {}

    def value(expression: str) -> Any:
        data = {"object": after, "oldObject": before, "request": request, "variables": variables}
        return environment.compile(expression).eval(data=data).plain_value()

    assert all(value(condition["expression"]) for condition in spec["matchConditions"])
    for variable in spec["variables"]:
        variables[variable["name"]] = value(variable["expression"])
    return [each["message"] for each in spec["validations"] if value(each["expression"]) is not True]


def changed(change: Change, original: Callable[[], dict[str, Any]] = node) -> dict[str, Any]:
    document = deepcopy(original())
    change(document)
    return document


def metadata(**fields: Any) -> Change:
    return lambda document: document["metadata"].update(fields)


def annotations(**fields: str) -> Change:
    return lambda document: document["metadata"]["annotations"].update(
        {name.replace("__", "/"): text for name, text in fields.items()}
    )


def test_an_exporter_writes_its_annotations() -> None:
    ours = {DIGEST_ANNOTATION: "sha256:2", EXPORT_URL: "https://10.0.0.1:9453"}
    after = changed(lambda document: document["metadata"]["annotations"].update(ours))
    after["metadata"] |= {"resourceVersion": "8", "managedFields": [{"manager": "kubelet"}, {"manager": "x"}]}
    assert refusals(node(), after) == []
    before = changed(lambda document: document["metadata"].pop("annotations"))
    after["metadata"]["annotations"] = ours
    assert refusals(before, after) == []


@pytest.mark.parametrize(
    "change",
    [
        metadata(finalizers=["example.com/cloud", "mine"]),
        metadata(finalizers=[]),
        lambda document: document["metadata"].pop("finalizers"),
        metadata(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "none", "uid": "x"}]),
        metadata(labels={"zone": "b"}),
        metadata(labels={"zone": "a", "more": "b"}),
        lambda document: document["metadata"].pop("labels"),
        metadata(annotations={DIGEST_ANNOTATION: "sha256:1"}),
        metadata(annotations={"owner": "team"}),
        lambda document: document["metadata"].pop("annotations"),
        annotations(owner="me"),
        annotations(**{"node.alpha.kubernetes.io__ttl": "0"}),
        annotations(**{"nodewright.dev__other": "1"}),
        metadata(deletionTimestamp="2026-01-01T00:00:00Z"),
        metadata(deletionGracePeriodSeconds=0),
        metadata(a_field_of_tomorrow="x"),
        lambda document: document["spec"].update(unschedulable=True),
        lambda document: document["spec"].update(taints=[{"key": "a", "effect": "NoExecute"}]),
        lambda document: document.pop("spec"),
        lambda document: document["status"]["capacity"].update(cpu="400"),
        lambda document: document["status"]["conditions"][0].update(status="False"),
        lambda document: document.pop("status"),
        lambda document: document.update(aPartOfTomorrow={}),
    ],
)
def test_everything_else_of_a_node_is_refused(change: Change) -> None:
    assert refusals(node(), changed(change)) != []


def test_an_exporter_writes_its_topology() -> None:
    created = changed(lambda document: document["metadata"].pop("labels"), topology)
    assert refusals(None, created, resource="noderesourcetopologies") == []
    updated = changed(lambda document: document.update(zones=[], attributes=[]), topology)
    assert refusals(topology(), updated, resource="noderesourcetopologies") == []


@pytest.mark.parametrize(
    "change",
    [
        metadata(name="worker-2"),
        metadata(finalizers=["mine"]),
        metadata(labels={"a": "c"}),
        metadata(annotations={"a": "b"}),
        lambda document: document["metadata"].pop("labels"),
        lambda document: document["metadata"]["ownerReferences"][0].update(name="worker-2"),
        lambda document: document["metadata"]["ownerReferences"][0].update(kind="Pod"),
        lambda document: document["metadata"]["ownerReferences"][0].update(blockOwnerDeletion=True),
        lambda document: document.update(status={}),
    ],
)
def test_everything_else_of_a_topology_is_refused(change: Change) -> None:
    assert refusals(topology(), changed(change, topology), resource="noderesourcetopologies") != []


def test_an_exporter_creates_no_labels_and_no_finalizers() -> None:
    for change in (metadata(), metadata(finalizers=["mine"])):
        assert refusals(None, changed(change, topology), resource="noderesourcetopologies") != []


def test_other_nodes_creations_and_deletions_are_refused() -> None:
    other = {"authentication.kubernetes.io/node-name": ["worker-2"]}
    assert refusals(node(), node()) == []
    assert refusals(node(), node(), extra=other) != []
    assert refusals(None, node()) != []
    assert refusals(node(), None) != []
    assert refusals(topology(), None, resource="noderesourcetopologies") != []


@pytest.mark.parametrize("extra", [{"other": ["worker-1"]}, {"authentication.kubernetes.io/node-name": [""]}])
def test_a_token_without_a_node_writes_nothing(extra: dict[str, list[str]]) -> None:
    assert refusals(node(), node(), extra=extra) != []
