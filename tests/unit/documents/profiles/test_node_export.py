"""NodeExports: written, read back, refused; and when two nodes have the same shape."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.documents.profiles.node_export import (
    MAX_EXPORT_BYTES,
    ExportSource,
    NodeExport,
    SourceState,
    encode_node_export,
    node_export,
    profile_digest,
    read_node_export,
    shape_document,
)
from nodewright.model.errors import InputError
from nodewright.model.hardware import GIB
from nodewright.model.kubernetes.node_profile import ContainerAllocation, MemoryBlock, NodeProfile, ReadSource
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.values.instant import Instant
from nodewright.testing.nodes import STATIC_CPUS, STATIC_MEMORY, a_profile
from nodewright.testing.objects import a_guaranteed_pod

GPU = "nvidia.com/gpu"
NOW = Instant.parse("2026-01-31T12:00:00.25Z")


def profile(
    node: str = "n1", *, pods: tuple[str, str] = ("a", "b"), gpus: str = "g0@0 g1@1", held: str = "g0"
) -> NodeProfile:
    first, second = pods
    made = a_profile(
        pods=[a_guaranteed_pod(first, f"cpu=2 memory=1Gi {GPU}=1"), a_guaranteed_pod(second, "1/1Gi")],
        allocations=[
            ContainerAllocation(first, "main", "1-2", (MemoryBlock((0,), "memory", GIB),), {GPU: (held,)}),
            ContainerAllocation(f"default/{second}", "main", "3", (MemoryBlock((0,), "memory", GIB),)),
        ],
        devices={GPU: gpus},
        **STATIC_CPUS,
        **STATIC_MEMORY,
    )
    labels = {"kubernetes.io/hostname": node, "pool": "x"}
    return replace(made, metadata=ObjectMeta(name=node), spec=replace(made.spec, labels=labels))


def export(of: NodeProfile | None = None, generation: int = 7) -> NodeExport:
    sources = [
        ExportSource(name="cpu_manager_state", state=SourceState.READ, age_milliseconds=0),
        ExportSource(name="PodResources", state=SourceState.FAILED, error="no such file", assumed="nothing"),
    ]
    return node_export(
        of or profile(),
        generation=generation,
        observed_time=NOW,
        sources=sources,
        warnings=("left out: 1 pod",),
        assumed=("not judged: the pods' specs",),
    )


def test_an_export_reads_back_as_itself() -> None:
    written = export()
    assert read_node_export(encode_node_export(written)) == written


def test_secrets_and_the_times_of_sources_are_not_exported() -> None:
    container = replace(profile().spec.pods[0].spec.containers[0], args=("--key=1",))
    pod = replace(profile().spec.pods[0], spec=replace(profile().spec.pods[0].spec, containers=(container,)))
    spec = replace(
        profile().spec, pods=(pod, profile().spec.pods[1]), sources=(ReadSource("Node", time="today"),)
    )
    written = export(replace(profile(), spec=spec))
    assert written == export()
    assert b"--key" not in encode_node_export(written)


SHARED = [
    lambda: profile("n2"),
    lambda: profile(pods=("x", "y")),
    lambda: profile(gpus="GPU-7f@0 GPU-8a@1", held="GPU-7f"),
]
NOT_SHARED = [
    lambda: profile(held="g1"),
    lambda: profile(gpus="g0@1 g1@0"),
    lambda: replace(profile(), spec=replace(profile().spec, labels={"pool": "y"})),
    lambda: replace(profile(), spec=replace(profile().spec, allocations=None)),
    lambda: replace(profile(), spec=replace(profile().spec, kubernetes_version="1.35")),
]


@pytest.mark.parametrize("other", SHARED)
def test_nodes_that_differ_in_names_have_one_shape_and_two_digests(other: Callable[[], NodeProfile]) -> None:
    first, second = export(), export(other())
    assert first.shape_digest == second.shape_digest
    assert first.digest != second.digest


@pytest.mark.parametrize("other", NOT_SHARED)
def test_nodes_that_decide_differently_have_two_shapes(other: Callable[[], NodeProfile]) -> None:
    assert export().shape_digest != export(other()).shape_digest


def refusal(content: bytes) -> list[str]:
    with pytest.raises(InputError) as refused:
        read_node_export(content, "node")
    return [str(fault) for fault in refused.value.faults]


def changed(**members: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(encode_node_export(export())), **members})


def consistent(change: Callable[[dict[str, Any]], None]) -> bytes:
    """An export whose digests fit its profile, which has been changed."""
    document = msgspec.json.decode(encode_node_export(export()))
    change(document["profile"]["spec"])
    digest, shape = profile_digest(document["profile"]), profile_digest(shape_document(document["profile"]))
    return msgspec.json.encode({**document, "digest": digest, "shapeDigest": shape})


def hold_twice(spec: dict[str, Any]) -> None:
    spec["allocations"][1]["cpus"] = "2"


def hold_too_much(spec: dict[str, Any]) -> None:
    spec["allocations"][1]["memory"][0]["size"] = 4 * GIB


def hold_unknown_device(spec: dict[str, Any]) -> None:
    spec["allocations"][1]["devices"] = {GPU: ["g9"]}


HEAD = "node: expected one document with apiVersion: nodewright.dev/v1alpha1 and kind: NodeExport"
REFUSED = [
    (b"", [HEAD]),
    (b"[1]", [HEAD]),
    (b'{"kind":"NodeProfile"}', [HEAD]),
    (b"{}{}", [HEAD]),
    (b"\xff", ["node: not valid UTF-8: invalid start byte at byte 0"]),
    (changed(generation=-1), ["node: generation: Invalid value: -1: must be greater than or equal to 0"]),
    (changed(generation="7", digest=None, more=1, profile=None),
     ['node: generation: Invalid value: "7": must be a 64-bit integer, not a string: remove the quotes',
      "node: more: unknown field", "node: digest: Required value", "node: profile: Required value: a NodeProfile"]),
    (changed(profile={"kind": "Pod"}),
     ['node: profile.kind: Invalid value: "Pod": must be nodewright.dev/v1alpha1 NodeProfile']),
    (changed(sources=[{"name": "a", "state": "odd"}, {"name": "b", "state": "read", "ageMilliseconds": -1}]),
     ['node: sources[0].state: Invalid value: "odd": must be one of read, absent, failed']),
    (changed(sources=[{"name": "b", "state": "read", "ageMilliseconds": -1}]),
     ["node: sources[0].ageMilliseconds: Invalid value: -1: must be greater than or equal to 0"]),
    (changed(nodeName="n9"), ['node: nodeName: Invalid value: "n9": must be the name of the profile, \'n1\'']),
    (changed(observedTime="now"),
     ['node: observedTime: Invalid value: "now": must be a time such as 2026-01-31T12:00:00Z']),
    (consistent(hold_twice),
     ['node, profile: spec.allocations[1].cpus: Invalid value: "2": CPU 2 is held by default/a, container main']),
    (consistent(hold_too_much),
     ["node: profile.spec.allocations: pods hold 5368709120 bytes of memory on NUMA node 0, which has 4294967296"]),
    (consistent(hold_unknown_device),
     [f'node, profile: spec.allocations[1].devices[{GPU}]: Invalid value: "g9": not a device of spec.devices[{GPU}]']),
]  # fmt: skip


@pytest.mark.parametrize(("content", "faults"), REFUSED)
def test_a_malformed_or_impossible_export_is_refused(content: bytes, faults: list[str]) -> None:
    assert refusal(content) == faults


def test_a_huge_document_is_refused_unread() -> None:
    assert refusal(b"{" * (MAX_EXPORT_BYTES + 1)) == ["node: larger than 33554432 bytes"]


def test_digests_of_another_profile_are_refused() -> None:
    faults = refusal(changed(digest="sha256:0", shapeDigest="sha256:1"))
    assert [fault.split(":")[1].strip() for fault in faults] == ["digest", "shapeDigest"]


@given(st.data())
def test_a_damaged_export_is_read_or_refused_and_nothing_else(data: st.DataObject) -> None:
    content = encode_node_export(export())
    start = data.draw(st.integers(0, len(content)))
    damaged = (
        content[:start] + data.draw(st.binary(max_size=3)) + content[start + data.draw(st.integers(0, 9)) :]
    )
    with suppress(InputError):
        assert read_node_export(damaged).profile == export().profile
