"""VerticalPodAutoscalers as resizes of the running pods of their targets."""

from typing import Any

import pytest

from nodewright.cli.app import run
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.manifests import ManifestLoader
from nodewright.documents.formats.recommendations import read_recommendation, recommended_resizes
from nodewright.documents.output.terminal import ERROR, NO
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import (
    Container,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from nodewright.model.values.quantity import Quantity

NODE = "examples/other-systems/autoscaled-node.yaml"
EXAMPLE = "examples/other-systems/recommendations.yaml"


def amounts(text: str) -> dict[str, Quantity]:
    return {
        name: Quantity.parse(amount) for name, _, amount in (part.partition("=") for part in text.split())
    }


def pod(
    requests: str, limits: str, *, owner: str = "ReplicaSet/web-6d4cf56db6", namespace: str = "shop"
) -> Pod:
    kind, _, name = owner.partition("/")
    resources = ResourceRequirements(requests=amounts(requests), limits=amounts(limits))
    return Pod(
        metadata=ObjectMeta(
            name="web-1",
            namespace=namespace,
            uid="1",
            owner_references=(OwnerReference(kind=kind, name=name),),
        ),
        spec=PodSpec(containers=(Container(name="app", resources=resources), Container(name="other"))),
    )


def autoscaler(
    target: str, *, policy: dict[str, Any] | None = None, kind: str = "Deployment", container: str = "app"
) -> dict[str, Any]:
    policies = [] if policy is None else [{"containerName": "*", **policy}]
    recommended = {name: str(amount) for name, amount in amounts(target).items()}
    return {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "targetRef": {"kind": kind, "name": "web"},
            "resourcePolicy": {"containerPolicies": policies},
        },
        "status": {
            "recommendation": {
                "containerRecommendations": [{"containerName": container, "target": recommended}]
            }
        },
    }


def resized(value: dict[str, Any], running: Pod) -> str:
    (desired,) = recommended_resizes(read_recommendation(value, "default"), [running])
    resources = desired.spec.containers[0].resources
    sides = (resources.requests, resources.limits)
    return " / ".join(" ".join(f"{name}={amount}" for name, amount in sorted(side.items())) for side in sides)


@pytest.mark.parametrize(
    ("requests", "limits", "policy", "expected"),
    [
        ("cpu=500m memory=256Mi", "cpu=1 memory=512Mi", None, "cpu=800m memory=400Mi / cpu=1600m memory=800Mi"),
        ("cpu=1 memory=1Gi", "cpu=1 memory=1Gi", None, "cpu=800m memory=400Mi / cpu=800m memory=400Mi"),
        ("", "", None, "cpu=800m memory=400Mi / "),
        ("", "cpu=2", None, "cpu=800m memory=400Mi / cpu=800m"),
        ("cpu=1 memory=1Gi", "", {"minAllowed": {"cpu": "1200m"}}, "cpu=1200m memory=400Mi / "),
        ("cpu=1 memory=1Gi", "", {"maxAllowed": {"memory": "300Mi"}}, "cpu=800m memory=300Mi / "),
        ("cpu=1 memory=1Gi", "", {"controlledResources": ["cpu"]}, "cpu=800m memory=1Gi / "),
        ("cpu=100m", "cpu=500m memory=1Gi", {"controlledValues": "RequestsOnly"}, "cpu=500m memory=400Mi / cpu=500m memory=1Gi"),
        ("cpu=1", "", {"mode": "Off"}, "cpu=1 / "),
    ],
)  # fmt: skip
def test_requests_are_those_recommended_and_limits_keep_their_ratio(
    requests: str, limits: str, policy: dict[str, Any] | None, expected: str
) -> None:
    assert resized(autoscaler("cpu=800m memory=400Mi", policy=policy), pod(requests, limits)) == expected


def test_a_container_without_a_recommendation_stays() -> None:
    assert resized(autoscaler("cpu=2", container="other"), pod("cpu=1", "")) == "cpu=1 / "


