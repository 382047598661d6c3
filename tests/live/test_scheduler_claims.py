"""Resource claims beside a real kube-scheduler: the same nodes, the same devices, the same messages."""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.odd_clusters import OddClusters
from tests.support.real_api_server import needs_real
from tests.support.real_scheduler import PODS, RealScheduler, real_scheduler, running_component

from nodewright.cli.app import run
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.manifests import load_workloads
from nodewright.documents.output.json_yaml import as_json
from nodewright.documents.output.terminal import NO, YES
from nodewright.documents.profiles.node_profiles import with_release
from nodewright.engine.core.claims.claim_scheduling import ClaimCluster
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.predict.node import Node
from nodewright.predict.pod_claims import ClaimsOnNode, claims_on
from nodewright.testing.nodes import a_profile

pytestmark = [pytest.mark.live, needs_real("kube-scheduler", "kube-controller-manager")]
API = "/apis/resource.k8s.io/v1"
CLAIMS = f"{API}/namespaces/default/resourceclaims"
PLURALS = {"ResourceSlice": "resourceslices", "DeviceClass": "deviceclasses"}
NODES = 3


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealScheduler]:
    with real_scheduler(Path(tmp_path_factory.mktemp("scheduler"))) as running:
        yield running


class DeviceClusters:
    """Random devices, classes and claims."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def slices(self) -> Iterator[dict[str, Any]]:
        for number in range(NODES):
            for driver in ("gpu.example.com", "nic.example.com"):
                devices = [self._device(f"{driver[:3]}-{each}") for each in range(self.draw.randint(0, 4))]
                count = self.draw.choice((1, 1, 1, 1, 2))
                pool = {"name": f"n{number}", "generation": 1, "resourceSliceCount": count}
                spec = {"driver": driver, "nodeName": f"n{number}", "pool": pool, "devices": devices}
                yield {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"n{number}-{driver}"},
                    "spec": spec,
                }

    def _device(self, name: str) -> dict[str, Any]:
        draw = self.draw
        attributes: dict[str, Any] = {
            "model": {"string": draw.choice(("a", "b"))},
            "resource.kubernetes.io/pcieRoot": {"string": draw.choice(("pci0000:01", "pci0000:02"))},
        }
        if draw.random() < 0.2:
            del attributes["model"]
        taints = [{"key": "ill", "effect": "NoSchedule"}] if draw.random() < 0.15 else []
        capacity = {"memory": {"value": draw.choice(("40Gi", "80Gi"))}}
        return {"name": name, "attributes": attributes, "capacity": capacity, "taints": taints}

    def classes(self) -> Iterator[dict[str, Any]]:
        for name in ("gpu", "nic"):
            expression = f'device.driver == "{name}.example.com"'
            yield {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": expression}}]},
            }

    def claim(self, name: str) -> dict[str, Any]:
        draw = self.draw
        requests: list[dict[str, Any]] = []
        for request in draw.sample(("gpu", "nic"), draw.choice((1, 1, 2))):
            exactly: dict[str, Any] = {"deviceClassName": "none" if draw.random() < 0.1 else request}
            kind = draw.random()
            if kind < 0.2:
                exactly["allocationMode"] = "All"
            elif kind < 0.5:
                exactly["count"] = 2
            if draw.random() < 0.4:
                domain = f"{request}.example.com"
                expressions = (
                    f'device.attributes["{domain}"].?model.orValue("") == "a"',
                    f'device.capacity["{domain}"].memory.isGreaterThan(quantity("40Gi"))',
                    f'device.attributes["{domain}"].model == "b"',
                )
                exactly["selectors"] = [{"cel": {"expression": draw.choice(expressions)}}]
            if draw.random() < 0.2:
                exactly["tolerations"] = [{"operator": "Exists"}]
            if draw.random() < 0.15:
                alternative = {"name": "first", **exactly}
                other = {"name": "second", "deviceClassName": request}
                requests.append({"name": request, "firstAvailable": [alternative, other]})
            else:
                requests.append({"name": request, "exactly": exactly})
        devices: dict[str, Any] = {"requests": requests}
        if draw.random() < 0.4:
            devices["constraints"] = [{"matchAttribute": "resource.kubernetes.io/pcieRoot"}]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": devices},
        }


def stored(scheduler: RealScheduler) -> ClaimCluster:
    """What the API server has of claims."""
    items = [
        {"apiVersion": "resource.k8s.io/v1", "kind": kind, **item}
        for kind, path in (
            ("ResourceSlice", f"{API}/resourceslices"),
            ("DeviceClass", f"{API}/deviceclasses"),
            ("ResourceClaim", CLAIMS),
        )
        for item in scheduler.server.request("GET", path).body["items"]
    ]
    content = as_json({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    claims = load_workloads([InputFile("cluster", content)]).claims
    assert claims is not None
    return replace(claims, is_whole=True)


def answers(cluster: ClaimCluster, pod: Pod) -> dict[str, ClaimsOnNode]:
    profiles = [
        replace(with_release(a_profile(), "1.36"), metadata=ObjectMeta(name=f"n{number}"))
        for number in range(NODES)
    ]
    nodes = {profile.metadata.name: Node.from_profile(profile) for profile in profiles}
    return {name: claims_on(node.config, cluster, pod) for name, node in nodes.items()}


def set_cluster(scheduler: RealScheduler, clusters: DeviceClusters, seed: int) -> None:
    server = scheduler.server
    for path in (CLAIMS, f"{API}/resourceslices", f"{API}/deviceclasses"):
        server.request("DELETE", path)
    for item in server.request("GET", CLAIMS).body["items"]:  # No controller removes their finalizers here.
        server.request("PATCH", f"{CLAIMS}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
    nodes = OddClusters(seed).nodes()
    plain = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    scheduler.set_nodes(
        [
            {
                **nodes[0],
                "metadata": {"name": f"n{number}", "labels": {"kubernetes.io/hostname": f"n{number}"}},
                "spec": {},
                "status": {"capacity": plain, "allocatable": plain},
            }
            for number in range(NODES)
        ]
    )
    for item in (*clusters.slices(), *clusters.classes()):
        answer = server.create(f"{API}/{PLURALS[item['kind']]}", item)
        assert answer.code == 201, answer.message
    time.sleep(0.5)  # the scheduler reads slices and classes from caches


def test_claims_get_the_devices_that_the_scheduler_allocates(scheduler: RealScheduler) -> None:
    counts = [placed_alike(seed, scheduler) for seed in range(4)]
    assert sum(counts) > len(counts)


def placed_alike(seed: int, scheduler: RealScheduler) -> int:
    """The number of pods that got a node, each with the devices that it gets here."""
    clusters = DeviceClusters(seed)
    set_cluster(scheduler, clusters, seed)
    placed = 0
    for number in range(8):
        claim = clusters.claim(f"c{number}")
        created = scheduler.server.create(CLAIMS, claim)
        assert created.code == 201, created.message
        name = f"p{number}"
        spec: dict[str, Any] = {
            "containers": [{"name": "main", "image": "i", "resources": {"claims": [{"name": "devices"}]}}],
            "resourceClaims": [{"name": "devices", "resourceClaimName": f"c{number}"}],
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        }
        before = stored(scheduler)
        expected = answers(before, load_workloads([InputFile("pod", as_json(pod).encode())]).workloads[0].pod)
        real_node, message = scheduler.add_pod(pod)
        takers = {node: answer for node, answer in expected.items() if answer.obstacle is None}
        if any(answer.obstacle and answer.obstacle.is_fatal for answer in expected.values()):
            takers = {}
        if real_node:
            placed += 1
            results = scheduler.server.request("GET", f"{CLAIMS}/c{number}").body["status"]["allocation"][
                "devices"
            ]
            allocated = [(item["request"], item["driver"], item["device"]) for item in results["results"]]
            ours = [(each.request, each.driver, each.device) for each in takers[real_node].devices]
            assert ours == allocated
        else:
            assert not takers, (claim, message)
            texts = {answer.obstacle.message for answer in expected.values() if answer.obstacle}
            assert any(text in message for text in texts), (texts, message)
            scheduler.remove_pod(name)
    return placed


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one-gpu", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}},
}


def test_claims_of_templates_are_explained_from_the_cluster(
    scheduler: RealScheduler,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clusters = DeviceClusters(0)
    set_cluster(scheduler, clusters, 0)
    server = scheduler.server
    monkeypatch.setenv("KUBECONFIG", str(server.write_kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.setenv("COLUMNS", "200")
    slices = server.request("GET", f"{API}/resourceslices").body["items"]
    for item in slices[1:]:
        server.request("DELETE", f"{API}/resourceslices/{item['metadata']['name']}")
    spec = {**slices[0]["spec"], "driver": "gpu.example.com", "devices": [{"name": "gpu-0"}]}
    spec["pool"] = {"name": "only", "generation": 1, "resourceSliceCount": 1}
    item = {**slices[0], "metadata": {"name": "only"}, "spec": spec}
    server.request("DELETE", f"{API}/resourceslices/{slices[0]['metadata']['name']}")
    assert server.create(f"{API}/resourceslices", item).code == 201
    assert server.create(f"{API}/namespaces/default/resourceclaimtemplates", TEMPLATE).code == 201
    files = []
    for name in ("first", "second"):
        container = {"name": "main", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}
        entries = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
        meta = {"name": name, "namespace": "default"}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
        files.append({**pod, "spec": {"containers": [container], "resourceClaims": entries}})
    path = tmp_path / "pod.json"
    path.write_text(as_json(files[0]))
    assert run(["admit", "-f", str(path), "--node", "nodes", "-o", "name"]) == YES
    assert capsys.readouterr().out == f"node/{spec['nodeName']}\n"
    with running_component(
        server, tmp_path, "kube-controller-manager", "--controllers=resourceclaim-controller"
    ):
        assert server.create(PODS, files[0]).code == 201
        assert server.create(PODS, files[1]).code == 201
        allocated = settled(scheduler)
    assert run(["explain", f"resourceclaim/{allocated}", "-n", "default"]) == YES
    printed = capsys.readouterr().out
    assert "allocated: gpu.example.com/only/gpu-0 for request gpu" in printed
    owner = "first" if allocated.startswith("first") else "second"
    assert f"reserved for pod/{owner}" in printed
    waiting = "second" if owner == "first" else "first"
    assert run(["explain", f"pod/{waiting}", "-n", "default"]) == NO
    printed = " ".join(capsys.readouterr().out.split())
    assert f"held by claim default/{allocated} of pod default/{owner}" in printed


def settled(scheduler: RealScheduler) -> str:
    """The claim that is allocated, once both pods have been tried."""
    deadline = time.monotonic() + 60
    conditions: list[str] = []
    while time.monotonic() < deadline:
        pods = scheduler.server.request("GET", PODS).body["items"]
        conditions = [
            condition["message"]
            for pod in pods
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]
        claims = scheduler.server.request("GET", CLAIMS).body["items"]
        allocated = [each["metadata"]["name"] for each in claims if each.get("status", {}).get("allocation")]
        if allocated and any("cannot allocate all claims" in text for text in conditions):
            return str(allocated[0])
        time.sleep(0.1)
    raise TimeoutError(conditions)
