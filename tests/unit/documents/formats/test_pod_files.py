"""Manifests that an agent runs: validated as by the API server, whatever their source."""

import json
from typing import Any

import pytest

from nodewright.documents.formats.pod_files import ManifestOrigin, ManifestSource, is_safe_uid, read_manifest
from nodewright.model.errors import InputError

CONTAINER = {"name": "c", "image": "x", "command": ["sleep", "9"]}


def manifest(spec: dict[str, Any], **meta: str) -> bytes:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "esc", **meta},
        "spec": {"containers": [CONTAINER], **spec},
    }
    return json.dumps(pod).encode()


HOSTILE: tuple[tuple[dict[str, Any], str], ...] = (
    ({"volumes": [{"name": "/srv/victim", "configMap": {"name": "evil"}}]}, "spec.volumes[0].name: Invalid value"),
    ({"volumes": [{"name": "../../../../v2/new", "emptyDir": {}}]}, "spec.volumes[0].name: Invalid value"),
    ({"volumes": [{"emptyDir": {}}]}, "spec.volumes[0].name: Required value"),
    ({"volumes": [{"name": "a"}, {"name": "a"}]}, 'spec.volumes[1].name: Duplicate value: "a"'),
    ({"volumes": [{"name": "a", "downwardAPI": {"items": [{"path": "../b", "fieldRef": {"fieldPath": "metadata.name"}}]}}]},
     "spec.volumes[0].downwardAPI.path: Invalid value"),
    ({"securityContext": {"fsGroup": 4294967296}}, "spec.securityContext.fsGroup: Invalid value"),
    ({"containers": [{**CONTAINER, "name": "../c"}]}, "spec.containers[0].name: Invalid value"),
)  # fmt: skip


@pytest.mark.parametrize("origin", list(ManifestOrigin))
@pytest.mark.parametrize(("spec", "fault"), HOSTILE)
def test_hostile_names_are_refused_from_every_source(
    spec: dict[str, Any], fault: str, origin: ManifestOrigin
) -> None:
    with pytest.raises(InputError) as refused:
        read_manifest(manifest(spec), ManifestSource("esc.yaml", origin, "node-1"))
    assert fault in str(refused.value)


@pytest.mark.parametrize("uid", ["../x", "a/b", "a_b", ".", "..", "a\0b", "a\n", "x" * 129])
def test_a_uid_that_can_be_no_directory_and_no_cgroup_is_refused(uid: str) -> None:
    assert not is_safe_uid(uid)
    with pytest.raises(InputError, match=r"metadata\.uid"):
        read_manifest(manifest({}, uid=uid), ManifestSource("a.yaml", ManifestOrigin.API, "node-1"))


@pytest.mark.parametrize(
    ("kind", "fields", "fault"),
    [
        ("ConfigMap", {"data": {"../x": "1"}}, "data[../x]: Invalid value"),
        ("ConfigMap", {"data": {"..": "1"}}, "must not be '..'"),
        ("ConfigMap", {"data": {"/etc/passwd": "1"}}, "data[/etc/passwd]: Invalid value"),
        (
            "ConfigMap",
            {"data": {"a": "1"}, "binaryData": {"a": "MQ=="}},
            "duplicate of key present in binaryData",
        ),
        (
            "ConfigMap",
            {"data": {"a": "x" * (1 << 20), "b": "x"}},
            "Too long: may not be more than 1048576 bytes",
        ),
        ("Secret", {"data": {"a\0": "MQ=="}}, "Invalid value"),
        ("Secret", {"stringData": {"..a": "1"}}, "must not start with '..'"),
        ("Secret", {"stringData": {".a-b_c": "1"}}, ""),
    ],
)
def test_keys_that_can_be_no_files_are_refused(kind: str, fields: dict[str, Any], fault: str) -> None:
    content = json.dumps({"apiVersion": "v1", "kind": kind, "metadata": {"name": "a"}, **fields}).encode()
    source = ManifestSource("a.yaml", ManifestOrigin.FILE, "node-1")
    if not fault:
        assert read_manifest(content, source).secrets
        return
    with pytest.raises(InputError) as refused:
        read_manifest(content, source)
    assert fault in str(refused.value)
