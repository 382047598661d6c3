"""Objects with every field of the field tables set, as an API server returns them."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_TABLES = Path(__file__).parents[2] / "src/nodewright/documents/formats/data/fields"
_TIME = "2026-05-01T10:00:00Z"
_SCALARS: Mapping[str, Any] = {
    "str": "a", "bool": True, "int32": 1, "int64": 1, "uint64": 1, "bytes": "1Gi", "kibibytes": "2Mi", "float": 0.5, "quantity": "1", "time": _TIME, "intstr": 1, "any": {},
    "condition": "MemoryPressure",
}  # fmt: skip

_MORE_TYPES = """
PodDisruptionBudget: apiVersion str, kind str, metadata ObjectMeta, spec PodDisruptionBudgetSpec
PodDisruptionBudgetSpec: minAvailable intstr, maxUnavailable intstr, selector LabelSelector
Node: apiVersion str, kind str, metadata ObjectMeta, spec NodeSpec, status NodeStatus
NodeSpec: podCIDR str, unschedulable bool, taints [Taint]
NodeStatus: capacity {quantity}, allocatable {quantity}, conditions [PodCondition], nodeInfo {str}
KubeletConfiguration: apiVersion str, kind str, kubeReserved {quantity}, systemReserved {quantity}, evictionHard {str},
  evictionSoft {str}, evictionMinimumReclaim {str}, reservedSystemCPUs str, cpuManagerPolicy str, maxPods int32,
  topologyManagerPolicy str, topologyManagerScope str, cpuManagerPolicyOptions {str}, featureGates {bool}
