"""ResourceSlices of hollow nodes, and the claims of their pods."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_clock import FakeClock
from tests.support.memory_cluster import MemoryCluster
from tests.unit.agent.hollow.test_hollow_nodes import HollowRun, again, in_event_loop

from nodewright.agent.devices.protocols import PluginRegistration
from nodewright.agent.hollow.hollow_devices import SLICES, HollowDrivers, read_slices
from nodewright.model.errors import HostError, InputError

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
DRIVER = "gpu.example.com"


@pytest.fixture
def hollow(tmp_path: Path) -> HollowRun:
    clock = FakeClock()
    return HollowRun(tmp_path, clock, MemoryCluster(clock))


def slice_file(tmp_path: Path, *nodes: str | None) -> Path:
    """A file with a slice of each of the nodes; the second is of another pool."""
    items = [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"slice-{number}"},
            "spec": {
                "driver": DRIVER,
                "pool": {
                    "name": f"pool-{number}" if number else node or "shared",
                    "generation": 1,
                    "resourceSliceCount": 1,
                },
                **({"nodeName": node} if node else {"allNodes": True}),
                "devices": [{"name": "gpu-0", "attributes": {"index": {"int": 0}}}],
            },
        }
        for number, node in enumerate(nodes)
    ]
    path = tmp_path / "slices.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), "utf-8")
    return path


def a_claim(pod: str = "") -> dict[str, Any]:
    """A claim; allocated and reserved for a pod, if there is one."""
    result = {"driver": DRIVER, "pool": "hollow-0", "device": "gpu-0", "request": "gpu"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}],
    }
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    return {
        "metadata": {"name": "gpu", "namespace": "default", "uid": "uid-claim"},
        "spec": {"devices": {"requests": [request]}},
        "status": status if pod else {},
    }


@in_event_loop
async def test_each_node_publishes_the_slices_as_its_own(hollow: HollowRun, tmp_path: Path) -> None:
    hollow = again(hollow, tmp_path, resource_slices=slice_file(tmp_path, "worker", "worker"))
    async with hollow.running():
        await hollow.after(5)
        stored = hollow.cluster.objects[f"{SLICES}/hollow-1-{DRIVER}-0"]
        assert stored["metadata"]["ownerReferences"][0]["uid"] == hollow.node("hollow-1")["metadata"]["uid"]
        assert stored["spec"] == {
            "driver": DRIVER,
            "pool": {"name": "hollow-1", "generation": 1, "resourceSliceCount": 1},
            "nodeName": "hollow-1",
            "devices": [{"name": "gpu-0", "attributes": {"index": {"int": 0}}}],
        }
        other = hollow.cluster.objects[f"{SLICES}/hollow-1-{DRIVER}-1"]
        assert other["spec"]["pool"]["name"] == "hollow-1/pool-1"
    written = len(hollow.cluster.requests)
    async with hollow.running():
        await hollow.after(5)
    assert not [path for _, path in hollow.cluster.requests[written:] if path.startswith(SLICES)]


@pytest.mark.parametrize("keeps_state", [False, True])
@in_event_loop
async def test_a_pod_starts_once_its_claim_is_allocated_and_reserved(
    hollow: HollowRun, tmp_path: Path, *, keeps_state: bool
) -> None:
    root = tmp_path / "root" if keeps_state else None
    hollow = again(hollow, tmp_path, resource_slices=slice_file(tmp_path, "worker"), root_dir=root)
    claims: dict[str, Any] = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    hollow.cluster.put(f"{CLAIMS}/gpu", a_claim())
    async with hollow.running():
        hollow.create_pod("web", {"claims": [{"name": "gpu"}]}, **claims)
        await hollow.after(5)
        assert hollow.status("web")["phase"] == "Pending"
        (text,) = set(hollow.events("FailedPrepareDynamicResources"))
        assert "is not allowed to use ResourceClaim gpu" in text
        hollow.cluster.put(f"{CLAIMS}/gpu", a_claim("web"))
        await hollow.after(120)
        assert hollow.status("web")["phase"] == "Running"
        kubelet = hollow.nodes["hollow-0"].kubelet
        assert kubelet is not None
        manager = kubelet.loop.effect_runner.claim_manager
        assert manager is not None
        (claim,) = manager._known().claims.values()
        assert (claim.name, claim.pods, claim.is_prepared) == ("gpu", frozenset({"uid-web"}), True)
        assert not keeps_state or (tmp_path / "root/hollow-0/dra_manager_state").exists()
        hollow.cluster.delete_pod("web")
        await hollow.after(10)
        assert not manager._known().claims


@in_event_loop
async def test_the_claim_that_was_made_for_a_pod_is_prepared(hollow: HollowRun, tmp_path: Path) -> None:
    hollow = again(hollow, tmp_path, resource_slices=slice_file(tmp_path, "worker"))
    claim = a_claim("web")
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "uid-web", "controller": True}
    claim["metadata"]["ownerReferences"] = [owner]
    hollow.cluster.put(f"{CLAIMS}/gpu", claim)
    async with hollow.running():
        claims = [{"name": "gpu", "resourceClaimTemplateName": "gpus"}]
        made = [{"name": "gpu", "resourceClaimName": "gpu"}]
        hollow.create_pod(
            "web",
            {"claims": [{"name": "gpu"}]},
            status={"resourceClaimStatuses": made},
            resourceClaims=claims,
        )
        await hollow.after(5)
        assert hollow.status("web")["phase"] == "Running"
        assert hollow.status("web")["resourceClaimStatuses"] == made


@pytest.mark.parametrize(
    ("nodes", "rule"), [((), "must have ResourceSlices"), (("a", "b"), "same node"), ((None,), "same node")]
)
def test_slices_of_several_nodes_are_refused(
    tmp_path: Path, nodes: tuple[str | None, ...], rule: str
) -> None:
    with pytest.raises(InputError, match=rule):
        read_slices(slice_file(tmp_path, *nodes))


def test_drivers_have_no_sockets(tmp_path: Path) -> None:
    drivers = HollowDrivers(read_slices(slice_file(tmp_path, "worker")), FakeClock())
    assert drivers.drivers == {DRIVER}
    registration = PluginRegistration(DRIVER, ("v1.DRAPlugin",), tmp_path, "socket")
    with pytest.raises(HostError, match="no sockets"):
        asyncio.run(drivers.register(registration))
