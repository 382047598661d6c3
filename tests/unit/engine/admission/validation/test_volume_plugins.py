"""Validation of volume plugins and of settings of the pod as a whole: what the API server says of each."""

from typing import Any

import pytest
from tests.unit.engine.admission.validation.test_pod_spec import violations_of

VOLUMES: list[tuple[dict[str, Any], list[str]]] = [
    (
        {"gcePersistentDisk": {"partition": 256}},
        [
            "persistentDisk.pdName Required value",
            "persistentDisk.partition Invalid value 256: must be between 1 and 255, inclusive",
        ],
    ),
    ({"nfs": {"server": "s", "path": "a"}}, ["nfs.path Invalid value a: must be an absolute path"]),
    ({"iscsi": {}}, ["iscsi.targetPortal Required value", "iscsi.iqn Required value"]),
    (
        {
            "iscsi": {
                "targetPortal": "t",
                "iqn": "abc",
                "lun": 256,
                "chapAuthSession": True,
                "initiatorName": "iqn.x",
            }
        },
        [
            "iscsi.iqn Invalid value abc: must be valid format starting with iqn, eui, or naa",
            "iscsi.lun Invalid value 256: must be between 0 and 255, inclusive",
            "iscsi.secretRef Required value",
            "iscsi.initiatorname Invalid value iqn.x: must be valid format",
        ],
    ),
    (
        {"quobyte": {}},
        [
            "quobyte.registry Required value: must be a host:port pair or multiple pairs separated by commas",
            "quobyte.volume Required value",
        ],
    ),
    (
        {"quobyte": {"registry": "a,b:1", "volume": "v"}},
        [
            "quobyte.registry Invalid value a,b:1: must be a host:port pair or multiple pairs separated by commas"
        ],
    ),
    (
        {
            "quobyte": {
                "registry": "a:1",
                "tenant": "ttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttttt",
                "volume": "v",
            }
        },
        ["quobyte.tenant Required value: must be a UUID and may not exceed a length of 64 characters"],
    ),
    ({"flocker": {}}, ["flocker Required value: one of datasetName and datasetUUID is required"]),
    (
        {"flocker": {"datasetName": "a/b", "datasetUUID": "u"}},
        [
            "flocker Invalid value resource: datasetName and datasetUUID can not be specified simultaneously",
            "flocker.datasetName Invalid value a/b: must not contain '/'",
        ],
    ),
    ({"fc": {}}, ["fc.targetWWNs Required value: must specify either targetWWNs or wwids, but not both"]),
    (
        {"fc": {"targetWWNs": ["a"], "wwids": ["b"], "lun": 256}},
        [
            "fc.targetWWNs Invalid value ('a',): targetWWNs and wwids can not be specified simultaneously",
            "fc.lun Invalid value 256: must be between 0 and 255, inclusive",
        ],
    ),
    ({"fc": {"targetWWNs": ["a"]}}, ["fc.lun Required value: lun is required if targetWWNs is specified"]),
    (
        {"flexVolume": {"options": {"a.k8s.io/b": "c", "other": "d"}}},
        [
            "flexVolume.driver Required value",
            "flexVolume.options[a.k8s.io/b] Invalid value a.k8s.io/b: kubernetes.io and k8s.io namespaces are reserved",
        ],
    ),
    (
        {"azureDisk": {}},
        [
            "azureDisk.diskName Required value",
            "azureDisk.diskURI Required value",
            'azureDisk.diskURI Unsupported value : supported values: "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"',
        ],
    ),
    (
        {"azureDisk": {"diskName": "d", "diskURI": "x", "cachingMode": "Some", "kind": "Own"}},
        [
            'azureDisk.cachingMode Unsupported value Some: supported values: "None", "ReadOnly", "ReadWrite"',
            'azureDisk.kind Unsupported value Own: supported values: "Dedicated", "Managed", "Shared"',
            'azureDisk.diskURI Unsupported value x: supported values: "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"',
        ],
    ),
    (
        {"azureDisk": {"diskName": "d", "diskURI": "https://x", "kind": "Managed"}},
        [
            'azureDisk.diskURI Unsupported value https://x: supported values: "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"'
        ],
    ),
    ({"photonPersistentDisk": {}}, ["photonPersistentDisk.pdID Required value"]),
    ({"vsphereVolume": {}}, ["vsphereVolume.volumePath Required value"]),
    ({"portworxVolume": {}}, ["portworxVolume.volumeID Required value"]),
    (
        {"scaleIO": {}},
        [
            "scaleIO.gateway Required value",
            "scaleIO.system Required value",
            "scaleIO.volumeName Required value",
        ],
    ),
    ({"storageos": {}}, ["storageos.volumeName Required value"]),
    ({"cephfs": {}}, ["cephfs.monitors Required value"]),
    ({"rbd": {}}, ["rbd.monitors Required value", "rbd.image Required value"]),
    ({"glusterfs": {}}, ["glusterfs.endpoints Required value", "glusterfs.path Required value"]),
    ({"cinder": {}}, ["cinder.volumeID Required value"]),
    ({"azureFile": {}}, ["azureFile.secretName Required value", "azureFile.shareName Required value"]),
    ({"csi": {}}, ["csi.driver Required value"]),
    ({"awsElasticBlockStore": {}}, ["awsElasticBlockStore.volumeID Required value"]),
]