"""
"""Parts of objects that the package reads without a table, in the notation of the tables."""

ALTERNATIVES: Mapping[str, tuple[str, ...]] = {
    "Volume": ("name",),
    "VolumeProjection": (),
    "EnvFromSource": ("prefix",),
    "EnvVar": ("name",),
    "EnvVarSource": (),
    "Probe": (
        "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
    ),
    "LifecycleHandler": (),
    "PodResourceClaim": ("name",),
    "ContainerState": (),
    "DeviceRequest": ("name",),
    "PodFailurePolicyRule": ("action",),
    "DownwardAPIVolumeFile": ("path", "mode"),
}  # fmt: skip
"""Types of which an object has one of the fields, and the fields that go with each; a list has an item for each."""

_SELECTOR = {
    "matchLabels": {"app": "web"},
    "matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}],
}
_AMOUNTS = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}
_RESOURCES = {"requests": _AMOUNTS, "limits": {**_AMOUNTS, "nvidia.com/gpu": "1"}}
_NOT_IN_TEMPLATES = ("ephemeralContainers", "activeDeadlineSeconds")
_CONTAINER_NAMES = {"containers": "main", "initContainers": "init", "ephemeralContainers": "debugger"}
_VALUES: Mapping[str, Any] = {
    # Any type: by the field's name.
    "namespace": "shop", "namespaces": ["shop"], "labels": {"app": "web"}, "topologyKey": "zone", "operator": "In",
    "effect": "NoExecute", "restartPolicy": "Always", "protocol": "TCP", "hostPort": 8080, "containerPort": 8080,
    "matchLabelKeys": ["pod-template-hash"], "mismatchLabelKeys": ["tier"], "hostIP": "10.0.0.1", "podIP": "10.1.0.1",
    "ip": "10.1.0.1", "dnsPolicy": "ClusterFirst", "imagePullPolicy": "Always", "pullPolicy": "Always",
    "terminationMessagePolicy": "File", "terminationMessagePath": "/dev/termination-log", "preemptionPolicy": "Never",
    "apiVersion": "v1", "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem", "medium": "", "stopSignal": "SIGTERM",
    "scheme": "HTTP", "mountPath": "/data", "whenUnsatisfiable": "DoNotSchedule", "podManagementPolicy": "Parallel",
    "completionMode": "NonIndexed", "concurrencyPolicy": "Forbid", "schedule": "0 3 * * *", "timeZone": "Etc/UTC",
    "succeededIndexes": "0", "fieldPath": "metadata.name", "nameservers": ["10.0.0.2"], "sysctls": [],
    "windowsOptions": None, "seLinuxOptions": {"level": "s0:c1,c2"}, "phase": "Running", "qosClass": "Burstable",
    "resize": "InProgress", "containerID": "containerd://0123", "priorityClassName": "high", "priority": 1000,
    "clusterIP": "10.2.0.1", "clusterIPs": ["10.2.0.1"], "labelSelector": _SELECTOR, "selector": _SELECTOR,
    "namespaceSelector": _SELECTOR, "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-3"]}],
    "overhead": {"cpu": "10m"}, "mode": 0o644, "defaultMode": 0o644, "targetContainerName": "main", "scopes": ["NotTerminating"],
    "storageClassName": "fast", "nodeName": "worker-3", "procMount": "Default", "allocatedResources": _AMOUNTS,
    "capacity": {}, "hard": {"pods": "10", "requests.cpu": "10", "count/deployments.apps": "3"}, "allocationMode": "ExactCount",
    "used": {"pods": "1", "requests.cpu": "1"}, "resources": _RESOURCES, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor",
    "fsGroupChangePolicy": "OnRootMismatch", "seLinuxChangePolicy": "MountOption", "supplementalGroupsPolicy": "Merge",
    "imageID": "sha256:0123", "conditions": [{"type": "Ready", "status": "False", "reason": "a", "message": "a", "lastTransitionTime": _TIME, "observedGeneration": 1}],
    "rollingUpdate": {"maxUnavailable": 1, "maxSurge": "25%"}, "ephemeral-storage": "1Gi", "hostIPC": False, "hostPID": False,
    # A type's field.
    "RuntimeClass.overhead": {"podFixed": {"cpu": "10m"}}, "PersistentVolumeClaimSpec.resources": {"requests": {"storage": "1Gi"}},
    "PersistentVolumeClaimSpec.selector": _SELECTOR, "PersistentVolumeClaimSpec.dataSource": None, "PersistentVolumeClaimSpec.dataSourceRef": None,
    "ReplicationControllerSpec.selector": {"app": "web"}, "ServiceSpec.selector": {"app": "web"}, "ServiceSpec.type": "LoadBalancer",
    "ServiceSpec.sessionAffinity": "None", "LocalProfile": {"type": "RuntimeDefault"}, "PodSpec.os": {"name": "linux"},
    "PodSpec.hostname": "web", "ContainerResizePolicy.resourceName": "cpu", "ContainerResizePolicy.restartPolicy": "NotRequired",
    "ResourceFieldSelector.resource": "limits.cpu", "ResourceFieldSelector.containerName": "main", "PodSpec.schedulingGates": [],
    "PodTemplateSpec.metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "Lifecycle.stopSignal": "SIGTERM",
    "LimitRangeItem.type": "Container", "LimitRangeItem.max": {"cpu": "8"}, "LimitRangeItem.min": {"cpu": "1m"},
    "LimitRangeItem.default": {"cpu": "2"}, "LimitRangeItem.defaultRequest": {"cpu": "1"}, "LimitRangeItem.maxLimitRequestRatio": {"cpu": "10"},
    "ScopedResourceSelectorRequirement.scopeName": "PriorityClass", "PodFailurePolicyRule.action": "FailJob", "NamespaceStatus.phase": "Active",
    "DeploymentStrategy.type": "RollingUpdate", "DaemonSetUpdateStrategy.type": "RollingUpdate", "StatefulSetUpdateStrategy.type": "RollingUpdate",
    "DaemonSetUpdateStrategy.rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}, "StatefulSetUpdateStrategy.rollingUpdate": {"partition": 0, "maxUnavailable": 1},
    "StatefulSetPersistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Delete"}, "JobSpec.podReplacementPolicy": "Failed",
    "PodSpec.securityContext": {"runAsUser": 1, "runAsGroup": 1, "fsGroup": 1, "supplementalGroups": [1]}, "JobSpec.successPolicy": None,
    "JobSpec.backoffLimitPerIndex": None, "JobSpec.maxFailedIndexes": None, "CustomResourceDefinitionSpec.scope": "Namespaced",
    "SecurityContext.privileged": False, "SecurityContext.allowPrivilegeEscalation": False, "PodSpec.restartPolicy": "Always",
    "ContainerRestartRule": {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}, "PodSpec.setHostnameAsFQDN": True,
    "PodSpec.hostUsers": None, "PodSpec.schedulingGroup": None, "PodSpec.hostnameOverride": None, "Toleration.operator": "Equal", "ObjectFieldSelector.apiVersion": "v1",
    "ContainerPort.hostIP": "", "PodSpec.hostNetwork": False, "VolumeMount.name": "v-emptydir", "VolumeMount.mountPropagation": "None",
    "VolumeMount.recursiveReadOnly": "Disabled", "VolumeMount.subPathExpr": None, "Container.volumeDevices": [], "EphemeralContainer.volumeDevices": [],
    "HostPathVolumeSource.type": "", "HostPathVolumeSource.path": "/data", "Probe.terminationGracePeriodSeconds": 1, "NodeSelectorTerm.matchExpressions": _SELECTOR["matchExpressions"],
    "DownwardAPIVolumeFile.resourceFieldRef": {"containerName": "main", "resource": "limits.cpu", "divisor": "1m"}, "EnvFromSource.prefix": "A_",
    "RollingUpdateDeployment": {"maxUnavailable": 1, "maxSurge": "25%"}, "PodDNSConfig.searches": ["svc"], "Capabilities": {"add": ["CHOWN"], "drop": ["ALL"]},
    "ISCSIVolumeSource.iqn": "iqn.2026-05.com.example:a", "ISCSIVolumeSource.lun": 0, "FCVolumeSource.wwids": None, "AzureDiskVolumeSource.kind": "Managed",
    "AzureDiskVolumeSource.cachingMode": "None", "QuobyteVolumeSource.registry": "a:1", "ServiceAccountTokenProjection.expirationSeconds": 3600,
    "ProjectedVolumeSource.sources": [{"configMap": {"name": "a"}}, {"secret": {"name": "a"}}, {"downwardAPI": {"items": []}}, {"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}],
    "NFSVolumeSource.path": "/data", "ISCSIVolumeSource.initiatorName": "iqn.2026-05.com.example:b", "FlockerVolumeSource.datasetUUID": None,
    "AzureDiskVolumeSource.diskURI": "/subscriptions/a/resourcegroups/b/providers/microsoft.compute/disks/c",
    "ObjectMeta.finalizers": ["example.com/a"],
    "PersistentVolumeClaimTemplate.metadata": {"labels": {"app": "web"}}, "EphemeralContainer.volumeMounts": [],
    "PodSpec.resources": {"requests": {"cpu": "4", "memory": "4Gi"}, "limits": {"cpu": "8", "memory": "8Gi"}},
    "PodFailurePolicyOnExitCodesRequirement.containerName": "main", "PodFailurePolicyOnPodConditionsPattern.status": "True",
    "DeploymentSpec.progressDeadlineSeconds": 600, "JobSpec.managedBy": "example.com/a", "JobSpec.selector": None,
    "NodeAllocatableResourceClaimStatus.resources": {"cpu": "1"}, "JobSpec.manualSelector": False,
    "ClusterTrustBundleProjection.signerName": None, "FileKeySelector": {"volumeName": "v-emptydir", "path": "a", "key": "A"},
}  # fmt: skip


class Field(NamedTuple):
    """A field of a type, and the type of its value in the notation of the field tables."""

    name: str
    type: str


@cache
def field_table() -> Mapping[str, tuple[Field, ...]]:
    """The fields of each type of both tables."""
    text = "\n".join([*(path.read_text("utf-8") for path in sorted(_TABLES.glob("*.txt"))), _MORE_TYPES])
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    table = dict[str, tuple[Field, ...]]()
    for line in re.split(r"\n(?=\S)", "\n".join(lines)):
        name, _, members = line.partition(":")
        words = [word.split() for word in members.split(",")]
        table[name] = tuple(
            Field(parts[0], parts[1].rstrip("!")) if len(parts) == 2 else Field(parts[0], "")
            for parts in words
            if parts and parts[0] != "..."
        )
    return {name: tuple(_with_included(fields, table)) for name, fields in table.items()}


def _with_included(fields: tuple[Field, ...], table: Mapping[str, tuple[Field, ...]]) -> Iterator[Field]:
    for field in fields:
        if field.name.startswith("+"):
            yield from table[field.name[1:]]
        else:
            yield field


def full_value(type_name: str, field: str = "") -> Any:
    """A value of the type with every field set; of alternatives the first one, of lists an item for each."""
    if type_name[0] == "[":
        item = type_name[1:-1]
        return list(_items(item, field))
    if type_name[0] == "{":
        return {"a": full_value(type_name[1:-1])}
    if type_name in _SCALARS:
        return _SCALARS[type_name]
    if type_name in _VALUES:
        return _VALUES[type_name]
    common = ALTERNATIVES.get(type_name)
    fields = field_table()[type_name]
    if common is not None:
        first = next(member for member in fields if member.name not in common)
        fields = tuple(member for member in fields if member.name in common or member == first)
    return _members(type_name, fields)


def _items(type_name: str, field: str) -> Iterator[Any]:
    common = ALTERNATIVES.get(type_name)
    if common is None:
        item = full_value(type_name)
        if field in _CONTAINER_NAMES and type_name in ("Container", "EphemeralContainer"):
            item = _container(item, field)
        yield item
        return
    fields = field_table()[type_name]
    for number, member in enumerate(fields):
        if member.name not in common:
            kept = tuple(other for other in fields if other.name in common or other == member)
            item = _members(type_name, kept)
            if "name" in common:
                item["name"] = {"Volume": f"v-{member.name.lower()}", "EnvVar": f"A{number}"}.get(
                    type_name, f"a{number}"
                )
            yield item


def _members(type_name: str, fields: tuple[Field, ...]) -> dict[str, Any]:
    members = dict[str, Any]()
    for field in fields:
        missing = object()
        value = _VALUES.get(f"{type_name}.{field.name}", missing)
        if value is missing:
            value = _VALUES.get(field.name, missing)
        if value is missing:
            value = full_value(field.type, field.name)
        if type_name == "PodTemplateSpec" and field.name == "spec":
            value = {key: item for key, item in value.items() if key not in _NOT_IN_TEMPLATES}
        if value is not None:
            members[field.name] = value
    return members


def _container(item: dict[str, Any], field: str) -> dict[str, Any]:
    item = {**item, "name": _CONTAINER_NAMES[field]}
    if field == "ephemeralContainers":
        refused = ("resources", "ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy",
                   "restartPolicy", "restartPolicyRules")  # fmt: skip
        return {key: value for key, value in item.items() if key not in refused}
    ports = [{**port, "name": f"p-{item['name']}", "hostPort": 8080 if field == "containers" else 8081, "containerPort": 8080 if field == "containers" else 8081} for port in item["ports"]]  # fmt: skip
    return {**item, "ports": ports}


_API_VERSIONS = {
    "Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1", "Job": "batch/v1",
    "CronJob": "batch/v1", "RuntimeClass": "node.k8s.io/v1", "PriorityClass": "scheduling.k8s.io/v1",
    "DeviceResourceClaim": "resource.k8s.io/v1", "ResourceClaimTemplate": "resource.k8s.io/v1", "DeviceClass": "resource.k8s.io/v1",
    "ResourceSlice": "resource.k8s.io/v1", "DeviceTaintRule": "resource.k8s.io/v1beta2", "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "DeviceResourceClaimV1beta1": "resource.k8s.io/v1beta1", "ResourceClaimTemplateV1beta1": "resource.k8s.io/v1beta1",
    "ResourceSliceV1beta1": "resource.k8s.io/v1beta1",
}  # fmt: skip
_CLUSTER_WIDE = (
    *("RuntimeClass", "PriorityClass", "Namespace", "CustomResourceDefinition"),
    *("DeviceClass", "ResourceSlice", "DeviceTaintRule"),
)
_STATUS = {
    "Deployment": {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 1, "conditions": []},
    "Job": {"active": 1, "succeeded": 0, "failed": 0, "startTime": _TIME, "uncountedTerminatedPods": {}},
    "PersistentVolumeClaim": {"phase": "Bound", "capacity": {"storage": "1Gi"}},
    "Service": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
}  # fmt: skip
KINDS = tuple(
    name
    for name, fields in field_table().items()
    if Field("metadata", "ObjectMeta") in fields and Field("kind", "str") in fields
    and name not in ("AnyObject", "NodeProfile", "Scenario", "NodeUsage", "UsageForecast", "Node", "PodDisruptionBudget")
)  # fmt: skip
"""Kinds of objects of Kubernetes in the field tables."""


@cache
def _full(kind: str) -> dict[str, Any]:
    value: dict[str, Any] = full_value(kind)
    value["apiVersion"] = _API_VERSIONS.get(kind, "v1")
    value["kind"] = name = kind.removeprefix("Device" if "ResourceClaim" in kind else "").removesuffix(
        "V1beta1"
    )
    value["metadata"] = {**full_value("ObjectMeta"), "name": "web" if kind != "Namespace" else "shop"}
    if name in _CLUSTER_WIDE:
        del value["metadata"]["namespace"]
    if "status" in value and kind in _STATUS:
        value["status"] = _STATUS[kind]
    return value


def full_object(kind: str) -> dict[str, Any]:
    """An object of the kind with every field set."""
    if kind == "Pod":
        return live_pod()
    if kind == "Node":
        return node()
    if kind == "PodDisruptionBudget":
        return disruption_budget()
    value = dict(_full(kind))
    if kind == "Job":
        value["spec"] = _never_restarted(value["spec"])
    if kind == "CronJob":
        template = value["spec"]["jobTemplate"]
        value["spec"] = {
            **value["spec"],
            "jobTemplate": {**template, "spec": _never_restarted(template["spec"])},
        }
    return value


def _never_restarted(spec: dict[str, Any]) -> dict[str, Any]:
    template = spec["template"]
    return {**spec, "template": {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}}


def live_pod() -> dict[str, Any]:
    """A running pod of a node, with a debug container, that is being deleted."""
    pod = dict(_full("Pod"))
    status = dict(pod["status"])
    for part, names in (("containerStatuses", ["main"]), ("initContainerStatuses", ["init"]), ("ephemeralContainerStatuses", ["debugger"])):  # fmt: skip
        status[part] = [_container_status(item, name) for item, name in zip(status[part], names, strict=True)]
    pod["status"] = status
    return pod


def _container_status(status: dict[str, Any], name: str) -> dict[str, Any]:
    ended = full_value("ContainerStateTerminated") | {"reason": "OOMKilled", "exitCode": 137, "signal": 9}
    return {
        **status,
        "name": name,
        "state": {"running": {"startedAt": _TIME}},
        "lastState": {"terminated": ended},
    }


def node() -> dict[str, Any]:
    """A Node with all that a kubelet reports."""
    amounts = {
        "cpu": "16",
        "memory": "64Gi",
        "ephemeral-storage": "100Gi",
        "pods": "110",
        "hugepages-2Mi": "0",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {**full_value("ObjectMeta"), "name": "worker-3", "labels": {"kubernetes.io/hostname": "worker-3"}},
        "spec": {
            "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24"], "providerID": "a://b", "unschedulable": True,
            "taints": [{"key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": _TIME}],
        },
        "status": {
            "capacity": {**amounts, "nvidia.com/gpu": "2"}, "allocatable": {**amounts, "nvidia.com/gpu": "2"},
            "conditions": [full_value("PodCondition") | {"type": "Ready", "status": "True", "lastHeartbeatTime": _TIME}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"kubeletVersion": "v1.36.0", "operatingSystem": "linux", "architecture": "amd64", "swap": {"capacity": 0}},
            "images": [{"names": ["a"], "sizeBytes": 1}], "volumesInUse": ["a"], "volumesAttached": [{"name": "a", "devicePath": ""}],
            "runtimeHandlers": [{"name": "", "features": {}}], "features": {"supplementalGroupsPolicy": True},
            "config": {}, "phase": "", "declaredFeatures": ["A"],
        },
    }  # fmt: skip


def disruption_budget() -> dict[str, Any]:
    """A PodDisruptionBudget."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {**full_value("ObjectMeta"), "name": "web"},
        "spec": {"minAvailable": 1, "selector": _SELECTOR, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
        "status": {
            "currentHealthy": 1, "desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1, "observedGeneration": 1,
            "disruptedPods": {"a": _TIME}, "conditions": [],
        },
    }  # fmt: skip
