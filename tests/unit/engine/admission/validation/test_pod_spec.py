from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.admission_plugins import with_default_ports
from nodewright.engine.admission.validation.containers import template_restart_violations
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.admission.validation.violation import Violation, metadata_violations
from nodewright.engine.core.requests.resource_defaults import with_defaults
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, PodSpec, ResourceRequirements
from nodewright.model.kubernetes.pod_spec_fields import ContainerPort, EnvVar
from nodewright.model.values.quantity import Quantity

META = {"name": "web"}
MAIN = {"name": "main"}


def text(one: Violation) -> str:
    value = "" if one.value is None else f" {one.value}"
    return f"{one.path} {one.type}{value}: {one.rule}".rstrip(": ").removeprefix("spec.")


def violations_of(
    spec: dict[str, Any], meta: dict[str, Any] = META, *, is_template: bool = False
) -> list[str]:
    pod = decode({"metadata": meta, "spec": {"containers": [MAIN], **spec}}, Pod)
    defaulted = pod if is_template else with_default_ports(with_defaults(pod))
    return [text(violation) for violation in pod_violations(defaulted, is_template=is_template)]


def ports(*host_and_own: tuple[int, int], **more: Any) -> list[dict[str, Any]]:
    return [{"hostPort": host, "containerPort": own, **more} for host, own in host_and_own]


CONTAINERS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"containers": []}, ["containers Required value"]),
    ({"containers": [{}]}, ["containers[0].name Required value"]),
    ({"containers": [{"name": "a.b"}]}, ["containers[0].name Invalid value a.b: must not contain dots"]),
    ({"containers": [MAIN, MAIN]}, ["containers[1].name Duplicate value main"]),
    ({"initContainers": [{}, {}]},
     ["initContainers[0].name Required value", "initContainers[1].name Required value"]),
    ({"containers": [{"name": "a", "image": "x"}, {"name": "b"}], "initContainers": [{"name": "c"}]},
     ["containers[1].image Required value", "initContainers[0].image Required value"]),
    ({"shareProcessNamespace": True, "hostPID": True},
     ["securityContext.shareProcessNamespace Invalid value True: ShareProcessNamespace and HostPID cannot both be enabled"]),
    ({"initContainers": [MAIN, {"name": "a"}, {"name": "a"}]},
     ["initContainers[0].name Duplicate value main", "initContainers[2].name Duplicate value a"]),
    ({"containers": [{**MAIN, "restartPolicy": "Maybe"}]},
     ['containers[0].restartPolicy Unsupported value Maybe: supported values: "Always", "Never", "OnFailure"']),
    ({"initContainers": [{"name": "a", "restartPolicy": "Always", "livenessProbe": {"exec": {"command": ["x"]}}}]}, []),
    ({"initContainers": [{"name": "a", "startupProbe": {}, "lifecycle": {}}]},
     ["initContainers[0].lifecycle Forbidden: may not be set for init containers without restartPolicy=Always",
      "initContainers[0].startupProbe Forbidden: may not be set for init containers without restartPolicy=Always"]),
    ({"containers": [{**MAIN, "ports": [{}, {"containerPort": 65536, "protocol": "ICMP"}]}]},
     ["containers[0].ports[0].containerPort Required value",
      "containers[0].ports[1].containerPort Invalid value 65536: must be between 1 and 65535, inclusive",
      'containers[0].ports[1].protocol Unsupported value ICMP: supported values: "SCTP", "TCP", "UDP"']),
    ({"containers": [{**MAIN, "ports": ports((-1, 80))}]},
     ["containers[0].ports[0].hostPort Invalid value -1: must be between 1 and 65535, inclusive"]),
    ({"containers": [{**MAIN, "ports": ports((80, 1), (80, 2), protocol="UDP")}]},
     ["containers[0].ports[1].hostPort Duplicate value UDP//80"]),
    ({"containers": [{**MAIN, "ports": ports((80, 1))}, {"name": "b", "ports": ports((80, 1), hostIP="::1")}]}, []),
    ({"containers": [{**MAIN, "ports": ports((80, 1))}, {"name": "b", "ports": ports((80, 2))}]},
     ["containers[1].ports[0].hostPort Duplicate value TCP//80"]),
    ({"initContainers": [{"name": "a", "ports": ports((80, 1))}, {"name": "b", "ports": ports((80, 1))}]}, []),
    ({"initContainers": [{"name": "a", "ports": ports((80, 1), (80, 2))}]},
     ["initContainers[0].ports[1].hostPort Duplicate value TCP//80"]),
    ({"initContainers": [{"name": "a"}, {"name": "b", "ports": ports((80, 1), (80, 2))}]},
     ["initContainers[0].ports[1].hostPort Duplicate value TCP//80"]),  # Upstream names the first for all.
    ({"hostNetwork": True, "containers": [{**MAIN, "ports": ports((0, 80), (81, 81), (83, 82))}]},
     ["containers[0].ports[2].hostPort Invalid value 83: must match `containerPort` when `hostNetwork` is true"]),
    ({"hostNetwork": True, "containers": [{**MAIN, "ports": ports((0, 80))}, {"name": "b", "ports": ports((0, 80))}]},
     ["containers[1].ports[0].hostPort Duplicate value TCP//80"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), CONTAINERS)