SETTINGS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {
            "securityContext": {
                "appArmorProfile": {"type": "X"},
                "fsGroup": -1,
                "fsGroupChangePolicy": "No",
                "supplementalGroups": [-1],
            }
        },
        [
            "securityContext.fsGroup Invalid value -1: must be between 0 and 2147483647, inclusive",
            "securityContext.supplementalGroups[0] Invalid value -1: must be between 0 and 2147483647, inclusive",
            'securityContext.appArmorProfile.type Unsupported value X: supported values: "Localhost", "RuntimeDefault", "Unconfined"',
            'securityContext.fsGroupChangePolicy Unsupported value No: supported values: "Always", "OnRootMismatch"',
        ],
    ),
    (
        {"shareProcessNamespace": True, "hostPID": True, "securityContext": {}},
        [
            "securityContext.shareProcessNamespace Invalid value True: ShareProcessNamespace and HostPID cannot both be enabled"
        ],
    ),
    ({"dnsPolicy": "None"}, ["dnsConfig Required value: must provide `dnsConfig` when `dnsPolicy` is None"]),
    (
        {"dnsPolicy": "None", "dnsConfig": {}},
        [
            "dnsConfig.nameservers Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"
        ],
    ),
]


@pytest.mark.parametrize(("source", "expected"), VOLUMES)
def test_volumes_of_plugins_have_what_their_plugin_needs(source: dict[str, Any], expected: list[str]) -> None:
    violations = violations_of({"volumes": [{"name": "v", **source}]})
    assert [violation.removeprefix("volumes[0].") for violation in violations] == expected


@pytest.mark.parametrize(("spec", "expected"), SETTINGS)
def test_settings_of_a_pod_are_in_their_ranges(spec: dict[str, Any], expected: list[str]) -> None:
    assert violations_of(spec) == expected


def test_an_overridden_host_name_excludes_other_names_and_is_short() -> None:
    spec = {"hostnameOverride": "A" * 65, "setHostnameAsFQDN": True, "hostNetwork": True}
    field = "hostnameOverride"
    *rules, name = violations_of(spec)
    assert rules == [
        f"{field} Forbidden: may not be specified when setHostnameAsFQDN is true",
        f"{field} Forbidden: may not be specified when hostNetwork is true",
        f"{field} Too long: may not be more than 64 bytes",
    ]
    assert name.startswith(f"{field} Invalid value AAA")


def test_dns_settings_are_few_and_valid() -> None:
    config = {
        "nameservers": ["1.1.1.1", "x", "1.1.1.1", "1.1.1.1"],
        "searches": ["a"] * 33,
        "options": [{"name": ""}],
    }
    rules = [violation.rpartition(": ")[2] for violation in violations_of({"dnsConfig": config})]
    assert rules == [
        "must not have more than 3 nameservers",
        "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        "must not have more than 32 search paths",
        "must not be empty",
    ]


def test_a_container_without_escalation_has_no_right_to_all() -> None:
    context = {
        "allowPrivilegeEscalation": False,
        "privileged": True,
        "capabilities": {"add": ["CAP_SYS_ADMIN"]},
    }
    rules = [
        violation.rpartition(": ")[2]
        for violation in violations_of({"containers": [{"name": "c", "securityContext": context}]})
    ]
    assert rules == [
        "cannot set `allowPrivilegeEscalation` to false and `privileged` to true",
        "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
    ]
