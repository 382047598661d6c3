"""What an exporter writes in its cluster."""

import asyncio
from typing import Any, cast

import pytest
from tests.unit.scheduling.exporter.test_exporter import FakeClock

from nodewright.cluster.client.cluster_api import ClusterAPI
from nodewright.cluster.exports.export_feed import ExportFeed, ExportReading
from nodewright.documents.profiles.node_profiles import find_profile
from nodewright.scheduling.exporter.export_member import ClusterPods, Publisher
from nodewright.scheduling.exporter.export_options import ExportOptions


class FakeTopologies:
    """An API server with the topology of one node."""

    def __init__(self, stored: dict[str, Any]) -> None:
        self.stored = stored

    async def read(self, _path: str, _query: dict[str, str]) -> dict[str, Any]:
        return self.stored

    async def update(self, _path: str, document: dict[str, Any]) -> None:
        self.stored = document


class FakeNode:
    """The Node object of the exporter."""

    node = {"metadata": {"name": "n1", "uid": "u1"}}


@pytest.mark.parametrize("others", [{}, {"labels": {"a": "b"}, "finalizers": ["example.com/x"]}])
def test_an_update_of_the_topology_keeps_the_metadata_of_others(others: dict[str, Any]) -> None:
    metadata = {"name": "n1", "uid": "u2", "resourceVersion": "7", **others}
    api, clock = FakeTopologies({"metadata": metadata, "zones": []}), FakeClock()
    feed = ExportFeed(clock)
    feed.publish(ExportReading(profile=find_profile("uma-4c")))
    publisher = Publisher(
        cast("ClusterAPI", api), cast("ExportOptions", None), cast("ClusterPods", FakeNode()), feed, clock
    )
    asyncio.run(publisher._write_topology())
    owner = {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1"}
    assert api.stored["zones"]
    assert api.stored["metadata"] == {**metadata, "ownerReferences": [owner]}


@pytest.mark.parametrize("answer", [{}, {"metadata": 5}, {"metadata": None, "zones": []}])
def test_an_odd_answer_ends_nothing(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    feed = ExportFeed(FakeClock())
    feed.publish(ExportReading(profile=find_profile("uma-4c")))
    api, pods = cast("ClusterAPI", FakeTopologies(answer)), cast("ClusterPods", FakeNode())
    publisher = Publisher(api, cast("ExportOptions", None), pods, feed, FakeClock())
    asyncio.run(publisher._attempt("topology", publisher._write_topology))
    assert "the topology is not published" in capsys.readouterr().err
