"""Volumes, mounts, references, handlers and settings of pods: judged as the API server judges them."""

from typing import Any

import pytest

from nodewright.documents.formats.decode import decode
from nodewright.engine.admission.validation.pod_spec import pod_violations
from nodewright.model.kubernetes.objects import Pod

MAIN = {"name": "main"}
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
IDS = "must be between 0 and 2147483647, inclusive"
MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def violation_texts(spec: dict[str, Any], name: str = "web") -> list[str]:
    pod = decode({"metadata": {"name": name}, "spec": {"containers": [MAIN], **spec}}, Pod)
    return [
        f"{pod_violation.path.removeprefix('spec.')} {pod_violation.type}{'' if pod_violation.value is None else f' {pod_violation.value}'}: {pod_violation.rule}".rstrip(
            ": "
        )
        for pod_violation in pod_violations(pod)
    ]


def volumes(*them: dict[str, Any]) -> dict[str, Any]:
    return {"volumes": list(them)}


def volume(**source: Any) -> dict[str, Any]:
    return volumes({"name": "v", **source})


def mounted(*mounts: dict[str, Any], **main: Any) -> dict[str, Any]:
    return {
        "volumes": [{"name": "v", "emptyDir": {}}],
        "containers": [{**MAIN, "volumeMounts": list(mounts), **main}],
    }


TEMPLATE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
ITEM = {"key": "k", "path": "p"}
NAME = {"fieldRef": {"fieldPath": "metadata.name"}}

