"""All objects of manifests, in order."""

import pytest

from nodewright.documents.formats.inventory import InventoryObject, inventory_from_bytes, without_duplicates
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.claims import DeviceTaintRule, ResourceClaim, ResourceSlice
from nodewright.model.kubernetes.cluster_objects import (
    LimitRange,
    PersistentVolumeClaim,
    ResourceClaimTemplate,
    Service,
)
from tools.source import ROOT

EVERYTHING = """
{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {resources: {requests: {storage: 1Gi}}}}
---
{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: gpu},
 spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: gpu}}]}}}}
---
{apiVersion: shop.example/v1, kind: Gateway, metadata: {name: edge, namespace: shop}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: gateways.shop.example},
 spec: {group: shop.example, scope: Namespaced, names: {plural: gateways, kind: Gateway}, versions: []}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "system:web"}}
"""


def entries(text: str) -> tuple[InventoryObject, ...]:
    return inventory_from_bytes(text.encode(), "f.yaml").objects


def faults(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        inventory_from_bytes(text.encode(), "f.yaml")
    return [str(fault) for fault in caught.value.faults]


def test_all_objects_are_loaded_in_order_with_resource_and_namespace() -> None:
    manifests = [entry.manifest for entry in entries(EVERYTHING)]
    assert [(str(manifest.resource), manifest.namespace, manifest.name) for manifest in manifests] == [
        ("services", "default", "web"),
        ("persistentvolumeclaims", "default", "data"),
        ("resourceclaimtemplates.resource.k8s.io", "default", "gpu"),
        ("gateways.shop.example", "shop", "edge"),  # as the definition says that comes after it
        ("customresourcedefinitions.apiextensions.k8s.io", "", "gateways.shop.example"),
        ("clusterroles.rbac.authorization.k8s.io", "", "system:web"),
    ]


def test_fields_that_quotas_depend_on_are_read_completely() -> None:
    service, claim, template, *_ = (entry.manifest.object for entry in entries(EVERYTHING))
    assert isinstance(service, Service)
    assert service.spec.type == "NodePort"
    assert isinstance(claim, PersistentVolumeClaim)
    assert str(claim.spec.resources.requests["storage"]) == "1Gi"
    assert isinstance(template, ResourceClaimTemplate)
    ask = template.spec.spec.devices.requests[0].exactly
    assert ask is not None
    assert ask.device_class_name == "gpu"


def test_a_limit_range_is_as_the_api_server_keeps_it() -> None:
    text = "{apiVersion: v1, kind: LimitRange, metadata: {name: b}, spec: {limits: [{type: Container, max: {cpu: 1.0001}}]}}"
    (entry,) = entries(text)
    assert isinstance(entry.manifest.object, LimitRange)
    assert str(entry.manifest.object.spec.limits[0].default_request["cpu"]) == "1001m"


SELECTING = (
    "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a}]}}"
)
JOB_TEMPLATE = "template: {spec: {containers: [{name: a}], restartPolicy: Never}}"
CONTROLLERS = """
    apps/v1 Deployment   replicas: 3                                            ->  3 replicasets.apps 25%/25%
    apps/v1 Deployment   strategy: {type: Recreate}                             ->  1 replicasets.apps none
    apps/v1 Deployment   strategy: {rollingUpdate: {maxSurge: 2}}               ->  1 replicasets.apps 2/25%
    apps/v1 ReplicaSet   replicas: 0                                            ->  0 - none
    apps/v1 StatefulSet  replicas: 2                                            ->  2 controllerrevisions.apps none
    apps/v1 DaemonSet    updateStrategy: {rollingUpdate: {maxUnavailable: 10%}} ->  None controllerrevisions.apps 0/10%
    apps/v1 DaemonSet    updateStrategy: {type: OnDelete}                       ->  None controllerrevisions.apps none
    batch/v1 Job         {parallelism: 4, completions: 3}                       ->  3 - none
    batch/v1 Job         {parallelism: 4, suspend: true}                        ->  0 - none
    batch/v1 Job         completions: 7                                         ->  1 - none
    batch/v1 CronJob     schedule: '@daily', jobTemplate: {spec: {parallelism: 2, %s}}  ->  2 jobs.batch none
    batch/v1 CronJob     {schedule: '@daily', suspend: true, jobTemplate: {spec: {%s}}} ->  0 - none
"""


@pytest.mark.parametrize("line", CONTROLLERS.strip().splitlines())
def test_controllers_have_their_number_of_pods(line: str) -> None:
    left, wanted = (part.strip() for part in line.split("->"))
    version, kind, spec = left.split(maxsplit=2)
    template = SELECTING if version == "apps/v1" else JOB_TEMPLATE
    if spec.startswith("{"):
        spec = spec[1:-1]
    spec = spec.replace("%s", template) if "%s" in spec else f"{spec}, {template}"
    (entry,) = entries(f"{{apiVersion: {version}, kind: {kind}, metadata: {{name: a}}, spec: {{{spec}}}}}")
    made = entry.manifest.controller
    assert made is not None
    update = (
        f"{made.rolling_update.max_surge}/{made.rolling_update.max_unavailable}"
        if made.rolling_update
        else "none"
    )
    assert f"{made.replicas} {','.join(map(str, made.intermediate_resources)) or '-'} {update}" == wanted


def test_pods_have_claims_of_ephemeral_volumes() -> None:
    text = (ROOT / "examples/manifests/database.yaml").read_bytes()
    entry = inventory_from_bytes(text, "database.yaml").objects[-1]
    assert entry.manifest.controller is not None
    assert [claim.metadata.name for claim in entry.manifest.controller.volume_claims] == ["data"]
    assert entry.manifest.controller.max_batch == 1
    volume = "{name: scratch, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 5Gi}}}}}}"
    spec = f"{{containers: [{{name: a}}], volumes: [{{name: plain}}, {volume}]}}"
    (entry,) = entries(f"{{apiVersion: v1, kind: Pod, metadata: {{name: a}}, spec: {spec}}}")
    (claim,) = entry.manifest.ephemeral_volume_claims
    assert claim.metadata.name == "scratch"
    assert str(claim.spec.resources.requests["storage"]) == "5Gi"


def test_all_faults_of_all_objects_are_reported_with_their_positions() -> None:
    text = """
{apiVersion: v1beta1, kind: ResourceQuota, metadata: {name: q}}
---
{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{prt: 1}]}}
---
{apiVersion: v1, kind: ConfigMap}
---
{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {scopeSelector: {matchExpressions: [
  {scopeName: BestEffort, operator: Exists}, {scopeName: NotBestEffort, operator: Exists}]}}}
"""
    old = 'apiVersion: no matches for kind "ResourceQuota" in version "v1beta1"; Kubernetes serves v1'
    assert faults(text) == [
        f"f.yaml:2:2, ResourceQuota default/q: {old}",
        'f.yaml:4:70, Service default/a: spec.ports[0].prt: unknown field; did you mean "port"?',
        "f.yaml:6:1, ConfigMap: metadata.name: Required value: name or generateName is required",
        "f.yaml:8:83, ResourceQuota default/q: spec.scopeSelector.matchExpressions: Invalid value: null: conflicting scopes",
    ]


def test_objects_keep_their_content() -> None:
    service, *_ = entries(EVERYTHING)
    assert service.location.name == "f.yaml, document 1"
    assert service.value["spec"]["ports"] == [{"port": 80}]
    assert service.workload is None


def test_configuration_files_are_passed_through_unread() -> None:
    (entry,) = entries("{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, metadata: 7}")
    assert (entry.manifest.namespace, entry.manifest.name) == ("", "")


def test_of_objects_with_the_same_name_the_last_counts_at_the_first_ones_position() -> None:
    config = "{apiVersion: v1, kind: ConfigMap, metadata: {%s}}"
    text = "\n---\n".join(
        config % text for text in ("name: a", "name: b", "name: a, labels: {x: why}", "generateName: c")
    )
    inventory = without_duplicates(
        inventory_from_bytes(f"{text}\n---\n{config % 'generateName: c'}".encode(), "f.yaml")
    )
    assert [obj.manifest.name for obj in inventory.objects] == ["a", "b", "c", "c"]
    assert inventory.objects[0].manifest.object.metadata.labels == {"x": "why"}
    assert inventory.warnings == (
        "ConfigMap default/a is defined more than once; the last definition counts",
    )


UPDATES = """
    Deployment  maxSurge: half                       ->  maxSurge: Invalid value: "half": a valid percent string must be
    Deployment  maxSurge: -1                         ->  maxSurge: Invalid value: -1: must be greater than or equal to 0
    Deployment  maxSurge: 0, maxUnavailable: 0%      ->  maxUnavailable: Invalid value: "0%": may not be 0 when `maxSurge` is 0
    Deployment  maxUnavailable: 101%                 ->  maxUnavailable: Invalid value: "101%": must not be greater than 100%
    DaemonSet   maxSurge: 101%, maxUnavailable: 0    ->  maxSurge: Invalid value: "101%": must not be greater than 100%
    DaemonSet   maxSurge: 1                          ->  maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero
    DaemonSet   maxUnavailable: 0                    ->  maxUnavailable: Required value: cannot be 0 when maxSurge is 0
"""


@pytest.mark.parametrize("line", UPDATES.strip().splitlines())
def test_rolling_updates_must_be_possible(line: str) -> None:
    left, rule = (part.strip() for part in line.split("->"))
    kind, update = left.split(maxsplit=1)
    field = "strategy" if kind == "Deployment" else "updateStrategy"
    spec = f"{field}: {{rollingUpdate: {{{update}}}}}, {SELECTING}"
    (fault,) = faults(f"{{apiVersion: apps/v1, kind: {kind}, metadata: {{name: a}}, spec: {{{spec}}}}}")
    assert f"spec.{field}.rollingUpdate.{rule}" in fault


ONE_OF = "{apiVersion: %s, kind: %s, metadata: {name: %s, %s}}"
FREE = "finalizers: [mine]"


@pytest.mark.parametrize(
    ("version", "kind", "name", "fields", "is_refused"),
    [
        ("v1", "ConfigMap", "a", FREE, True),
        ("batch/v1", "CronJob", "a", "ownerReferences: [{}]", True),
        ("apps/v1", "Deployment", "a", FREE, True),
        ("scheduling.k8s.io/v1", "PriorityClass", "a", FREE, True),
        ("rbac.authorization.k8s.io/v1", "Role", '"a:b"', FREE, True),
        ("rbac.authorization.k8s.io/v1", "Role", '"a:b"', "labels: {a: b}", False),
        ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "a", FREE, False),
        ("coordination.k8s.io/v1", "Lease", "a", FREE, False),
        ("shop.example/v1", "Gateway", "a", FREE, False),
        ("shop.example/v1", "Gateway", "a", "finalizers: [-]", True),
        ("shop.example/v1", "Gateway", "a", "generation: -1", False),
        ("v1", "ConfigMap", "a", "generation: -1", True),
        ("v1", "Namespace", "a.b", "labels: {a: b}", True),
        ("v1", "Service", "a.b", "labels: {a: b}", True),
        ("v1", "ConfigMap", "a.b", "labels: {a: b}", False),
    ],
)
def test_metadata_is_judged_as_its_kind_is(
    version: str, kind: str, name: str, fields: str, *, is_refused: bool
) -> None:
    text = ONE_OF % (version, kind, name, fields)
    found = [fault for fault in faults(text) if "metadata." in fault] if is_refused else entries(text)
    assert bool(found)


