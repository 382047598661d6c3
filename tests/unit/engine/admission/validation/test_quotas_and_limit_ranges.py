"""What the API server has against quotas and limit ranges."""

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.kubectl_yaml import read_yaml
from nodewright.engine.admission.validation.quotas_and_limit_ranges import (
    limit_range_violations,
    quota_violations,
)
from nodewright.engine.admission.validation.violation import Violation
from nodewright.model.kubernetes.cluster_objects import LimitRange, ResourceQuota


def violation_texts(found: tuple[Violation, ...]) -> list[str]:
    return [f"{violation.path}: {violation.type}: {violation.value}: {violation.rule}" for violation in found]


def of_quota(spec: str) -> list[str]:
    value = read_yaml(f"metadata: {{name: q}}\nspec: {spec}", "q")[0]
    return violation_texts(quota_violations(decode(value, ResourceQuota)))


def of_range(items: str) -> list[str]:
    value = read_yaml(f"metadata: {{name: l}}\nspec: {{limits: [{items}]}}", "l")[0]
    return violation_texts(limit_range_violations(decode(value, LimitRange)))


SOUND_QUOTAS = (
    "{hard: {cpu: 1, requests.nvidia.com/gpu: 4, count/deployments.apps: 3, hugepages-2Mi: 1Gi, requests.storage: 1Ti}}",
    "{hard: {gold.storageclass.storage.k8s.io/requests.storage: 1Ti}, scopes: [BestEffort, Terminating]}",
    "{hard: {pods: 3}, scopes: [BestEffort, Terminating]}",
    "{hard: {pods: 3, limits.cpu: 1}, scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [a]}]}}",
    "{hard: {requests.storage: 3}, scopes: [VolumeAttributesClass]}",
)


@pytest.mark.parametrize("spec", SOUND_QUOTAS)
def test_sound_quotas_are_taken(spec: str) -> None:
    assert of_quota(spec) == []


@pytest.mark.parametrize(
    ("hard", "fault"),
    [
        ("bogus: 1", "[bogus]: Invalid value: bogus: must be a standard resource type or fully qualified"),
        ("bogus: 1", "[bogus]: Invalid value: bogus: must be a standard resource for quota"),
        ("storage: 1", "[storage]: Invalid value: storage: must be a standard resource for quota"),
        ("cpu: -1", "[cpu]: Invalid value: -1: must be greater than or equal to 0"),
        ("pods: 0.5", "[pods]: Invalid value: 500m: must be an integer"),
        ("count/pods: 0.5", "[count/pods]: Invalid value: 500m: must be an integer"),
    ],
)
def test_amounts_of_quotas_have_names_and_sizes_that_can_be(hard: str, fault: str) -> None:
    assert f"spec.hard{fault}" in of_quota(f"{{hard: {{{hard}}}}}")


def test_the_status_is_looked_at_as_well() -> None:
    value = {"metadata": {"name": "q"}, "status": {"hard": {"pods": "-1"}, "used": {"cpu": "-2"}}}
    assert [violation.path for violation in quota_violations(decode(value, ResourceQuota))] == [
        "status.hard[pods]",
        "status.used[cpu]",
    ]


@pytest.mark.parametrize(
    ("scopes", "hard", "rules"),
    [
        ("BestEffort, NotBestEffort", "", ["conflicting scopes"]),
        ("Terminating, NotTerminating", "", ["conflicting scopes"]),
        ("Quick", "", ["unsupported scope"]),
        ("BestEffort", "cpu: 1, limits.memory: 1", ["unsupported scope applied to resource"] * 2),
        ("Terminating", "services: 1", ["unsupported scope applied to resource"]),
        ("VolumeAttributesClass", "pods: 1", ["unsupported scope applied to resource"]),
    ],
)
def test_scopes_must_go_together_and_with_the_resources(scopes: str, hard: str, rules: list[str]) -> None:
    value = tuple(scopes.split(", "))
    wanted = [f"spec.scopes: Invalid value: {value}: {rule}" for rule in rules]
    assert of_quota(f"{{hard: {{{hard}}}, scopes: [{scopes}]}}") == wanted


@pytest.mark.parametrize(
    ("terms", "faults"),
    [
        (
            "{scopeName: Quick, operator: Exists}",
            [".scopeName: Invalid value: Quick: unsupported scope"],
        ),
        (
            "{scopeName: PriorityClass, operator: In}",
            [
                (
                    ".values: Required value: None: must be at least one value when `operator` is 'In' or 'NotIn' "
                    "for scope selector"
                ),
            ],
        ),
        (
            "{scopeName: PriorityClass, operator: Exists, values: [a]}",
            [
                (
                    ".values: Invalid value: ('a',): must be no value when `operator` is 'Exist' or 'DoesNotExist' "
                    "for scope selector"
                ),
            ],
        ),
        (
            "{scopeName: PriorityClass, operator: Near}",
            [".operator: Invalid value: Near: not a valid selector operator"],
        ),
        (
            "{scopeName: Terminating, operator: Exists}, {scopeName: NotTerminating, operator: Exists}",
            [": Invalid value: (): conflicting scopes"],
        ),
    ],
)
def test_scope_selectors_must_be_such_as_can_be_read(terms: str, faults: list[str]) -> None:
    wanted = [f"spec.scopeSelector.matchExpressions{fault}" for fault in faults]
    assert of_quota(f"{{scopeSelector: {{matchExpressions: [{terms}]}}}}") == wanted