VOLUMES: list[tuple[dict[str, Any], list[str]]] = [
    (volumes({"name": "v"}), []),
    (volumes({"emptyDir": {}}), ["volumes[0].name Required value"]),
    (volumes({"name": "/srv/victim", "configMap": {"name": "c"}}), [f"volumes[0].name Invalid value /srv/victim: {LABEL}"]),
    (volumes({"name": "../../new", "emptyDir": {}}), [f"volumes[0].name Invalid value ../../new: {LABEL}"]),
    (volumes({"name": "v"}, {"name": "v"}), ["volumes[1].name Duplicate value v"]),
    (volume(emptyDir={}, secret={"secretName": "s"}), ["volumes[0].secret Forbidden: may not specify more than 1 volume type"]),
    (volume(persistentVolumeClaim={"claimName": "c"}, downwardAPI={}),
     ["volumes[0].downwarAPI Forbidden: may not specify more than 1 volume type"]),
    (volume(configMap={}, nfs={"server": "s", "path": "/a"}),
     ["volumes[0].configMap Forbidden: may not specify more than 1 volume type"]),
    (volume(emptyDir={}, downwardAPI={}), ["volumes[0].downwarAPI Forbidden: may not specify more than 1 volume type"]),
    (volume(emptyDir={"sizeLimit": "-1"}),
     ["volumes[0].emptyDir.sizeLimit Forbidden: SizeLimit field must be a valid resource quantity"]),
    (volume(hostPath={"path": "/a", "type": "Directory"}), []),
    (volume(hostPath={}), ["volumes[0].hostPath.path Required value"]),
    (volume(hostPath={"path": "/a/../b"}), ["volumes[0].hostPath.path Invalid value /a/../b: must not contain '..'"]),
    (volume(hostPath={"path": "/a", "type": "Folder"}),
     [('volumes[0].hostPath.type Unsupported value Folder: supported values: "", "BlockDevice", "CharDevice", '
      '"Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"')]),
    (volume(configMap={}), ["volumes[0].configMap.name Required value"]),
    (volume(configMap={"name": "c", "defaultMode": 512}), [f"volumes[0].configMap.defaultMode Invalid value 512: {MODE}"]),
    (volume(secret={"secretName": "s", "items": [{}]}),
     ["volumes[0].secret.items[0].key Required value", "volumes[0].secret.items[0].path Required value"]),
    (volume(configMap={"name": "c", "items": [{"key": "k", "path": "/a"}, {"key": "k", "path": "a/../b"},
                                              {"key": "k", "path": "..a"}, {"key": "k", "path": "a", "mode": -1}]}),
     ["volumes[0].configMap.items[0].path Invalid value /a: must be a relative path",
      "volumes[0].configMap.items[1].path Invalid value a/../b: must not contain '..'",
      "volumes[0].configMap.items[2].path Invalid value ..a: must not start with '..'",
      f"volumes[0].configMap.items[3].mode Invalid value -1: {MODE}"]),
    (volume(downwardAPI={"items": [{"path": "p", **NAME}]}), []),
    (volume(downwardAPI={"items": [{"path": "p"}]}),
     ["volumes[0].downwardAPI Required value: one of fieldRef and resourceFieldRef is required"]),
    (volume(downwardAPI={"items": [{"path": "../x", "fieldRef": {"fieldPath": "spec.nodeName"}}]}),
     ["volumes[0].downwardAPI.path Invalid value ../x: must not contain '..'",
      ('volumes[0].downwardAPI.fieldRef.fieldPath Unsupported value spec.nodeName: supported values: '
      '"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"')]),
    (volume(downwardAPI={"items": [{"path": "p", "fieldRef": {"fieldPath": "spec.x"}}]}),
     [("volumes[0].downwardAPI.fieldRef.fieldPath Invalid value spec.x: error converting fieldPath: "
      "field label not supported: spec.x")]),
    (volume(downwardAPI={"items": [{"path": "p", "resourceFieldRef": {
        "containerName": "main", "resource": "limits.cpu", "divisor": "-9223372036854775808"}}]}),
     [("volumes[0].downwardAPI.resourceFieldRef.divisor Invalid value limits.cpu: only divisor's values 1m and 1 are "
      "supported with the cpu resource")]),
    (volume(downwardAPI={"items": [{"path": "p", "resourceFieldRef": {"resource": "limits.cpu"}}]}),
     ["volumes[0].downwardAPI.resourceFieldRef.containerName Required value"]),
    (volume(projected={"sources": [{"configMap": {"name": "c", "items": [ITEM]}}, {"secret": {"name": "s", "items": [ITEM]}}]}),
     ["volumes[0].projected Invalid value s: conflicting duplicate paths"]),
    (volume(projected={"sources": [{"configMap": {}, "downwardAPI": {"items": [{"path": "p", **NAME}]}}]}),
     ["volumes[0].projected.sources[0].configMap.name Required value",
      "volumes[0].projected.sources[0] Forbidden: may not specify more than 1 volume type per source"]),
    (volume(projected={"sources": [{"serviceAccountToken": {"path": "..", "expirationSeconds": 1}}]}),
     [("volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds Invalid value 1: "
      "may not specify a duration less than 10 minutes"),
      "volumes[0].projected.path Invalid value ..: must not contain '..'",
      "volumes[0].projected.path Invalid value ..: must not start with '..'"]),
    (volume(projected={"sources": [{"clusterTrustBundle": {"path": "/a"}}, {"podCertificate": {"keyPath": "/a"}}]}), []),
    (volume(persistentVolumeClaim={}), ["volumes[0].persistentVolumeClaim.claimName Required value"]),
    (volume(ephemeral={}), ["volumes[0].ephemeral.volumeClaimTemplate Required value"]),
    (volumes({"name": "v", "ephemeral": {"volumeClaimTemplate": TEMPLATE}}, {"name": "w", "persistentVolumeClaim": {"claimName": "web-v"}}),
     [("volumes[1].persistentVolumeClaim.claimName Invalid value web-v: must not reference a PVC that gets created for "
      "an ephemeral volume")]),
    (volume(nfs={"server": "s", "path": "a"}), ["volumes[0].nfs.path Invalid value a: must be an absolute path"]),
    (volume(gitRepo={"directory": "/x"}),
     ["volumes[0].gitRepo.repository Required value", "volumes[0].gitRepo.directory Invalid value /x: must be a relative path"]),
    (volume(gcePersistentDisk={"partition": 256}),
     ["volumes[0].persistentDisk.pdName Required value",
      "volumes[0].persistentDisk.partition Invalid value 256: must be between 1 and 255, inclusive"]),
    (volume(iscsi={"targetPortal": "a", "iqn": "iqn.2001-04.com.example:x", "lun": 256, "initiatorName": "x"}),
     ["volumes[0].iscsi.lun Invalid value 256: must be between 0 and 255, inclusive",
      "volumes[0].iscsi.initiatorname Invalid value x: must be valid format starting with iqn, eui, or naa"]),
    (volume(iscsi={"chapAuthSession": True, "iqn": "eui.1"}),
     ["volumes[0].iscsi.targetPortal Required value", "volumes[0].iscsi.iqn Invalid value eui.1: must be valid format",
      "volumes[0].iscsi.secretRef Required value"]),
    (volume(flocker={}), ["volumes[0].flocker Required value: one of datasetName and datasetUUID is required"]),
    (volume(quobyte={"registry": "a", "volume": "v"}),
     ["volumes[0].quobyte.registry Invalid value a: must be a host:port pair or multiple pairs separated by commas"]),
    (volume(fc={"targetWWNs": ["a"]}), ["volumes[0].fc.lun Required value: lun is required if targetWWNs is specified"]),
    (volume(flexVolume={"driver": "d", "options": {"a.k8s.io/x": "1"}}),
     ["volumes[0].flexVolume.options[a.k8s.io/x] Invalid value a.k8s.io/x: kubernetes.io and k8s.io namespaces are reserved"]),
    (volume(azureDisk={"diskName": "d", "diskURI": "x", "kind": "Managed"}),
     [("volumes[0].azureDisk.diskURI Unsupported value x: supported values: "
      '"/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"')]),
    (volume(csi={"driver": "a" * 64}), ["volumes[0].csi.driver Too long: may not be more than 63 bytes"]),
    (volume(csi={"driver": "d", "nodePublishSecretRef": {}}), ["volumes[0].csi.nodePublishSecretRef.name Required value"]),
    (volume(storageos={"volumeName": "A"}), [f"volumes[0].storageos.volumeName Invalid value A: {LABEL}"]),
    (volume(image={"pullPolicy": "Often"}),
     ["volumes[0].image.reference Required value",
      'volumes[0].image.pullPolicy Unsupported value Often: supported values: "Always", "IfNotPresent", "Never"']),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), VOLUMES)
