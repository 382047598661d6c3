"""Block devices, claim templates, ephemeral containers and images: judged as a kube-apiserver v1.36.2 judges them."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.engine.admission.validation.violation import violation_fault
from nodewright.model.kubernetes.objects import Pod

CLAIM = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
EMPTY = {"name": "v"}
NO_BLOCK = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def faults(spec: dict[str, Any], *, is_template: bool = False, is_stored: bool = False) -> list[str]:
    pod = decode({"metadata": {"name": "web"}, "spec": spec}, Pod)
    return [
        str(violation_fault(each)).removeprefix("spec.")
        for each in pod_violations(pod, is_template=is_template, is_stored=is_stored)
    ]


def devices(*pairs: tuple[str, str], volume: dict[str, Any] = CLAIM, **main: Any) -> dict[str, Any]:
    listed = [{"name": name, "devicePath": path} for name, path in pairs]
    return {
        "volumes": [volume],
        "containers": [{"name": "main", "image": "a", "volumeDevices": listed, **main}],
    }


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (devices(("v", "/dev/a")), []),
        (devices(("v", "/dev/a"), volume=EMPTY), [f'name: Invalid value: "v": {NO_BLOCK}']),
        (devices(("w", "/dev/a")), ['name: Not found: "w"']),
        (devices(("", "")), ["name: Required value", 'name: Not found: ""', "devicePath: Required value"]),
        (devices(("v", "/dev/../a")), ["devicePath: Invalid value: \"/dev/../a\": can not contain backsteps ('..')"]),
    ],
)  # fmt: skip
def test_block_devices_name_claims(spec: dict[str, Any], wanted: list[str]) -> None:
    assert faults(spec) == [f"containers[0].volumeDevices[0].{fault}" for fault in wanted]


def test_names_and_paths_of_devices_are_unique_among_mounts_too() -> None:
    path = "containers[0].volumeDevices[1]"
    assert faults(devices(("v", "/dev/a"), ("v", "/dev/a"))) == [
        f'{path}.name: Invalid value: "v": must be unique',
        f'{path}.devicePath: Invalid value: "/dev/a": must be unique',
    ]
    both = devices(("v", "/data"), volumeMounts=[{"name": "v", "mountPath": "/data"}])
    assert faults(both) == [
        'containers[0].volumeMounts[0].name: Invalid value: "v": must not already exist in volumeDevices',
        (
            'containers[0].volumeMounts[0].mountPath: Invalid value: "/data": '
            "must not already exist as a path in volumeDevices"
        ),
        'containers[0].volumeDevices[0].name: Invalid value: "v": must not already exist in volumeMounts',
        (
            'containers[0].volumeDevices[0].devicePath: Invalid value: "/data": '
            "must not already exist as a path in volumeMounts"
        ),
    ]


def test_a_pod_with_a_user_namespace_has_no_block_devices() -> None:
    spec = {**devices(("v", "/dev/a")), "hostUsers": False}
    assert faults(spec) == ["containers[0].volumeDevices: Forbidden: when `hostUsers` is false"]


STORAGE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
ONCE = "may not use ReadWriteOncePod with other access modes"
MODES = 'supported values: "ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"'
GROUP = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, []),
        ({"volumeMode": "Block", "storageClassName": ""}, []),
        ({"accessModes": []}, ["accessModes: Required value: at least 1 access mode is required"]),
        ({"accessModes": ["Never"]}, [f'accessModes: Unsupported value: "Never": {MODES}']),
        ({"accessModes": ["ReadWriteOncePod", "ReadWriteOnce"]}, [f"accessModes: Forbidden: {ONCE}"]),
        ({"resources": None}, ["resources[storage]: Required value"]),
        ({"resources": {"requests": {"storage": "0"}}},
         ['resources[storage]: Invalid value: "0": must be greater than zero']),
        ({"volumeMode": "Tape"},
         ['volumeMode: Unsupported value: "Tape": supported values: "Block", "Filesystem"']),
        ({"dataSource": {"name": "a", "kind": "Snapshot"}}, [f'dataSource: Invalid value: "Snapshot": {GROUP}']),
        ({"dataSource": {"kind": "PersistentVolumeClaim"}}, ["dataSource.name: Required value"]),
        ({"selector": {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}},
         ["selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"]),
    ],
)  # fmt: skip
def test_claim_templates_are_judged(changes: dict[str, Any], wanted: list[str]) -> None:
    template = {"spec": {**STORAGE, **changes}}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}
    prefix = "volumes[0].ephemeral.volumeClaimTemplate.spec."
    assert faults({"volumes": [volume], "containers": [{"name": "main"}]}) == [
        prefix + fault for fault in wanted
    ]


def test_a_claim_template_has_labels_and_annotations_alone() -> None:
    template = {"metadata": {"name": "a", "labels": {"a": "b"}}, "spec": STORAGE}
    volume = {"name": "v", "ephemeral": {"volumeClaimTemplate": template}}
    path = "volumes[0].ephemeral.volumeClaimTemplate.metadata.name"
    assert faults({"volumes": [volume], "containers": [{"name": "main"}]}) == [
        f"{path}: Forbidden: cannot be set"
    ]


def test_the_name_of_a_pod_counts_for_its_claims_and_that_of_a_template_does_not() -> None:
    volume = {"name": "v" * 63, "ephemeral": {"volumeClaimTemplate": {"spec": STORAGE}}}
    spec = {"volumes": [volume], "containers": [{"name": "main"}]}
    pod = decode({"metadata": {"name": "w" * 200}, "spec": spec}, Pod)
    (violation,) = pod_violations(pod)
    assert violation.path == "spec.volumes[0].name"
    assert not pod_violations(pod, is_template=True)


DEBUG = {"name": "debug", "image": "a"}
NOT_SET = "Forbidden: cannot be set for an Ephemeral Container"
CREATED = ["ephemeralContainers: Forbidden: cannot be set on create"]


@pytest.mark.parametrize(
    ("container", "wanted"),
    [
        (DEBUG, []),
        ({**DEBUG, "targetContainerName": "main"}, []),
        ({**DEBUG, "targetContainerName": "gone"}, ['targetContainerName: Not found: "gone"']),
        ({**DEBUG, "name": "main"}, ['name: Duplicate value: "main"']),
        ({**DEBUG, "resources": {"requests": {"cpu": "1"}}}, [f"resources: {NOT_SET}"]),
        ({**DEBUG, "ports": [{"containerPort": 1}]}, [f"ports: {NOT_SET}"]),
        ({**DEBUG, "lifecycle": {"stopSignal": "SIGTERM"}}, []),
        ({**DEBUG, "lifecycle": {"preStop": {"exec": {"command": ["a"]}}}}, [f"lifecycle: {NOT_SET}"]),
        ({**DEBUG, "restartPolicy": "Always"}, [f"restartPolicy: {NOT_SET}"]),
        ({**DEBUG, "image": " a"}, ['image: Invalid value: " a": must not have leading or trailing whitespace']),
        ({**DEBUG, "volumeMounts": [{"name": "v", "mountPath": "/a", "subPath": "b"}]},
         [f"volumeMounts[0].subPath: {NOT_SET}"]),
    ],
)  # fmt: skip
def test_ephemeral_containers_are_for_existing_pods(container: dict[str, Any], wanted: list[str]) -> None:
    spec = {"volumes": [EMPTY], "containers": [{"name": "main"}], "ephemeralContainers": [container]}
    own = [f"ephemeralContainers[0].{fault}" for fault in wanted]
    assert faults(spec) == [*own, *CREATED]
    assert faults(spec, is_stored=True) == own
    assert faults(spec, is_template=True) == [
        *own, "ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"
    ]  # fmt: skip


@pytest.mark.parametrize("image", [" a", "a ", "a\n", " "])
def test_blanks_around_an_image_are_refused_in_pods_only(image: str) -> None:
    spec = {"containers": [{"name": "main", "image": image}]}
    (fault,) = faults(spec)
    assert fault.startswith("containers[0].image: Invalid value")
    assert not faults(spec, is_template=True)
