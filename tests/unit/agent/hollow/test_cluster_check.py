"""What forbids hollow nodes in a cluster, before anything is made."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_clock import FakeClock
from tests.support.memory_cluster import NODES, MemoryCluster

from nodewright.agent.hollow.cluster_check import check_cluster, read_stages
from nodewright.agent.hollow.hollow_options import HOLLOW_LABEL, HollowOptions
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.objects.node_owned_objects import TOPOLOGIES
from nodewright.model.errors import InputError

STAGES = "/apis/kwok.x-k8s.io/v1alpha1/stages"


class ReviewingCluster(MemoryCluster):
    """Answers reviews of access."""

    def __init__(self, *denied: tuple[str, str]) -> None:
        super().__init__(FakeClock())
        self.denied = denied

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """The review, with its answer."""
        assert path.endswith("/selfsubjectaccessreviews")
        asked = document["spec"]["resourceAttributes"]
        resource = "/".join(filter(None, (asked["resource"], asked["subresource"])))
        return {**document, "status": {"allowed": (asked["verb"], resource) not in self.denied}}


def checked(cluster: MemoryCluster, **options: Any) -> str:
    """The faults as text; empty: the nodes may be made."""
    try:
        asyncio.run(
            check_cluster(cluster, ["hollow-0", "hollow-1"], HollowOptions(nodes=(), **options), "config")
        )
    except InputError as error:
        assert not cluster.requests, "nothing is made"
        return str(error)
    return ""


def node(name: str, **metadata: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, **metadata}}


def test_an_empty_cluster_takes_them() -> None:
    assert checked(ReviewingCluster()) == ""


def test_topologies_need_their_definition_and_rights() -> None:
    class WithoutTopologies(ReviewingCluster):
        async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
            if path == TOPOLOGIES:
                raise ApiError("GET", path, "the server could not find the resource", status=404)
            return await super().read(path, query)

    assert checked(ReviewingCluster(), publish=("topology",)) == ""
    assert checked(WithoutTopologies()) == ""
    denied = WithoutTopologies(("create", "noderesourcetopologies"))
    text = checked(denied, publish=("topology",))
    assert "its user may not create noderesourcetopologies" in text
    assert "--publish" in text
    assert "install their definition" in text


def test_the_kubelet_port_needs_the_rights_to_ask_who_may_use_it() -> None:
    cluster = ReviewingCluster(("create", "subjectaccessreviews"))
    assert checked(cluster) == ""
    assert "its user may not create subjectaccessreviews" in checked(cluster, kubelet_api=True)


def test_claims_need_the_rights_to_read_them_and_to_write_slices() -> None:
    cluster = ReviewingCluster(("create", "resourceslices"), ("get", "resourceclaims"))
    assert checked(cluster) == ""
    text = checked(cluster, resource_slices=Path("slices.yaml"))
    assert "its user may not create resourceslices" in text
    assert "its user may not get resourceclaims" in text


def test_all_missing_rights_are_listed_with_everything_else() -> None:
    cluster = ReviewingCluster(("create", "nodes"), ("patch", "pods/status"), ("update", "leases"))
    cluster.put(f"{NODES}/real", node("real"))
    cluster.put(f"{NODES}/hollow-1", node("hollow-1"))
    text = checked(cluster)
    for part in (
        "config: its user may not create nodes",
        "may not patch pods/status",
        "may not update leases",
        "node/hollow-1: this Node exists and is not hollow",
        "the cluster has real nodes (real)",
    ):
        assert part in text
    assert "delete nodes" in checked(ReviewingCluster(("delete", "nodes")), remove_on_exit=True)
    assert checked(ReviewingCluster(("delete", "nodes"))) == ""


def test_without_the_right_to_list_nodes_only_the_rights_are_named() -> None:
    assert checked(ReviewingCluster(("list", "nodes"))).splitlines() == [
        "config: its user may not list nodes"
    ]


def test_own_nodes_and_those_of_kwok_are_no_obstacle() -> None:
    cluster = ReviewingCluster()
    cluster.put(f"{NODES}/hollow-0", node("hollow-0", labels={HOLLOW_LABEL: "true"}))
    cluster.put(f"{NODES}/other-hollow", node("other-hollow", labels={HOLLOW_LABEL: "true"}))
    cluster.put(f"{NODES}/kwok-0", node("kwok-0", annotations={"kwok.x-k8s.io/node": "fake"}))
    assert checked(cluster) == ""


@pytest.mark.parametrize(("name", "option"), [("hollow-1", "adopt"), ("real", "beside_real_nodes")])
def test_each_obstacle_has_its_option(name: str, option: str) -> None:
    cluster = ReviewingCluster()
    cluster.put(f"{NODES}/{name}", node(name))
    assert checked(cluster) != ""
    assert checked(cluster, **{option: True}) == ""


@pytest.mark.parametrize("status", [None, 5, "yes", {"allowed": "true"}, {"allowed": 1, "reason": [5]}])
def test_a_review_of_another_type_allows_nothing(status: Any) -> None:
    class OddCluster(ReviewingCluster):
        async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
            await super().create(path, document)
            return {**document, "status": status}

    assert "may not create nodes" in checked(OddCluster())


def test_nodes_of_other_types_are_left_out_and_a_list_has_an_end() -> None:
    class EndlessCluster(ReviewingCluster):
        pages = 0

        async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
            self.pages += 1
            odd: tuple[Any, ...] = (
                5,
                {},
                {"metadata": 5},
                {"metadata": {"name": 5, "uid": "u"}},
                node("real"),
            )
            return {"items": [*odd], "metadata": {"continue": f"{path} {query} {self.pages}"[:200]}}

    cluster = EndlessCluster()
    with pytest.raises(ApiError, match="the list has no end"):
        checked(cluster)
    assert cluster.pages <= 4000


def test_stages_of_kwok_are_read_and_what_cannot_be_is_named() -> None:
    ready = {
        "resourceRef": {"kind": "Pod"},
        "selector": {},
        "next": {"statusTemplate": "phase: Running"},
    }
    cluster = ReviewingCluster()
    assert asyncio.run(read_stages(cluster)) == ((), [])
    cluster.put(f"{STAGES}/pod-ready", {**node("pod-ready"), "spec": ready})
    cluster.put(
        f"{STAGES}/later", {**node("later"), "spec": {**ready, "delay": {"durationMilliseconds": -1}}}
    )
    cluster.put(f"{STAGES}/empty", node("empty"))
    cluster.put(
        f"{STAGES}/node-initialize", {**node("node-initialize"), "spec": {"resourceRef": {"kind": "Node"}}}
    )
    stages, unread = asyncio.run(read_stages(cluster))
    assert [(stage.name, stage.step) for stage in stages] == [("pod-ready", "start")]
    assert unread == [
        "Stage empty of kwok is not read: spec.resourceRef.kind: only Stages of pods are read",
        "Stage later of kwok is not read: spec.delay.durationMilliseconds: Expected `int` >= 0",
    ]


@pytest.mark.parametrize("status", [404, 403])
def test_without_the_kind_there_are_no_stages_and_a_missing_right_is_named(status: int) -> None:
    class WithoutStages(ReviewingCluster):
        async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
            raise ApiError("GET", path, f"no stages for {query}", status=status)

    stages, unread = asyncio.run(read_stages(WithoutStages()))
    assert stages == ()
    assert [line.partition(":")[0] for line in unread] == ["Stages of kwok are not read"] * (status == 403)