def test_volumes_are_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    assert violation_texts(spec) == wanted


MOUNT = {"name": "v", "mountPath": "/x"}
MOUNTS: list[tuple[dict[str, Any], list[str]]] = [
    (mounted(MOUNT), []),
    (mounted({}), ["containers[0].volumeMounts[0].name Required value", "containers[0].volumeMounts[0].name Not found ",
                   "containers[0].volumeMounts[0].mountPath Required value"]),
    (mounted({"name": "w", "mountPath": "/x"}), ["containers[0].volumeMounts[0].name Not found w"]),
    (mounted(MOUNT, MOUNT), ["containers[0].volumeMounts[1].mountPath Invalid value /x: must be unique"]),
    (mounted({**MOUNT, "subPath": "../a"}), ["containers[0].volumeMounts.subPath Invalid value ../a: must not contain '..'"]),
    (mounted({**MOUNT, "subPath": "/a", "subPathExpr": "b"}),
     ["containers[0].volumeMounts.subPath Invalid value /a: must be a relative path",
      "containers[0].volumeMounts[0].subPathExpr Invalid value b: subPathExpr and subPath are mutually exclusive"]),
    (mounted({**MOUNT, "mountPropagation": "Bidirectional"}),
     [("containers[0].volumeMounts.mountPropagation Forbidden: Bidirectional mount propagation is available only to "
      "privileged containers")]),
    (mounted({**MOUNT, "mountPropagation": "Both"}),
     [('containers[0].volumeMounts.mountPropagation Unsupported value Both: supported values: "Bidirectional", '
      '"HostToContainer", "None"')]),
    (mounted({**MOUNT, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}),
     ["containers[0].volumeMounts.recursiveReadOnly Forbidden: may only be specified when readOnly is true",
      ("containers[0].volumeMounts.recursiveReadOnly Forbidden: may only be specified when mountPropagation is None or "
      "not specified")]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), MOUNTS)
