"""All nodes of a cluster in one reading: in pages, without what no decision depends on, as each node alone reads."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from random import Random
from typing import Any

import msgspec
import pytest
from tests.support.large_cluster import node_document, pod_document

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.list_watch import ObjectPage, decode_page
from nodewright.cluster.objects.all_nodes import AllNodes, ListedNodes, read_all_nodes
from nodewright.cluster.objects.node_sources import NodeReading, cluster_node
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodePart
from nodewright.predict.node import AlikeNodes, Node

CONFIGZ = {"kubeletconfig": {"kubeReserved": {"cpu": "110m", "memory": "1Gi"}, "maxPods": 110}}


class FakeReader:
    """Pages of objects, and the configuration of each kubelet."""

    def __init__(self, nodes: list[Any], pods: list[Any], configz: Any = CONFIGZ) -> None:
        self.objects = {"nodes": nodes, "pods": pods}
        self.configz = configz
        self.requests: list[str] = []
        self.restarts = False

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        assert query is None
        self.requests.append(path)
        if isinstance(self.configz, ApiError):
            raise ApiError("GET", path, "403 Forbidden", status=self.configz.status)
        return json.dumps(self.configz).encode()

    async def list_pages(self, path: str, **selection: Any) -> AsyncIterator[ObjectPage]:
        assert not selection
        kind = path.rpartition("/")[2]
        if kind not in self.objects:
            raise ApiError("GET", path, "404 Not Found", status=404)
        items = self.objects[kind]
        yield self.page(kind, items[:2])
        if self.restarts:
            yield msgspec.structs.replace(self.page(kind, items), is_restart=True)
        elif items[2:]:
            yield self.page(kind, items[2:])

    def page(self, kind: str, items: list[Any]) -> ObjectPage:
        document = {"kind": f"{kind[:-1].capitalize()}List", "apiVersion": "v1", "items": items}
        return decode_page(json.dumps(document).encode())[0]


def reader(count: int = 3, **parts: Any) -> FakeReader:
    random = Random(1)
    pods = [
        pod_document(number * 5 + index, f"node-{number}", random)
        for number in range(count)
        for index in range(5)
    ]
    return FakeReader([node_document(number) for number in range(count)], pods, **parts)


def read(fake: FakeReader) -> AllNodes:
    return asyncio.run(read_all_nodes(fake, lambda _: None))


def test_each_node_has_the_state_that_it_has_when_it_is_read_alone() -> None:
    fake = reader()
    fake.objects["pods"][3]["status"]["phase"] = "Succeeded"
    fake.objects["pods"][4]["status"]["conditions"] = None
    fake.objects["nodes"][1]["status"]["conditions"][1]["status"] = "True"
    cluster = read(fake)
    listed, alike = ListedNodes(cluster), AlikeNodes()
    for node in cluster.nodes:
        pods = [pod for pod in fake.objects["pods"] if pod["spec"]["nodeName"] == node.name]
        document = next(each for each in fake.objects["nodes"] if each["metadata"]["name"] == node.name)
        reading = NodeReading(
            node=json.dumps({"kind": "Node", "apiVersion": "v1", **document}).encode(),
            pods=tuple(
                msgspec.Raw(json.dumps({"kind": "Pod", "apiVersion": "v1", **pod}).encode()) for pod in pods
            ),
            configz=json.dumps(CONFIGZ).encode(),
        )
        alone = Node.from_profile(cluster_node(node.name, reading).profile).state
        together = alike.node(listed.profile(node), node.name).state
        assert together.usage == alone.usage
        assert list(together.pods) == list(alone.pods)
        assert together.config.view == alone.config.view
        assert together.conditions == alone.conditions
        assert together.config.parts.kubelet == alone.config.parts.kubelet
        assert together.config.facts.unknown_parts == alone.config.facts.unknown_parts
        assert together.config.facts.labels == alone.config.facts.labels
        assert together.held == alone.held


def test_pods_with_equal_specs_are_kept_once() -> None:
    fake = reader(1)
    for pod in fake.objects["pods"]:
        pod["spec"]["containers"] = fake.objects["pods"][0]["spec"]["containers"]
    pods = read(fake).pods["node-0"]
    assert len({id(pod.spec) for pod in pods}) == 1
    assert b"SETTING" not in pods[0].spec


def test_a_pod_whose_resize_waits_has_what_is_allocated() -> None:
    fake = reader(1)
    pod = fake.objects["pods"][0]
    pod["status"]["conditions"] = [{"type": "PodResizePending", "status": "True", "lastProbeTime": None}]
    pod["status"]["containerStatuses"][0]["resources"] = {"requests": {"cpu": "7m", "memory": "1Mi"}}
    cluster = read(fake)
    (first, *_) = ListedNodes(cluster).profile(cluster.nodes[0]).spec.pods
    amounts = first.spec.containers[0].resources.requests
    assert {name: str(amount) for name, amount in amounts.items()} == {"cpu": "7m", "memory": "1Mi"}


def test_a_list_that_begins_again_replaces_what_was_read() -> None:
    fake = reader()
    fake.restarts = True
    cluster = read(fake)
    assert [node.name for node in cluster.nodes] == ["node-0", "node-1", "node-2"]
    assert cluster.pod_count == 15


def test_kubelets_are_not_asked_on_if_none_answers() -> None:
    fake = reader(40, configz=ApiError("GET", "/configz", "403 Forbidden", status=403))
    cluster = read(fake)
    assert len(fake.requests) == 3
    assert len(cluster.failures) == 40
    assert {failure.error for failure in cluster.failures.values()} == {
        "GET /api/v1/nodes/NODE/proxy/configz: 403 Forbidden"
    }


def test_nodes_that_are_not_ready_are_not_asked() -> None:
    fake = reader()
    fake.objects["nodes"][0]["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    cluster = read(fake)
    assert {path.split("/")[4] for path in fake.requests} == {"node-1", "node-2"}
    assert cluster.failures["node-0"].error == "the node is not ready"


def test_a_configuration_that_is_none_counts_as_not_read() -> None:
    cluster = read(reader(1, configz={"unexpected": True}))
    profile = ListedNodes(cluster).profile(cluster.nodes[0])
    (source,) = profile.spec.sources
    assert "expected the response of a kubelet's configz" in source.error
    assert {each.part for each in profile.spec.not_judged} >= {NodePart.CONFIGURATION}


@pytest.mark.parametrize("part", ["spec", "status"])
def test_a_pod_that_is_malformed_is_named(part: str) -> None:
    fake = reader(1)
    if part == "spec":
        fake.objects["pods"][0]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    else:
        fake.objects["pods"][0]["status"]["containerStatuses"][0]["resources"] = {"requests": 7}
    cluster = read(fake)
    with pytest.raises(InputError, match="pod/app-0-0 of namespace team-0"):
        ListedNodes(cluster).profile(cluster.nodes[0])


@pytest.mark.parametrize(
    "odd", [5, 1.5, "x", [], True, {"metadata": 5}, {"metadata": {"name": 1}}, {"spec": []}]
)
def test_an_object_that_cannot_be_read_concerns_no_other(
    odd: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, fake = read(reader()), reader()
    for objects in fake.objects.values():
        objects.insert(1, odd)
    cluster = read(fake)
    assert (cluster.nodes, cluster.pods) == (whole.nodes, whole.pods)
    assert "cannot be read, skipped: " in capsys.readouterr().err
