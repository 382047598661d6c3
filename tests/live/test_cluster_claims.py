"""Resource claims of pods on an agent that is a Node of a real API server: needs root, cgroups and `KUBEBUILDER_ASSETS`."""

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster_bench import ClusterBench, cluster_bench
from tests.support.fake_dra_driver import DRIVER, FakeDriver
from tests.support.real_api_server import ASSETS

from nodewright.agent.devices import dra_pb2 as api

pytestmark = [
    pytest.mark.live,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="an agent makes cgroups: that takes root"),
    pytest.mark.skipif(not ASSETS, reason="KUBEBUILDER_ASSETS names no kube-apiserver and etcd"),
]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterBench]:
    with cluster_bench(tmp_path_factory.mktemp("cluster")) as bench:
        bench.agent.start()
        bench.wait_until(bench.is_ready)
        yield bench


@contextmanager
def serving(driver: FakeDriver, socket: Path) -> Iterator[None]:
    """The driver's plugin on its socket, in a thread."""
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ending = asyncio.Event()

    async def serve() -> None:
        async with driver.serve(socket):
            ready.set()
            await ending.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(10)
        yield
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join()
        loop.close()


def create_claim(cluster: ClusterBench, name: str) -> None:
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": spec,
    }
    answer = cluster.server.create(CLAIMS, claim)
    assert answer.code == 201, answer.message


def allocate(cluster: ClusterBench, name: str, pod: str) -> None:
    """What a scheduler writes into the claim when it binds the pod."""
    result = {"request": "r", "driver": DRIVER, "pool": "worker", "device": "gpu-0"}
    uid = cluster.pod(pod)["metadata"]["uid"]
    status: dict[str, Any] = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": pod, "uid": uid}],
    }
    answer = cluster.server.request("PATCH", f"{CLAIMS}/{name}/status", {"status": status})
    assert answer.code == 200, answer.message


def create_slice(cluster: ClusterBench) -> None:
    """What the driver publishes of the node."""
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "worker", "pool": pool, "devices": [{"name": "gpu-0"}]}
    answer = cluster.server.create(
        SLICES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "worker-gpu"},
            "spec": spec,
        },
    )
    assert answer.code == 201, answer.message


def health(cluster: ClusterBench, pod: str) -> list[dict[str, Any]]:
    """The devices in the status of the pod's only container."""
    (status,) = cluster.pod(pod)["status"]["containerStatuses"]
    devices: list[dict[str, Any]] = status.get("allocatedResourcesStatus", [])
    return devices


def test_a_pod_waits_for_its_claim_and_gives_it_back(cluster: ClusterBench) -> None:
    driver = FakeDriver(has_cdi=False)
    registry = cluster.agent.folder / "root" / "plugins_registry"
    cluster.wait_until(registry.is_dir)
    create_claim(cluster, "gpu")
    with serving(driver, registry / "gpu.sock"):
        cluster.wait_until(lambda: "registered" in driver.status)
        source = [{"name": "g", "resourceClaimName": "gpu"}]
        command, resources = ["sh", "-c", FOREVER], {"claims": [{"name": "g"}]}
        container = {"name": "main", "image": "none", "command": command, "resources": resources}
        cluster.create_pod("train", FOREVER, resourceClaims=source, containers=[container])
        events = "/api/v1/namespaces/default/events"

        def messages() -> list[str]:
            items = cluster.server.request("GET", events).body["items"]
            return [each["message"] for each in items if each["involvedObject"]["name"] == "train"]

        cluster.wait_until(
            lambda: any("is not allowed to use ResourceClaim gpu" in text for text in messages())
        )
        assert cluster.phase("train") == "Pending"
        allocate(cluster, "gpu", "train")
        cluster.wait_until(lambda: cluster.phase("train") == "Running")
        assert driver.calls == ["prepare gpu"]
        device = api.DeviceIdentifier(pool_name="pool", device_name="gpu-0")
        report = [api.DeviceHealth(device=device, health=api.UNHEALTHY, message="too hot")]
        driver.loop.call_soon_threadsafe(driver.health.put_nowait, report)
        shown = {"resourceID": f"{DRIVER}/pool/gpu-0", "health": "Unhealthy", "message": "too hot"}
        expected = [{"name": "claim:g", "resources": [shown]}]
        cluster.wait_until(lambda: health(cluster, "train") == expected)
        create_slice(cluster)
        cluster.agent.kill()
        cluster.agent.start()
        cluster.wait_until(lambda: not cluster.server.request("GET", SLICES).body["items"])
        cluster.wait_until(cluster.agent.is_ready)
        cluster.wait_until(lambda: driver.status.count("registered") == 2)
        cluster.delete_pod("train")
        cluster.wait_until(lambda: not cluster.pod("train"))
        assert driver.calls == ["prepare gpu", "unprepare gpu"]
