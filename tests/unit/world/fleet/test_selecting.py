"""Services, disruption budgets and what makes pods select pods."""

from pathlib import Path

import pytest

from nodewright.model.fleet import Budget, Share
from nodewright.world.errors import InputError
from nodewright.world.fleet.load import FleetInput, Wish, load_fleet

NODE = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
"""
BUDGET = "{{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {{name: b, namespace: shop}}, spec: {{{}}}}}\n"
SERVICE = (
    "{apiVersion: v1, kind: Service, metadata: {name: s, namespace: shop}, spec: {selector: {tier: front}}}\n"
)


def loaded(folder: Path, *objects: str) -> FleetInput:
    path = folder / "all.yaml"
    path.write_text(NODE + "---\n".join(objects))
    return load_fleet(Wish(both=(str(path),)))


def made_by(kind: str, selector: str = "matchLabels: {app: web}", namespace: str = "shop") -> str:
    group = "v1" if kind == "ReplicationController" else "batch/v1" if kind == "Job" else "apps/v1"
    template = "metadata: {labels: {app: web, tier: front}}, spec: {containers: [{name: a, image: a}], restartPolicy: %s}"
    policy = "Never" if kind == "Job" else "Always"
    head = f"{{apiVersion: {group}, kind: {kind}, metadata: {{name: web, namespace: {namespace}}}"
    wanted = f"selector: {{{selector}}}, " if selector else ""
    return f"{head}, spec: {{{wanted}template: {{{template % policy}}}}}}}\n"


SELECTORS = [
    (made_by("Deployment"), {"app": "web"}),
    (made_by("ReplicaSet"), {"app": "web"}),
    (made_by("StatefulSet") + "---\n" + SERVICE, {"app": "web", "tier": "front"}),
    (made_by("ReplicationController", "app: web"), {"app": "web"}),
    (made_by("Job", ""), None),
    (made_by("Job", "") + "---\n" + SERVICE, {"tier": "front"}),
    (made_by("DaemonSet") + "---\n" + SERVICE, {"tier": "front"}),
    (made_by("Deployment", namespace="other") + "---\n" + SERVICE, {"app": "web"}),
]


@pytest.mark.parametrize(("text", "labels"), SELECTORS)
def test_a_pod_is_meant_by_its_services_and_its_controller(
    tmp_path: Path, text: str, labels: dict[str, str] | None
) -> None:
    pods = list(loaded(tmp_path, text).pods())
    assert pods
    for pod in pods:
        assert pod.selector == (None if labels is None else {"matchLabels": labels, "matchExpressions": []})
        assert pod.selector is pods[0].selector


def test_budgets_are_read_and_not_among_what_is_passed_over(tmp_path: Path) -> None:
    bounds = ("minAvailable: 2, selector: {matchLabels: {app: db}}", "maxUnavailable: 25%")
    found = loaded(tmp_path, *map(BUDGET.format, bounds), SERVICE)
    assert found.budgets == (
        Budget(name="b", namespace="shop", selector={"matchLabels": {"app": "db"}}, min_available=Share(2)),
        Budget(name="b", namespace="shop", selector=None, max_unavailable=Share(25, is_percent=True)),
    )
    assert not found.objects.loading.skipped


WRONG = [
    ("", "spec: one of minAvailable and maxUnavailable is wanted"),
    ("minAvailable: 1, maxUnavailable: 1", "spec: one of minAvailable and maxUnavailable is wanted"),
    (
        "minAvailable: half",
        'spec.minAvailable: Invalid value: "half": a whole number or a percentage is wanted',
    ),
    ('minAvailable: "2"', 'spec.minAvailable: Invalid value: "2": a whole number or a percentage is wanted'),
    (
        "maxUnavailable: -1",
        "spec.maxUnavailable: Invalid value: -1: a whole number or a percentage is wanted",
    ),
    (
        "maxUnavailable: true",
        "spec.maxUnavailable: Invalid value: true: a whole number or a percentage is wanted",
    ),
    ("maxUnavailable: 1, selector: web", 'spec.selector: Invalid value: "web": a label selector is wanted'),
]


@pytest.mark.parametrize(("spec", "rule"), WRONG)
def test_what_is_no_budget_is_told_with_its_place(tmp_path: Path, spec: str, rule: str) -> None:
    with pytest.raises(InputError) as found:
        loaded(tmp_path, BUDGET.format(spec))
    assert rule in str(found.value)
    assert "all.yaml:6" in str(found.value)