def test_only_labels_and_annotations_of_a_claim_template_can_be_set() -> None:
    text = (
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: gpu}, "
        "spec: {metadata: {labels: {a: b}, finalizers: [example.com/a]}, spec: {}}}"
    )
    (fault,) = faults(text)
    assert fault.endswith("spec.metadata.finalizers: Forbidden: cannot be set")


@pytest.mark.parametrize(("uid", "target"), [("uid: u", "gold"), ("labels: {}", None)])
def test_only_an_object_that_is_stored_has_a_status(uid: str, target: str | None) -> None:
    text = (
        f"{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: c, {uid}}}, "
        "status: {modifyVolumeStatus: {targetVolumeAttributesClassName: gold}}}"
    )
    claim = entries(text)[0].manifest.object
    assert isinstance(claim, PersistentVolumeClaim)
    change = claim.status.modify_volume_status
    assert (change and change.target_volume_attributes_class_name) == target


@pytest.mark.parametrize("number", ["1.0", "1e1", "1.5"])
def test_json_numbers_with_a_fraction_are_no_integers(number: str) -> None:
    text = (
        '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"activeDeadlineSeconds": %s, '
        '"containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": %s}}}]}}'
    )
    (fault,) = faults(text % (number, number))
    assert "spec.activeDeadlineSeconds: Invalid value" in fault
    assert "must be a 64-bit integer" in fault


