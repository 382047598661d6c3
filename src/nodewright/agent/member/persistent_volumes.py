"""The PersistentVolumes behind the claims of pods: directories of this node."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.agent.rules.value_sources import NodeVolume, UnresolvedReference
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.documents.formats.decode import decode
from nodewright.engine.core.predicates.node_affinity import affinity_mismatch
from nodewright.model.kubernetes.objects import Affinity, NodeAffinity, NodeSelector, Pod, PodSpec

_PROTECTION = "kubernetes.io/pvc-protection"
_OTHER_FIELDS = frozenset(
    {
        *("accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity"),
        *("persistentVolumeReclaimPolicy", "storageClassName", "volumeAttributesClassName", "volumeMode"),
    }
)
"""The fields of a PersistentVolume's spec besides its source."""


class PersistentVolumes:
    """The volumes of registered pods, read when a pod is prepared until they are bound.

    ``node`` are the name and the labels of the node.

    Follows: v1.36, kubelet/volumemanager/populator/desired_state_of_world_populator.go, createVolumeSpec.
    """

    def __init__(self, api: ClusterAPI) -> None:
        self._api = api
        self._volumes: dict[str, dict[str, NodeVolume | UnresolvedReference]] = {}

    async def read(self, pod: Pod, node: tuple[str, Mapping[str, str]]) -> None:
        """Reads the claims of a pod that are not resolved yet, and their volumes."""
        volumes = self._volumes.setdefault(pod.uid, {})
        for name, volume, claim in claimed_volumes(pod):
            if not isinstance(volumes.get(name), NodeVolume):
                volumes[name] = await self._volume_of_claim(pod, volume, claim, node)

    def of_pod(self, pod: Pod) -> Mapping[str, NodeVolume | UnresolvedReference]:
        """The pod's volumes that come from claims, by the names that the pod gives them."""
        return self._volumes.get(pod.uid, {})

    def forget(self, uid: str) -> None:
        """Forgets the pod, which has ended."""
        self._volumes.pop(uid, None)

    async def _volume_of_claim(
        self, pod: Pod, volume: Mapping[str, Any], claim: str, node: tuple[str, Mapping[str, str]]
    ) -> NodeVolume | UnresolvedReference:
        namespace = pod.metadata.namespace
        what = "failed to fetch PVC from API server"
        try:
            path = api_path("/api/v1", "namespaces", namespace, "persistentvolumeclaims", claim)
            what = f"{what}: {path}"
            document = await self._api.read(path, {})
            fault = claim_fault(pod, volume, document)
            if fault:
                return _unresolved(namespace, claim, fault)
            name = str(document["spec"]["volumeName"])
            what = f"failed to fetch PV {name} from API server"
            persistent = await self._api.read(api_path("/api/v1", "persistentvolumes", name), {})
        except ApiError as error:
            return _unresolved(namespace, claim, f"{what}: {error}")
        uid = str(document["metadata"].get("uid") or "")
        resolved = node_volume(persistent, uid, node)
        if isinstance(resolved, UnresolvedReference):
            return _unresolved(namespace, claim, resolved.message)
        is_read_only = bool((volume.get("persistentVolumeClaim") or {}).get("readOnly"))
        return msgspec.structs.replace(resolved, is_read_only=is_read_only)


def claimed_volumes(pod: Pod) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """The volumes of a pod that come from claims: name, volume, and the name of the claim."""
    for volume in pod.spec.volumes:
        name = str(volume.get("name") or "")
        if volume.get("persistentVolumeClaim") is not None:
            yield name, volume, str(volume["persistentVolumeClaim"].get("claimName") or "")
        elif volume.get("ephemeral") is not None:
            yield name, volume, f"{pod.metadata.name}-{name}"


def claim_fault(pod: Pod, volume: Mapping[str, Any], claim: Mapping[str, Any]) -> str:
    """Why a claim cannot be used yet; empty: it can.

    Follows: v1.36, desired_state_of_world_populator.go, getPVCExtractPV; component-helpers/storage/ephemeral,
        VolumeIsForPod.
    """
    metadata = claim["metadata"]
    if metadata.get("deletionTimestamp") and _PROTECTION not in (metadata.get("finalizers") or ()):
        return "PVC is being deleted"
    if (claim.get("status") or {}).get("phase") != "Bound":
        return "PVC is not bound"
    if not (claim.get("spec") or {}).get("volumeName"):
        return "PVC has empty pvc.Spec.VolumeName"
    references = metadata.get("ownerReferences") or ()
    is_owned = any(owner.get("controller") and owner.get("uid") == pod.uid for owner in references)
    if volume.get("ephemeral") is not None and not is_owned:
        full_name = f"{metadata.get('namespace')}/{metadata.get('name')}"
        return f"PVC {full_name} was not created for pod {pod.full_name} (pod is not owner)"
    return ""


def node_volume(
    document: Mapping[str, Any], claim_uid: str, node: tuple[str, Mapping[str, str]]
) -> NodeVolume | UnresolvedReference:
    """The directory of a PersistentVolume, or why this node cannot mount it.

    Follows: v1.36, desired_state_of_world_populator.go, getPVSpec; volume/util/util.go, CheckNodeAffinity;
        volume/local/local.go.
    Departs: of the kinds of volumes `hostPath` and directories as `local` are mounted.
    """
    name, spec = document["metadata"]["name"], document.get("spec") or {}
    reference = spec.get("claimRef")
    if reference is None:
        fault = "but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim"
        return UnresolvedReference(f"found PV object {name} {fault}")
    if reference.get("uid") != claim_uid:
        fault = f"but its pv.Spec.ClaimRef.UID {reference.get('uid')} does not point to claim.UID {claim_uid}"
        return UnresolvedReference(f"found PV object {name} {fault}")
    required = (spec.get("nodeAffinity") or {}).get("required")
    if required and _is_elsewhere(required, node):
        return UnresolvedReference(
            f"no matching NodeSelectorTerms: PV {name} cannot be used on node {node[0]}"
        )
    if (spec.get("volumeMode") or "Filesystem") != "Filesystem":
        return UnresolvedReference(f"PV {name} has volumeMode {spec['volumeMode']}, which is not supported")
    if spec.get("hostPath") is not None:
        source = spec["hostPath"]
        return NodeVolume(path=str(source.get("path") or ""), path_type=str(source.get("type") or ""))
    if spec.get("local") is not None:
        return NodeVolume(path=str(spec["local"].get("path") or ""), path_type="Directory", has_group=True)
    kind = next((field for field in sorted(spec) if field not in _OTHER_FIELDS), "nothing")
    driver = f" ({spec['csi'].get('driver')})" if kind == "csi" else ""
    return UnresolvedReference(f"PV {name} is of type {kind}{driver}: only hostPath and local are supported")


def _is_elsewhere(required: Mapping[str, Any], node: tuple[str, Mapping[str, str]]) -> bool:
    selector = decode(required, NodeSelector)
    affinity = NodeAffinity(required_during_scheduling_ignored_during_execution=selector)
    return affinity_mismatch(PodSpec(affinity=Affinity(node_affinity=affinity)), *node) is not None


def _unresolved(namespace: str, claim: str, fault: str) -> UnresolvedReference:
    return UnresolvedReference(f"error processing PVC {namespace}/{claim}: {fault}", may_exist=True)
