"""Affinity, topology spread, gates: what a real API server answers to a new pod."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.admission.validation.violation import violation_fault
from nodewright.model.kubernetes.objects import Pod

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NO_KEY = "name part must be non-empty"


def violation_texts(spec: dict[str, Any], **labels: str) -> list[str]:
    whole = {"containers": [{"name": "main", "image": "a"}], **spec}
    pod = decode({"metadata": {"name": "web", "labels": labels}, "spec": whole}, Pod)
    return [str(violation_fault(each)).removeprefix("spec.") for each in pod_violations(pod)]


def affinity(kind: str, terms: str, *items: dict[str, Any]) -> dict[str, Any]:
    return {"affinity": {kind: {terms: list(items)}}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


NODE = f"affinity.nodeAffinity.{PREFERRED}[0]"
PODS = f"affinity.podAffinity.{REQUIRED}[0]"
AFFINITY = [
    (affinity("nodeAffinity", PREFERRED, {"weight": 0, "preference": {}}),
     [f"{NODE}.weight: Invalid value: 0: must be in the range 1-100"]),
    (affinity("nodeAffinity", PREFERRED, {"weight": 1, "preference": expression("a", "Is")}),
     [f'{NODE}.preference.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator']),
    (affinity("nodeAffinity", PREFERRED, {"weight": 100, "preference": expression("a", "In", "not a label")}), []),
    (affinity("podAffinity", REQUIRED, {"labelSelector": {}, "topologyKey": "zone", "namespaces": ["A.b"]}),
     [f'{PODS}.namespace: Invalid value: "A.b": a lowercase RFC 1123 label']),
    (affinity("podAffinity", REQUIRED, {"labelSelector": expression("a", "In"), "topologyKey": "zone"}),
     [f"{PODS}.labelSelector.matchExpressions[0].values: Required value: must be specified when"]),
    (affinity("podAffinity", REQUIRED, {"topologyKey": "zone", "matchLabelKeys": ["a"]}),
     [f"{PODS}.matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"]),
    (affinity("podAffinity", REQUIRED, {"labelSelector": {}}),
     [f"{PODS}.topologyKey: Required value: can not be empty",
      f'{PODS}.topologyKey: Invalid value: "": name part must be non-empty',
      f'{PODS}.topologyKey: Invalid value: "": name part must consist of']),
    (affinity("podAntiAffinity", PREFERRED, {"weight": 101, "podAffinityTerm": {"topologyKey": "zone"}}),
     [f"affinity.podAntiAffinity.{PREFERRED}[0].weight: Invalid value: 101: must be in the range 1-100"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), AFFINITY)
def test_affinity_is_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    texts = violation_texts(spec)
    assert len(texts) == len(wanted), texts
    assert all(text.startswith(start) for text, start in zip(texts, wanted, strict=True)), texts


def test_label_keys_are_compared_with_the_selector_and_the_pods_own_labels() -> None:
    selector = {"matchLabels": {"app": "a"}}
    term = {"labelSelector": selector, "topologyKey": "zone", "matchLabelKeys": ["app"]}
    spec = affinity("podAffinity", REQUIRED, term)
    assert violation_texts(spec) == []
    assert violation_texts(spec, app="a") == [
        f'{PODS}[0]: Invalid value: "app": exists in both matchLabelKeys and labelSelector'
    ]
    both = affinity("podAffinity", REQUIRED, {**term, "labelSelector": {}, "mismatchLabelKeys": ["app"]})
    assert violation_texts(both) == [
        f'{PODS}.matchLabelKeys[0]: Invalid value: "app": exists in both matchLabelKeys and mismatchLabelKeys'
    ]


LONG = "x" * 64
TOO_LONG = f'Invalid value: "{LONG}": name part must be no more than 63 bytes'


def test_the_pods_own_labels_are_validated_in_selectors() -> None:
    term = {"labelSelector": {}, "topologyKey": "zone", "mismatchLabelKeys": [LONG]}
    assert violation_texts(affinity("podAffinity", REQUIRED, term), **{LONG: "a"})[1:] == [
        f"{PODS}.labelSelector.matchExpressions[0].key: {TOO_LONG}",
        f"{PODS}.mismatchLabelKeys[0]: {TOO_LONG}",
    ]
    spread = {"topologySpreadConstraints": [{**SPREAD, "labelSelector": {}, "matchLabelKeys": [LONG]}]}
    assert violation_texts(spread, **{LONG: "a"})[1:] == [
        f"{PATH}.matchLabelKeys[0]: {TOO_LONG}",
        f"{PATH}.labelSelector.matchExpressions[0].key: {TOO_LONG}",
    ]


SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
PATH = "topologySpreadConstraints[0]"
SPREADS = [
    ([SPREAD], []),
    ([{**SPREAD, "maxSkew": 0}], [f"{PATH}.maxSkew: Invalid value: 0: must be greater than zero"]),
    ([{**SPREAD, "topologyKey": ""}], [f"{PATH}.topologyKey: Required value: can not be empty"]),
    ([{**SPREAD, "whenUnsatisfiable": "Perhaps"}],
     [f'{PATH}.whenUnsatisfiable: Unsupported value: "Perhaps": supported values: "DoNotSchedule", "ScheduleAnyway"']),
    ([SPREAD, SPREAD],
     [f'{PATH}.{{topologyKey, whenUnsatisfiable}}: Duplicate value: "{{zone, DoNotSchedule}}"']),
    ([{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 0}],
     [f"{PATH}.minDomains: Invalid value: 0: must be greater than zero",
      (f"{PATH}.minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not "
      "ScheduleAnyway")]),
    ([{**SPREAD, "nodeTaintsPolicy": "No"}],
     [f'{PATH}.nodeTaintsPolicy: Unsupported value: "No": supported values: "Honor", "Ignore"']),
    ([{**SPREAD, "matchLabelKeys": ["a"]}],
     [f"{PATH}.matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"]),
]  # fmt: skip


@pytest.mark.parametrize(("constraints", "wanted"), SPREADS)
def test_topology_spread_is_judged_as_the_api_server_does(
    constraints: list[dict[str, Any]], wanted: list[str]
) -> None:
    assert violation_texts({"topologySpreadConstraints": constraints}) == wanted


OTHERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"schedulingGates": [{"name": "a"}, {"name": "a"}], "nodeName": "n"},
     ['schedulingGates[1]: Duplicate value: "a"',
      "nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"]),
    ({"hostUsers": False, "hostNetwork": True, "hostPID": True},
     ["hostNetwork: Forbidden: when `hostUsers` is false", "HostPID: Forbidden: when `hostUsers` is false"]),
    ({"os": {"name": "windows"}, "hostIPC": True}, ["hostIPC: Forbidden: cannot be set for a windows pod"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), OTHERS)
def test_gates_and_host_fields_are_judged_as_the_api_server_does(
    spec: dict[str, Any], wanted: list[str]
) -> None:
    assert violation_texts(spec) == wanted


RULE = {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}
RESTARTS: list[tuple[dict[str, Any], list[str]]] = [
    ({"restartPolicy": "Never", "restartPolicyRules": [RULE]}, []),
    ({"restartPolicyRules": [RULE]},
     ["restartPolicy: Required value: must specify restartPolicy when restart rules are used"]),
    ({"restartPolicy": "Never", "restartPolicyRules": [RULE] * 21},
     ["restartPolicyRules: Too many: 21: must have at most 20 items"]),
    ({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Stop"}]},
     ['restartPolicyRules[0].action: Unsupported value: "Stop": supported values: "Restart", "RestartAllContainers"',
      "restartPolicyRules[0].exitCodes: Required value: must be specified"]),
    ({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "Maybe"}, {"resourceName": "cpu"}]},
     ['resizePolicy: Unsupported value: "Maybe": supported values: "NotRequired", "RestartContainer"',
      'resizePolicy[1]: Duplicate value: "cpu"', "resizePolicy: Required value"]),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "wanted"), RESTARTS)
def test_restarts_are_judged_as_the_api_server_does(fields: dict[str, Any], wanted: list[str]) -> None:
    texts = violation_texts({"containers": [{"name": "main", "image": "a", **fields}]})
    assert [text.removeprefix("containers[0].") for text in texts] == wanted


def test_an_init_container_with_nothing_but_a_stop_signal_is_accepted() -> None:
    init = {"name": "init", "image": "a", "lifecycle": {"stopSignal": "SIGTERM"}}
    assert violation_texts({"initContainers": [init]}) == []


def test_a_pod_that_never_restarts_has_no_resize_that_restarts() -> None:
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    container = {"name": "main", "image": "a", "resizePolicy": policy}
    assert violation_texts({"restartPolicy": "Never", "containers": [container]}) == [
        (
            'containers[0].resizePolicy: Invalid value: "RestartContainer": '
            "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
        )
    ]