def test_whole_yaml_numbers_become_integers_on_their_way_to_json() -> None:
    pod = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {activeDeadlineSeconds: %s, containers: [{name: c}]}}"
    assert entries(pod % "1.0")
    assert "must be a 64-bit integer" in faults(pod % "1.5")[0]


SLICE = """
apiVersion: resource.k8s.io/%s
kind: ResourceSlice
metadata: {name: one}
spec:
  driver: gpu.example.com
  pool: {name: one, resourceSliceCount: 1}
  nodeName: one
  devices: [%s]
"""


@pytest.mark.parametrize(
    ("version", "device"),
    [
        ("v1", "{name: a, capacity: {memory: {value: 1Gi}}}"),
        ("v1beta2", "{name: a, capacity: {memory: {value: 1Gi}}}"),
        ("v1beta1", "{name: a, basic: {capacity: {memory: {value: 1Gi}}}}"),
    ],
)
def test_a_slice_of_every_version_is_read_and_belongs_to_no_namespace(version: str, device: str) -> None:
    (entry,) = entries(SLICE % (version, device))
    assert isinstance(entry.manifest.object, ResourceSlice)
    assert [str(each.capacity["memory"].value) for each in entry.manifest.object.spec.devices] == ["1Gi"]
    assert (str(entry.manifest.resource), entry.manifest.namespace) == ("resourceslices.resource.k8s.io", "")