def test_mounts_are_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    assert [violation_text.rstrip() for violation_text in violation_texts(spec)] == [
        text.rstrip() for text in wanted
    ]


def env(**entry: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "c", "configMap": {"name": "c"}}],
            "containers": [{**MAIN, "env": [{"name": "A", **entry}]}]}  # fmt: skip


def value_from(**source: Any) -> dict[str, Any]:
    return env(valueFrom=source)


SOURCE = "containers[0].env[0].valueFrom"
KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  "
    "or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
REFERENCES: list[tuple[dict[str, Any], list[str]]] = [
    (env(value="b"), []),
    (env(name=""), ["containers[0].env[0].name Required value"]),
    (env(name="A=B"), [("containers[0].env[0].name Invalid value A=B: a valid environment variable name must consist only "
                       "of printable ASCII characters other than '='")]),
    (env(name="A\n"), [("containers[0].env[0].name Invalid value A\n: a valid environment variable name must consist only "
                       "of printable ASCII characters other than '='")]),
    (value_from(), [(f"{SOURCE} Invalid value : must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
                    "`secretKeyRef` or `fileKeyRef`")]),
    (value_from(fieldRef={"fieldPath": "status.podIP"}), []),
    (value_from(fieldRef={"fieldPath": "spec.host"}), []),
    (value_from(fieldRef={}), [f"{SOURCE}.fieldRef.fieldPath Required value"]),
    (env(value="x", valueFrom={"fieldRef": {"fieldPath": "metadata.name"}}),
     [f"{SOURCE} Invalid value : may not be specified when `value` is not empty"]),
    (value_from(resourceFieldRef={"resource": "limits.x"}),
     [(f'{SOURCE}.resourceFieldRef.resource Unsupported value limits.x: supported values: "limits.cpu", '
      '"limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"')]),
    (value_from(configMapKeyRef={"name": "c", "key": "../k"}),
     [f"{SOURCE}.configMapKeyRef.key Invalid value ../k: {KEY}",
      f"{SOURCE}.configMapKeyRef.key Invalid value ../k: must not start with '..'"]),
    (value_from(secretKeyRef={"name": "s"}), [f"{SOURCE}.secretKeyRef.key Required value"]),
    (value_from(fileKeyRef={"key": "k", "volumeName": "v", "path": "a/../b"}),
     [f"{SOURCE}.fileKeyRef.path Invalid value a/../b: must not contain '..'"]),
    (value_from(fileKeyRef={"key": "k", "volumeName": "c", "path": "a"}),
     [f"{SOURCE}.fileKeyRef.volumeName Invalid value c: referenced volume must be of type emptyDir"]),
    (value_from(fileKeyRef={"key": "k", "volumeName": "w", "path": "a"}),
     [f"{SOURCE}.fileKeyRef.volumeName Not found w"]),
    ({"containers": [{**MAIN, "envFrom": [{"prefix": "P_", "configMapRef": {"name": "c-"}}]}]}, []),
    ({"containers": [{**MAIN, "envFrom": [{}, {"secretRef": {}}]}]},
     ["containers[0].envFrom Invalid value : must specify one of: `configMapRef` or `secretRef`",
      "containers[0].envFrom[1].secretRef.name Required value"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), REFERENCES)
def test_references_are_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    assert violation_texts(spec) == wanted


def probe(**fields: Any) -> dict[str, Any]:
    return {"containers": [{**MAIN, "livenessProbe": fields}]}


PROBE = "containers[0].livenessProbe"
HANDLERS: list[tuple[dict[str, Any], list[str]]] = [
    (probe(exec={"command": ["x"]}), []),
    (probe(httpGet={"port": "web"}), []),
    (probe(), [f"{PROBE} Required value: must specify a handler type"]),
    (probe(exec={}, grpc={"port": 1}),
     [f"{PROBE}.grpc Forbidden: may not specify more than 1 handler type", f"{PROBE}.exec.command Required value"]),
    (probe(httpGet={"port": 0, "scheme": "FILE", "httpHeaders": [{"name": "a\nb"}]}),
     [f"{PROBE}.httpGet.port Invalid value 0: must be between 1 and 65535, inclusive",
      f'{PROBE}.httpGet.scheme Unsupported value FILE: supported values: "HTTP", "HTTPS"',
      (f"{PROBE}.httpGet.httpHeaders Invalid value a\nb: a valid HTTP header must consist of alphanumeric characters or '-' "
      "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')")]),
    (probe(tcpSocket={"port": "-a--b"}),
     [f"{PROBE}.tcpSocket.port Invalid value -a--b: must not contain consecutive hyphens",
      f"{PROBE}.tcpSocket.port Invalid value -a--b: must not begin or end with a hyphen"]),
    (probe(exec={"command": ["x"]}, periodSeconds=-1, successThreshold=2, terminationGracePeriodSeconds=0),
     [f"{PROBE}.periodSeconds Invalid value -1: must be greater than or equal to 0",
      f"{PROBE}.terminationGracePeriodSeconds Invalid value 0: must be greater than 0",
      f"{PROBE}.successThreshold Invalid value 2: must be 1"]),
    ({"containers": [{**MAIN, "lifecycle": {"preStop": {}}}]},
     ["containers[0].lifecycle.preStop Required value: must specify a handler type"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), HANDLERS)
def test_probes_and_hooks_are_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    assert violation_texts(spec) == wanted


def context(**fields: Any) -> dict[str, Any]:
    return {"securityContext": fields}


SYSCTL = (
    r"must have at most 253 characters and match regex "
    r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
)
SETTINGS: list[tuple[dict[str, Any], list[str]]] = [
    (context(fsGroup=2**31 - 1, runAsUser=0, supplementalGroups=[1]), []),
    (context(fsGroup=4294967296, runAsUser=-1, runAsGroup=2**31, supplementalGroups=[0, 2**63 - 1]),
     [f"securityContext.fsGroup Invalid value 4294967296: {IDS}", f"securityContext.runAsUser Invalid value -1: {IDS}",
      f"securityContext.runAsGroup Invalid value {2**31}: {IDS}",
      f"securityContext.supplementalGroups[1] Invalid value {2**63 - 1}: {IDS}"]),
    ({"containers": [{**MAIN, **context(runAsUser=2**31)}]},
     [f"containers[0].securityContext.runAsUser Invalid value {2**31}: {IDS}"]),
    (context(sysctls=[{"name": "a.b"}, {"name": "a.b"}, {"name": "../x"}, {"name": "a\n"}, {}]),
     ["securityContext.sysctls[1].name Duplicate value a.b", f"securityContext.sysctls[2].name Invalid value ../x: {SYSCTL}",
      f"securityContext.sysctls[3].name Invalid value a\n: {SYSCTL}", "securityContext.sysctls[4].name Required value"]),
    ({"hostname": "a.b", "subdomain": "/"},
     ["hostname Invalid value a.b: must not contain dots", f"subdomain Invalid value /: {LABEL}"]),
    ({"hostnameOverride": "a" * 65, "hostNetwork": True},
     ["hostnameOverride Forbidden: may not be specified when hostNetwork is true",
      "hostnameOverride Too long: may not be more than 64 bytes"]),
    ({"hostAliases": [{"ip": "1.2.3", "hostnames": ["a.b"]}, {"ip": "10.0.0.01"}]},
     ["hostAliases[0].ip Invalid value 1.2.3: must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
      "hostAliases[1].ip Invalid value 10.0.0.01: must not have leading 0s"]),
    ({"dnsPolicy": "None"}, ["dnsConfig Required value: must provide `dnsConfig` when `dnsPolicy` is None"]),
    ({"dnsPolicy": "First"},
     ['dnsPolicy Unsupported value First: supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"']),
    ({"dnsConfig": {"searches": [".", "a_b.c."], "options": [{}]}},
     ["dnsConfig.options[0] Required value: must not be empty"]),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "wanted"), SETTINGS)
def test_settings_are_judged_as_the_api_server_does(spec: dict[str, Any], wanted: list[str]) -> None:
    assert violation_texts(spec) == wanted