@pytest.mark.parametrize(
    ("kind", "owner", "namespace", "is_of"),
    [
        ("Deployment", "ReplicaSet/web-6d4cf56db6", "shop", True),
        ("Deployment", "ReplicaSet/web-api-6d4cf56db6", "shop", False),
        ("Deployment", "ReplicaSet/web-6d4cf56db6", "other", False),
        ("StatefulSet", "StatefulSet/web", "shop", True),
        ("CronJob", "Job/web-29384710", "shop", True),
        ("Job", "Job/web-2", "shop", False),
        ("DaemonSet", "StatefulSet/web", "shop", False),
    ],
)
def test_pods_belong_to_the_target_by_their_owner(kind: str, owner: str, namespace: str, is_of: bool) -> None:
    recommendation = read_recommendation(autoscaler("cpu=1", kind=kind), "default")
    assert bool(recommended_resizes(recommendation, [pod("", "", owner=owner, namespace=namespace)])) == is_of


def test_admit_says_which_recommendations_can_be_applied_and_why_the_others_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["admit", "--resize", "--node", NODE, "-f", EXAMPLE]) == NO
    printed = capsys.readouterr()
    outcomes = {line.split()[0].partition("-")[0]: line.split()[1] for line in printed.out.splitlines()[1:5]}
    assert outcomes == {
        "shop/web": "Done",
        "shop/ticker": "Infeasible",
        "shop/idle": "Forbidden",
        "data/db": "Forbidden",
    }
    assert "Pod QOS Class may not change as a result of resizing" in printed.out
    assert (
        "exceeded quota: data, requested: requests.memory=2Gi, used: requests.memory=19Gi, limited: requests.memory=20Gi"
        in printed.out
    )
    assert "data/db: its mode is Off" in printed.err
    assert "skipped" not in printed.err


def test_a_quota_without_usage_is_used_by_the_pods_of_the_node(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    text = (
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q, namespace: shop}\nspec: {hard: {requests.cpu: LIMIT}}\n---\n"
        "apiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata: {name: web, namespace: shop}\n"
        "spec: {targetRef: {kind: Deployment, name: web}}\n"
        "status: {recommendation: {containerRecommendations: [{containerName: nginx, target: {cpu: 700m}}]}}\n"
    )
    for limit, outcome in (("2700m", "Done"), ("2699m", "Forbidden")):
        file = tmp_path / f"{limit}.yaml"
        file.write_text(text.replace("LIMIT", limit))
        run(["admit", "--resize", "--node", NODE, "-f", str(file)])
        assert capsys.readouterr().out.splitlines()[1].split()[1] == outcome


def test_autoscalers_without_a_recommendation_or_pods_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    file = tmp_path / "vpa.yaml"
    head = "apiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata: {name: NAME, namespace: shop}\n"
    status = "spec: {targetRef: {kind: Deployment, name: gone}}\nstatus: {recommendation: {containerRecommendations: [{containerName: a, target: {cpu: 1}}]}}\n"
    file.write_text(f"{head.replace('NAME', 'new')}---\n{head.replace('NAME', 'old')}{status}")
    run(["admit", "--resize", "--node", NODE, "-f", str(file)])
    err = capsys.readouterr().err
    assert "VerticalPodAutoscaler shop/new recommends nothing yet" in err
    assert "VerticalPodAutoscaler shop/old: no pod of the node is of Deployment gone" in err
    assert run(["admit", "--node", NODE, "-f", str(file)]) == ERROR
    assert "skipped: 2 VerticalPodAutoscaler" in capsys.readouterr().err


def test_a_wrong_type_is_a_fault_with_its_place() -> None:
    loader = ManifestLoader("default")
    text = "apiVersion: autoscaling.k8s.io/v1\nkind: VerticalPodAutoscaler\nmetadata: {name: a}\nstatus: {recommendation: {containerRecommendations: [{containerName: a, target: {cpu: many}}]}}\n"
    loader.add_file(InputFile("vpa.yaml", text.encode()))
    with pytest.raises(
        InputError, match=r"vpa.yaml.*: status.recommendation.containerRecommendations\[0\].target"
    ):
        loader.result()