@pytest.mark.parametrize(
    ("version", "device", "field"),
    [
        ("v1", "{name: a, capacities: {}}", 'devices[0].capacities: unknown field; did you mean "capacity"?'),
        ("v1", "{name: a, basic: {}}", "devices[0].basic: unknown field"),
        ("v1beta1", "{name: a, capacity: {}}", "devices[0].capacity: unknown field"),
        ("v1beta1", "{name: a, basic: {taint: []}}", 'basic.taint: unknown field; did you mean "taints"?'),
        ("v1", "{name: a, taints: [{key: b, efect: None}]}", 'efect: unknown field; did you mean "effect"?'),
        ("v1beta1", "{name: A}", 'spec.devices[0].name: Invalid value: "A": a lowercase RFC 1123 label'),
    ],
)
def test_each_version_of_a_slice_has_its_own_fields(version: str, device: str, field: str) -> None:
    assert any(field in each for each in faults(SLICE % (version, device)))


def test_requests_of_claims_have_the_fields_of_their_version() -> None:
    claim = "{apiVersion: resource.k8s.io/%s, kind: ResourceClaim, metadata: {name: a}, spec: {devices: {requests: [{name: r, %s}]}}}"
    for version, fields in (("v1", "exactly: {deviceClassName: gpu}"), ("v1beta1", "deviceClassName: gpu")):
        (entry,) = entries(claim % (version, fields))
        assert isinstance(entry.manifest.object, ResourceClaim)
        exactly = entry.manifest.object.spec.devices.requests[0].exactly
        assert exactly is not None
        assert (exactly.device_class_name, exactly.allocation_mode, exactly.count) == ("gpu", "ExactCount", 1)
    assert faults(claim % ("v1", "deviceClassName: gpu"))[0].endswith("deviceClassName: unknown field")
    assert faults(claim % ("v1beta1", "exactly: {deviceClassName: gpu}"))[0].endswith(
        "exactly: unknown field"
    )


def test_a_claim_keeps_the_devices_that_it_holds() -> None:
    text = (
        "{apiVersion: resource.k8s.io/v1, kind: ResourceClaim, metadata: {name: a}, spec: {}, status: {allocation: "
        "{devices: {results: [{request: r, driver: d, pool: p, device: gpu-0}]}}}}"
    )
    (entry,) = entries(text)
    assert isinstance(entry.manifest.object, ResourceClaim)
    allocation = entry.manifest.object.status.allocation
    assert allocation is not None
    assert [each.device for each in allocation.devices.results] == ["gpu-0"]


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        ("v1alpha3", ""),
        ("v1beta2", ""),
        ("v1", 'no matches for kind "DeviceTaintRule" in version "resource.k8s.io/v1"; Kubernetes serves resource.k8s.io/v1beta2'),
        ("v1beta1", 'no matches for kind "DeviceTaintRule" in version "resource.k8s.io/v1beta1"; Kubernetes serves resource.k8s.io/v1beta2'),
    ],
)  # fmt: skip
def test_taint_rules_are_served_in_their_own_versions(version: str, fault: str) -> None:
    text = f"{{apiVersion: resource.k8s.io/{version}, kind: DeviceTaintRule, metadata: {{name: a}}, spec: {{taint: {{key: a, effect: NoSchedule}}}}}}"
    if fault:
        assert fault in faults(text)[0]
        return
    (entry,) = entries(text)
    assert isinstance(entry.manifest.object, DeviceTaintRule)
    assert entry.manifest.object.spec.taint.effect == "NoSchedule"
