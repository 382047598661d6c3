"""Services, disruption budgets and what makes pods select pods."""

from pathlib import Path

import pytest

from nodewright.fleet.load.fleet_input import FleetFiles, FleetInput, load_fleet
from nodewright.fleet.workload import DisruptionBudget, IntOrPercent
from nodewright.model.errors import InputError

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
    return load_fleet(FleetFiles(both=(str(path),)))


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
def test_a_pod_is_selected_by_its_services_and_its_controller(
    tmp_path: Path, text: str, labels: dict[str, str] | None
) -> None:
    pods = list(loaded(tmp_path, text).pods())
    assert pods
    for pod in pods:
        assert pod.selector == (None if labels is None else {"matchLabels": labels, "matchExpressions": []})
        assert pod.selector is pods[0].selector


def test_budgets_are_read_and_not_reported_as_ignored(tmp_path: Path) -> None:
    bounds = ("minAvailable: 2, selector: {matchLabels: {app: db}}", "maxUnavailable: 25%")
    fleet_input = loaded(tmp_path, *map(BUDGET.format, bounds), SERVICE)
    assert fleet_input.budgets == (
        DisruptionBudget(
            name="b", namespace="shop", selector={"matchLabels": {"app": "db"}}, min_available=IntOrPercent(2)
        ),
        DisruptionBudget(
            name="b", namespace="shop", selector=None, max_unavailable=IntOrPercent(25, is_percent=True)
        ),
    )
    assert not fleet_input.objects.manifests.skipped


WRONG = [
    ("", "spec: must have exactly one of minAvailable and maxUnavailable"),
    ("minAvailable: 1, maxUnavailable: 1", "spec: must have exactly one of minAvailable and maxUnavailable"),
    (
        "minAvailable: half",
        'spec.minAvailable: Invalid value: "half": must be a whole number or a percentage',
    ),
    ('minAvailable: "2"', 'spec.minAvailable: Invalid value: "2": must be a whole number or a percentage'),
    (
        "maxUnavailable: -1",
        "spec.maxUnavailable: Invalid value: -1: must be a whole number or a percentage",
    ),
    (
        "maxUnavailable: true",
        "spec.maxUnavailable: Invalid value: true: must be a whole number or a percentage",
    ),
    ("maxUnavailable: 1, selector: web", 'spec.selector: Invalid value: "web": must be a label selector'),
]


@pytest.mark.parametrize(("spec", "rule"), WRONG)
def test_a_faulty_budget_is_reported_with_its_location(tmp_path: Path, spec: str, rule: str) -> None:
    with pytest.raises(InputError) as exception_info:
        loaded(tmp_path, BUDGET.format(spec))
    assert rule in str(exception_info.value)
    assert "all.yaml:6" in str(exception_info.value)