def test_scopes_that_only_exist_have_no_other_operator() -> None:
    (fault,) = of_quota(
        "{scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: In, values: [a]}]}}"
    )
    assert fault.startswith(
        "spec.scopeSelector.matchExpressions.operator: Invalid value: In: must be 'Exists' when scope is any of "
    )


def test_a_selector_out_of_place_is_shown_as_the_api_server_prints_its_type() -> None:
    (fault,) = of_quota(
        "{hard: {services: 1}, scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: Exists}]}}"
    )
    term = {"ScopeName": "BestEffort", "Operator": "Exists", "Values": None}
    assert fault == (
        f"spec.scopeSelector.matchExpressions: Invalid value: {{'MatchExpressions': [{term}]}}: "
        "unsupported scope applied to resource"
    )


def test_sound_limit_ranges_are_taken() -> None:
    assert (
        of_range(
            "{type: Container, min: {cpu: 100m}, defaultRequest: {cpu: 200m}, default: {cpu: 1}, max: {cpu: 2}, "
            "maxLimitRequestRatio: {cpu: 20}}, {type: PersistentVolumeClaim, max: {storage: 1Ti}}, "
            "{type: Pod, max: {nvidia.com/gpu: 8}}, {type: example.com/thing}"
        )
        == []
    )


@pytest.mark.parametrize(
    ("item", "fault"),
    [
        (
            "min: {cpu: 2}, max: {cpu: 1}",
            "min[cpu]: Invalid value: 2: min value 2 is greater than max value 1",
        ),
        (
            "min: {cpu: 2}, defaultRequest: {cpu: 1}",
            "defaultRequest[cpu]: Invalid value: 1: min value 2 is greater than default request value 1",
        ),
        (
            "max: {cpu: 1}, defaultRequest: {cpu: 2}",
            "defaultRequest[cpu]: Invalid value: 2: default request value 2 is greater than max value 1",
        ),
        (
            "default: {cpu: 1}, defaultRequest: {cpu: 2}",
            "defaultRequest[cpu]: Invalid value: 2: default request value 2 is greater than default limit value 1",
        ),
        (
            "default: {cpu: 1}, min: {cpu: 2}",
            "default[cpu]: Invalid value: 2: min value 2 is greater than default value 1",
        ),
        (
            "default: {cpu: 2}, max: {cpu: 1}",
            "default[cpu]: Invalid value: 1: default value 2 is greater than max value 1",
        ),
        (
            "maxLimitRequestRatio: {cpu: 900m}",
            "maxLimitRequestRatio[cpu]: Invalid value: 900m: ratio 900m is less than 1",
        ),
        (
            "min: {cpu: 500m}, max: {cpu: 1}, maxLimitRequestRatio: {cpu: 2500m}",
            "maxLimitRequestRatio[cpu]: Invalid value: 2500m: ratio 2500m is greater than max/min = 2.000000",
        ),
        (
            "min: {memory: 1Ei}, max: {memory: 1Ei}, maxLimitRequestRatio: {memory: 2}",
            "maxLimitRequestRatio[memory]: Invalid value: 2: ratio 2 is greater than max/min = 1.000000",
        ),
        (
            "default: {nvidia.com/gpu: 2}, defaultRequest: {nvidia.com/gpu: 1}",
            (
                "defaultRequest[nvidia.com/gpu]: Invalid value: 1: default value 2 must equal to defaultRequest value 1 "
                "in nvidia.com/gpu"
            ),
        ),
        (
            "max: {storage: 1}",
            "max[storage]: Invalid value: storage: must be a standard resource for containers",
        ),
    ],
)
def test_bounds_of_containers_must_leave_room(item: str, fault: str) -> None:
    assert of_range(f"{{type: Container, {item}}}") == [f"spec.limits[0].{fault}"]


def test_a_ratio_without_a_least_amount_has_no_bound() -> None:
    assert of_range("{type: Container, min: {cpu: 0}, max: {cpu: 1}, maxLimitRequestRatio: {cpu: 9}}") == []


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ("{type: Pod}, {type: Pod}", "[1].type: Duplicate value: Pod: "),
        ("{type: Pond}", "[0].type: Invalid value: Pond: must be a standard limit type or fully qualified"),
        (
            "{type: Pod, default: {cpu: 1}}",
            "[0].default: Forbidden: None: may not be specified when `type` is 'Pod'",
        ),
        (
            "{type: Pod, defaultRequest: {cpu: 1}}",
            "[0].defaultRequest: Forbidden: None: may not be specified when `type` is 'Pod'",
        ),
        (
            "{type: PersistentVolumeClaim, max: {cpu: 1}}",
            (
                "[0].limits: Required value: None: either minimum or maximum storage value is required, but neither was "
                "provided"
            ),
        ),
    ],
)
def test_items_have_types_and_the_fields_for_them(items: str, fault: str) -> None:
    assert of_range(items) == [f"spec.limits{fault}"]
