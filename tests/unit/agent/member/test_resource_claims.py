"""Requests about resource claims and ResourceSlices, to API servers of all versions."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from nodewright.agent.member.resource_claims import read_resource_claim, remove_resource_slices
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI


class FakeServer:
    """Deletes what is below the paths that it serves."""

    def __init__(self, *served: str) -> None:
        self.served, self.deleted = served, list[str]()

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        assert not options
        if not path.startswith(self.served):
            raise ApiError("DELETE", path, "not found", status=404)
        if "Forbidden" in path:
            raise ApiError("DELETE", path, "forbidden", status=403)
        self.deleted.append(path)


def remove(server: FakeServer, node: str, driver: str) -> None:
    asyncio.run(remove_resource_slices(cast("ClusterAPI", server), node, driver))


@pytest.mark.parametrize("served", ["/apis/resource.k8s.io/v1/", "/apis/resource.k8s.io/v1beta1/"])
def test_slices_of_the_node_are_removed_in_the_version_that_is_served(served: str) -> None:
    server = FakeServer(served.rstrip("/") + "/")
    remove(server, "n-1", "")
    remove(server, "n-1", "gpu.example.com")
    selected = f"{served}resourceslices?fieldSelector=spec.nodeName%3Dn-1"
    assert server.deleted == [selected, f"{selected}%2Cspec.driver%3Dgpu.example.com"]


def test_a_server_without_slices_has_none_to_remove_and_another_refusal_is_an_error() -> None:
    server = FakeServer()
    remove(server, "n-1", "")
    assert not server.deleted
    with pytest.raises(ApiError, match="forbidden"):
        remove(FakeServer("/apis/"), "Forbidden", "")


@pytest.mark.parametrize(
    "spec", [5, [1], {"devices": 5}, {"devices": {"requests": [5]}}, {"devices": {"requests": 5}}]
)
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_claim_of_wrong_types_is_an_error_of_the_request(version: str, spec: Any) -> None:
    class OddServer:
        async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
            if f"/{version}/" not in path:
                raise ApiError("GET", path, f"not found {query}", status=404)
            return {"metadata": {"name": "c"}, "spec": spec}

    with pytest.raises(ApiError, match="not the expected JSON"):
        asyncio.run(read_resource_claim(cast("ClusterAPI", OddServer()), "shop", "c"))