def test_containers_are_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    assert violations_of(spec) == wanted


def affinity(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    terms = [{"matchExpressions": list(expressions), "matchFields": list(fields)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def on(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


TERMS = "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
EXPRESSION = f"{TERMS}[0].matchExpressions[0]"
FIELD = f"{TERMS}[0].matchFields[0]"

PLACES: list[tuple[dict[str, Any], list[str]]] = [
    ({"affinity": {"podAffinity": {}}}, []),
    ({"affinity": affinity(on("a", "In", "b"), on("a", "Exists"), on("a", "Gt", "1"))}, []),
    ({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
     [f"{TERMS} Required value: must have at least one node selector term"]),
    ({"affinity": affinity(on("a", "In"))},
     [f"{EXPRESSION}.values Required value: must be specified when `operator` is 'In' or 'NotIn'"]),
    ({"affinity": affinity(on("a", "Exists", "b"))},
     [f"{EXPRESSION}.values Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"]),
    ({"affinity": affinity(on("a", "Lt", "1", "2"))},
     [f"{EXPRESSION}.values Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"]),
    ({"affinity": affinity(on("a", "Near"))}, [f"{EXPRESSION}.operator Invalid value Near: not a valid selector operator"]),
    ({"affinity": affinity(fields=(on("metadata.name", "In", "node-1"),))}, []),
    ({"affinity": affinity(fields=(on("metadata.name", "In", "a", "b"),))},
     [f"{FIELD}.values Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"]),
    ({"affinity": affinity(fields=(on("metadata.uid", "Exists"),))},
     [f"{FIELD}.operator Invalid value Exists: not a valid selector operator",
      f"{FIELD}.key Invalid value metadata.uid: not a valid field selector key"]),
    ({"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]}, []),
    ({"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}]}, []),
    ({"tolerations": [{}]},
     [('tolerations[0].operator Invalid value : operator must be Exists when `key` is empty, which means "match all '
      'values and all keys"')]),
    ({"tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 1}]},
     ["tolerations[0].effect Invalid value : effect must be 'NoExecute' when `tolerationSeconds` is set"]),
    ({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]},
     ["tolerations[0].operator Invalid value b: value must be empty when `operator` is 'Exists'"]),
    ({"tolerations": [{"key": "a", "operator": "Gt", "value": "1"}]},
     ['tolerations[0].operator Unsupported value Gt: supported values: "Equal", "Exists", "Lt", "Gt"']),
    ({"tolerations": [{"key": "a", "operator": "Like"}]},
     ['tolerations[0].operator Unsupported value Like: supported values: "Equal", "Exists"']),
    ({"tolerations": [{"key": "a", "operator": "Exists", "effect": "Never"}]},
     [('tolerations[0].effect Unsupported value Never: supported values: "NoSchedule", "PreferNoSchedule", '
      '"NoExecute"')]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), PLACES)
def test_wishes_for_a_place_are_judged_as_the_api_server_does(
    spec: dict[str, Any], wanted: list[str]
) -> None:
    assert violations_of(spec) == wanted


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"nodeSelector": {"a b": "c"}}, "nodeSelector"),
        ({"nodeSelector": {"a": "-"}}, "nodeSelector"),
        ({"nodeName": "A"}, "nodeName"),
        ({"priorityClassName": "A"}, "priorityClassName"),
        ({"runtimeClassName": ""}, "runtimeClassName"),
        ({"tolerations": [{"key": "a b", "operator": "Exists"}]}, "tolerations[0].key"),
        ({"tolerations": [{"key": "a", "value": "-"}]}, "tolerations[0].operator"),
        ({"affinity": affinity(on("a b", "Exists"))}, f"{EXPRESSION}.key"),
        ({"affinity": affinity(on("a", "In", "-"))}, f"{EXPRESSION}.values[0]"),
        ({"affinity": affinity(fields=(on("metadata.name", "In", "A"),))}, f"{FIELD}.values[0]"),
    ],
)
def test_names_and_labels_in_a_spec_have_their_form(spec: dict[str, Any], path: str) -> None:
    (violation,) = violations_of(spec)
    assert violation.startswith(f"{path} Invalid value")


OTHERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"restartPolicy": "Never", "preemptionPolicy": "Never", "activeDeadlineSeconds": 1, "os": {"name": "linux"}}, []),
    ({"restartPolicy": "Once"},
     ['restartPolicy Unsupported value Once: supported values: "Always", "OnFailure", "Never"']),
    ({"activeDeadlineSeconds": 0},
     ["activeDeadlineSeconds Invalid value 0: must be between 1 and 2147483647, inclusive"]),
    ({"preemptionPolicy": ""}, ["preemptionPolicy Required value"]),
    ({"preemptionPolicy": "Often"},
     ['preemptionPolicy Unsupported value Often: supported values: "PreemptLowerPriority", "Never"']),
    ({"os": {}}, ["os.name Required value"]),
    ({"os": {"name": "plan9"}}, ['os Unsupported value plan9: supported values: "linux", "windows"']),
    ({"overhead": {"cpu": "-1"}}, ["overhead.limits[cpu] Invalid value -1: must be greater than or equal to 0"]),
    ({"resources": {"limits": {"cpu": 1}}, "os": {"name": "windows"}},
     ["resources Forbidden: may not be set for a windows pod"]),
    ({"resources": {"claims": [{"name": "a"}]}},
     ["resources.claims Forbidden: claims may not be set for Resources at pod-level",
      "resources.claims[0] Not found a: must be one of the names in pod.spec.resourceClaims which is empty"]),
    ({"resources": {"limits": {"cpu": 1}}, "containers": [{**MAIN, "resources": {"requests": {"cpu": 2}}}]},
     ["resources.requests Invalid value 2: must be less than or equal to cpu limit of 1"]),
    ({"resources": {"limits": {"cpu": 1}}, "containers": [{**MAIN, "resources": {"limits": {"cpu": 2, "memory": 1}}}]},
     ["resources.requests Invalid value 2: must be less than or equal to cpu limit of 1",
      "resources.containers[0][cpu].limits Invalid value 2: must be less than or equal to pod limits of 1"]),
    ({"resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}], "containers": [{**MAIN, "resources": {"claims": [{"name": "gpu"}]}}]}, []),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), OTHERS)
def test_the_rest_of_a_spec_is_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    assert violations_of(spec) == wanted


def test_a_template_needs_no_name_but_sound_labels() -> None:
    assert violations_of({}, {}, is_template=True) == []
    (violation,) = violations_of({}, {"labels": {"a": "-"}}, is_template=True)
    assert violation.startswith("labels Invalid value -")


def metadata(**fields: Any) -> list[str]:
    return [
        f"{violation.path} {violation.type}" for violation in metadata_violations(decode(fields, ObjectMeta))
    ]


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "u"}
UNQUALIFIED = "name is neither a standard finalizer name nor is it fully qualified"


@pytest.mark.parametrize(
    ("fields", "wanted"),
    [
        ({"finalizers": ["example.com/a", "orphan", "kubernetes"]}, []),
        ({"finalizers": ["example.com/a", "mine"]}, [f"metadata.finalizers[1] Invalid value mine: {UNQUALIFIED}"]),
        ({"finalizers": ["orphan", "foregroundDeletion"]},
         [("metadata.finalizers Invalid value ('orphan', 'foregroundDeletion'): finalizer orphan and foregroundDeletion "
          "cannot be both set")]),
        ({"ownerReferences": [{**OWNER, "blockOwnerDeletion": False}, {**OWNER, "controller": True}]}, []),
        ({"ownerReferences": [{}]},
         ["metadata.ownerReferences.apiVersion Invalid value : version must not be empty",
          *(f"metadata.ownerReferences.{field} Invalid value : must not be empty" for field in ("kind", "name", "uid"))]),
        ({"ownerReferences": [{**OWNER, "apiVersion": "a/b/c"}, {**OWNER, "apiVersion": "apps/"}]},
         [f"metadata.ownerReferences.apiVersion Invalid value {text}: version must not be empty" for text in ("a/b/c", "apps/")]),
        ({"ownerReferences": [{**OWNER, "apiVersion": "v1", "kind": "Event"}]},
         [("metadata.ownerReferences Invalid value {'apiVersion': 'v1', 'kind': 'Event', 'name': 'a', 'uid': 'u'}: "
          "/v1, Kind=Event is disallowed from being an owner")]),
        ({"generation": -1}, []),
    ],
)  # fmt: skip
def test_metadata_is_judged_as_a_whole(fields: dict[str, Any], wanted: list[str]) -> None:
    assert violations_of({}, {**META, **fields}) == wanted
    assert violations_of({}, {**META, **fields}, is_template=True) == []


def test_an_object_has_one_controller() -> None:
    owners = [{**OWNER, "controller": True}, {**OWNER, "name": "b", "controller": True}]
    (violation,) = violations_of({}, {**META, "ownerReferences": owners})
    assert violation.endswith(
        'Only one reference can have Controller set to true. Found "true" in references for ReplicaSet/a and ReplicaSet/b'
    )


def test_an_unqualified_finalizer_is_no_name() -> None:
    (first, _) = violations_of({}, {**META, "finalizers": ["-"]})
    assert first.startswith("metadata.finalizers Invalid value -: name part must consist of")


def test_names_and_namespaces_have_their_form() -> None:
    assert metadata(name="web", namespace="shop", labels={"app": "web"}) == []
    assert metadata(generateName="run-") == []
    assert metadata() == ["metadata.name Required value"]
    assert metadata(name="A", namespace="a.b") == [
        "metadata.name Invalid value",
        "metadata.namespace Invalid value",
    ]
    assert metadata(generateName="-") == ["metadata.generateName Invalid value"]
    assert metadata(name="web", labels={"a b": "-"}) == ["metadata.labels Invalid value"] * 2


SHARED: dict[str, Any] = {
    "containers": [
        {
            "name": "main",
            "env": [{"name": "A"}],
            "ports": [{"containerPort": 80, "hostPort": 80}],
            "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }
    ],
    "initContainers": [
        {"name": "log", "restartPolicy": "Always", "livenessProbe": {"exec": {"command": ["a"]}}}
    ],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "a"}],
    "volumes": [{"name": "data"}],
}


@pytest.mark.parametrize(
    ("changes", "container_changes"),
    [
        ({}, {}),
        ({}, {"resources": ResourceRequirements(limits={"cpu": Quantity.parse("-1")})}),
        ({}, {"ports": (ContainerPort(container_port=0),), "env": (EnvVar(name="="),)}),
        ({}, {"security_context": {"runAsUser": -1}, "liveness_probe": {}}),
        ({"restart_policy": "Never"}, {}),
        ({"volumes": ()}, {}),
        ({"resource_claims": ()}, {}),
        ({"init_containers": ()}, {"volume_mounts": ({"name": "other", "mountPath": "/"},)}),
    ],
)
def test_only_what_a_valid_pod_shares_is_not_checked_again(
    changes: dict[str, Any], container_changes: dict[str, Any]
) -> None:
    valid = decode({"metadata": META, "spec": SHARED}, Pod)
    assert not pod_violations(valid)
    container = replace(valid.spec.containers[0], **container_changes)
    pod = replace(valid, spec=replace(valid.spec, containers=(container,), **changes))
    assert pod_violations(pod, valid=valid) == pod_violations(pod)


@pytest.mark.parametrize(
    ("kind", "spec", "wanted"),
    [
        ("Deployment", PodSpec(), []),
        ("Deployment", PodSpec(restart_policy="Always"), []),
        ("Deployment", PodSpec(restart_policy="Never"),
         ['t.restartPolicy Unsupported value Never: supported values: "Always"']),
        ("Deployment", PodSpec(active_deadline_seconds=1),
         ["t.activeDeadlineSeconds Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"]),
        ("DaemonSet", PodSpec(active_deadline_seconds=1),
         ["t.activeDeadlineSeconds Forbidden: activeDeadlineSeconds in DaemonSet is not Supported"]),
        ("Job", PodSpec(restart_policy="Always"), ['t.restartPolicy Required value: valid values: "OnFailure", "Never"']),
        ("Job", PodSpec(restart_policy="Never", active_deadline_seconds=1), []),
        ("CronJob", PodSpec(restart_policy="Ever"),
         ['t.restartPolicy Unsupported value Ever: supported values: "OnFailure", "Never"']),
        ("PodTemplate", PodSpec(restart_policy="Never", active_deadline_seconds=1), []),
    ],
)  # fmt: skip
def test_templates_end_as_their_kind_allows(kind: str, spec: PodSpec, wanted: list[str]) -> None:
    assert [text(violation) for violation in template_restart_violations(kind, spec, "t")] == wanted
