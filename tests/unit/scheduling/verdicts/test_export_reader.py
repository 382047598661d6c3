"""Exports of one node after the other: read as each alone is, without decoding again what has not changed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.small_nodes import a_numa_pod
from tests.unit.scheduling.verdicts.test_tracked_cluster import a_profile, with_pods

from nodewright.documents.profiles.node_export import (
    encode_node_export,
    node_export,
    profile_digest,
    read_node_export,
    shape_document,
)
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.objects import EphemeralContainer, Pod
from nodewright.model.values.instant import Instant
from nodewright.scheduling.verdicts.export_reader import ExportReader, NodePartCache
from nodewright.scheduling.verdicts.tracked_cluster import TrackedCluster

NOW = Instant.parse("2026-01-31T12:00:00Z")
PODS = [a_numa_pod(f"p{at}", {"cpu": 1000 * (at % 3 + 1), "memory": 16}) for at in range(5)]
PROFILES = {
    name: replace(a_profile(), metadata=replace(a_profile().metadata, name=name)) for name in ("n1", "n2")
}


def content_of(profile: NodeProfile, generation: int = 1) -> bytes:
    return encode_node_export(node_export(profile, generation=generation, observed_time=NOW))


def content(*pods: Pod, node: str = "n1", **labels: str) -> bytes:
    profile = with_pods(PROFILES[node], *pods)
    return content_of(replace(profile, spec=replace(profile.spec, labels=labels)))


def test_what_has_not_changed_is_not_decoded_again() -> None:
    reader = ExportReader()
    first = reader.read(content(PODS[0]), "n1").profile.spec
    second = reader.read(content(PODS[0], PODS[1], pool="x"), "n1").profile.spec
    assert second.machine_info is first.machine_info
    assert second.pods[0] is first.pods[0]
    assert (len(second.pods), second.labels) == (2, {"pool": "x"})


def test_a_node_whose_pod_was_debugged_is_read_like_any_other() -> None:
    """Ephemeral containers come after the creation, which refuses them."""
    reader, debugger = ExportReader(), EphemeralContainer(name="debug", image="a")
    debugged = replace(PODS[1], spec=replace(PODS[1].spec, ephemeral_containers=(debugger,)))
    for pods in ((PODS[0],), (PODS[0], debugged)):
        assert reader.read(content(*pods), "n1").profile.spec.pods == pods


def test_nodes_alike_share_their_machine() -> None:
    parts = NodePartCache()
    first = ExportReader(parts).read(content(), "n1").profile
    second = ExportReader(parts).read(content(PODS[0], node="n2"), "n2").profile
    assert second.spec.machine_info is first.spec.machine_info
    assert (first.metadata.name, second.metadata.name) == ("n1", "n2")


@given(st.lists(st.lists(st.sampled_from(PODS), unique_by=lambda pod: pod.uid), min_size=1, max_size=4))
def test_a_series_of_exports_is_read_as_each_alone(series: list[list[Pod]]) -> None:
    reader, cluster = ExportReader(), TrackedCluster()
    for generation, pods in enumerate(series):
        written = content_of(with_pods(PROFILES["n1"], *pods), generation)
        export, alone = reader.read(written, "n1"), read_node_export(written, "n1")
        assert export == alone
        fresh = TrackedCluster()
        for each in (cluster, fresh):
            each.put_export("n1", export.profile, generation=generation, now_s=0.0)
        states = [each.nodes["n1"].state for each in (cluster, fresh)]
        assert states[0] is not None
        assert states[1] is not None
        assert states[0].state == states[1].state
        assert cluster.nodes["n1"].numbers == fresh.nodes["n1"].numbers


def changed(change: Callable[[dict[str, Any]], None], *, sorted_keys: bool = True) -> bytes:
    """An export whose digests fit its profile, after a change of its spec."""
    document = msgspec.json.decode(content(PODS[0], PODS[1]))
    profile = document["profile"]
    change(profile["spec"])
    digests = {"digest": profile_digest(profile), "shapeDigest": profile_digest(shape_document(profile))}
    written = msgspec.json.encode(profile, order="sorted" if sorted_keys else None)
    return msgspec.json.encode({**document, **digests, "profile": msgspec.Raw(written)})


def in_main(spec: dict[str, Any], **members: Any) -> None:
    spec["pods"][1]["spec"]["containers"][0].update(members)


FAULTS: list[Callable[[dict[str, Any]], None]] = [
    lambda spec: spec.update(cgroupVersion=3),
    lambda spec: spec.update(unknown=1),
    lambda spec: spec["pods"][1]["metadata"].update(uid=PODS[0].uid),
    lambda spec: spec["pods"].append(spec["pods"][0]),
    lambda spec: in_main(spec, name="Not A Name"),
    lambda spec: in_main(spec, resorces={}),
    lambda spec: spec["allocations"][0].update(cpu="1"),
    lambda spec: spec["allocations"][0].update(
        memory=[{"numaNodes": [0], "type": "memory", "size": 1 << 50}]
    ),
    lambda spec: spec.update(labels={"a": 1}),
]


@pytest.mark.parametrize("change", FAULTS)
def test_an_impossible_change_is_refused_with_the_same_faults(
    change: Callable[[dict[str, Any]], None],
) -> None:
    reader, written = ExportReader(), changed(change)
    reader.read(content(PODS[0]), "n1")
    with pytest.raises(InputError) as alone:
        read_node_export(written, "n1")
    with pytest.raises(InputError) as refused:
        reader.read(written, "n1")
    assert list(map(str, refused.value.faults)) == list(map(str, alone.value.faults))


def test_cpus_that_two_containers_hold_make_the_node_unknown() -> None:
    reader, cluster = ExportReader(), TrackedCluster()
    reader.read(content(PODS[0]), "n1")
    export = reader.read(changed(lambda spec: spec["allocations"][1].update(cpus="1")), "n1")
    with pytest.raises(InputError, match="is held by"):
        cluster.put_export("n1", export.profile, generation=2, now_s=0.0)
    assert cluster.nodes["n1"].state is None


def test_an_export_whose_keys_are_in_another_order_is_read_as_a_whole() -> None:
    reader = ExportReader()
    written = changed(lambda spec: spec.update(pods=spec.pop("pods")), sorted_keys=False)
    assert reader.read(written, "n1") == read_node_export(written, "n1")


@given(st.data())
def test_a_damaged_export_is_judged_as_if_it_came_first(data: st.DataObject) -> None:
    written = content(PODS[0])
    reader = ExportReader()
    reader.read(written, "n1")
    start = data.draw(st.integers(0, len(written)))
    end = start + data.draw(st.integers(0, 9))
    damaged = written[:start] + data.draw(st.binary(max_size=3)) + written[end:]
    alone = None
    with suppress(InputError):
        alone = read_node_export(damaged, "n1")
    if alone is not None:
        assert reader.read(damaged, "n1") == alone
        return
    with suppress(InputError):
        # Only a wrong shape digest is not noticed.
        assert reader.read(damaged, "n1").profile == read_node_export(written).profile
