"""PersistentVolumes behind claims: those of this node, and why others cannot be used."""

import asyncio
from typing import Any

import pytest
from tests.support.fake_clock import FakeClock
from tests.support.memory_cluster import MemoryCluster

from nodewright.agent.member.persistent_volumes import PersistentVolumes, claim_fault, node_volume
from nodewright.agent.rules.value_sources import NodeVolume, UnresolvedReference
from nodewright.testing.objects import a_pod

CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"
VOLUME = "/api/v1/persistentvolumes/pv1"
NODE = ("node1", {"kubernetes.io/hostname": "node1"})
POD = a_pod("web", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}])
ON_NODE1 = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}]}
        ]
    }
}


def a_claim(phase: str = "Bound", **metadata: Any) -> dict[str, Any]:
    meta = {"name": "data", "namespace": "default", "uid": "c1", **metadata}
    return {"metadata": meta, "spec": {"volumeName": "pv1"}, "status": {"phase": phase}}


def a_volume(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "pv1"}, "spec": {"claimRef": {"uid": "c1"}, "capacity": {}, **spec}}


def test_a_bound_claim_is_read_once_and_forgotten_with_the_pod() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(FakeClock())
        volumes = PersistentVolumes(cluster)
        await volumes.read(POD, NODE)
        error = volumes.of_pod(POD)["d"]
        assert isinstance(error, UnresolvedReference)
        assert error.message.startswith(
            "error processing PVC default/data: failed to fetch PVC from API server"
        )
        cluster.put(CLAIM, a_claim("Pending"))
        await volumes.read(POD, NODE)
        assert volumes.of_pod(POD)["d"] == UnresolvedReference(
            "error processing PVC default/data: PVC is not bound", may_exist=True
        )
        cluster.put(CLAIM, a_claim())
        cluster.put(VOLUME, a_volume(hostPath={"path": "/srv/data"}))
        for _ in range(2):
            await volumes.read(POD, NODE)
            assert volumes.of_pod(POD)["d"] == NodeVolume(path="/srv/data", is_read_only=True)
        assert cluster.reads.count(CLAIM) == 3
        volumes.forget(POD.uid)
        assert volumes.of_pod(POD) == {}

    asyncio.run(scenario())


def test_an_ephemeral_claim_must_be_the_pods_own() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(FakeClock())
        volumes = PersistentVolumes(cluster)
        pod = a_pod("web", volumes=[{"name": "d", "ephemeral": {"volumeClaimTemplate": {}}}])
        path = CLAIM.replace("/data", "/web-d")
        cluster.put(path, a_claim(name="web-d"))
        cluster.put(VOLUME, a_volume(local={"path": "/srv/data"}))
        await volumes.read(pod, NODE)
        error = volumes.of_pod(pod)["d"]
        assert isinstance(error, UnresolvedReference)
        assert "PVC default/web-d was not created for pod default/web (pod is not owner)" in error.message
        owners = [{"kind": "Pod", "name": "web", "uid": pod.uid, "controller": True}]
        cluster.put(path, a_claim(name="web-d", ownerReferences=owners))
        await volumes.read(pod, NODE)
        expected = NodeVolume(path="/srv/data", path_type="Directory", has_group=True)
        assert volumes.of_pod(pod)["d"] == expected

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("claim", "fault"),
    [
        (a_claim(), ""),
        (a_claim("Lost"), "PVC is not bound"),
        (a_claim(deletionTimestamp="2027-01-15T08:00:00Z"), "PVC is being deleted"),
        (a_claim(deletionTimestamp="2027-01-15T08:00:00Z", finalizers=["kubernetes.io/pvc-protection"]), ""),
        ({**a_claim(), "spec": {}}, "PVC has empty pvc.Spec.VolumeName"),
    ],
)
def test_a_claim_can_be_used_once_it_is_bound(claim: dict[str, Any], fault: str) -> None:
    assert claim_fault(POD, POD.spec.volumes[0], claim) == fault


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        ({"claimRef": None}, "nil pv.Spec.ClaimRef"),
        ({"claimRef": {"uid": "c2"}}, "pv.Spec.ClaimRef.UID c2 does not point to claim.UID c1"),
        ({"csi": {"driver": "ebs.example"}}, "type csi (ebs.example): only hostPath and local are supported"),
        ({"nfs": {"server": "s"}, "accessModes": []}, "type nfs: only hostPath and local are supported"),
        ({"local": {"path": "/dev/sdb"}, "volumeMode": "Block"}, "volumeMode Block, which is not supported"),
    ],
)
def test_volumes_that_this_node_cannot_mount_are_named(spec: dict[str, Any], fault: str) -> None:
    answer = node_volume(a_volume(**spec), "c1", NODE)
    assert isinstance(answer, UnresolvedReference)
    assert fault in answer.message


def test_a_volume_of_another_node_is_not_mounted_here() -> None:
    document = a_volume(local={"path": "/srv"}, nodeAffinity=ON_NODE1)
    assert node_volume(document, "c1", NODE) == NodeVolume(path="/srv", path_type="Directory", has_group=True)
    answer = node_volume(document, "c1", ("node2", {"kubernetes.io/hostname": "node2"}))
    assert isinstance(answer, UnresolvedReference)
    assert answer.message == "no matching NodeSelectorTerms: PV pv1 cannot be used on node node2"
