"""Documents that are alike are read once; nothing in the result shows it."""

from copy import deepcopy
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nodewright.documents.formats.documents import InputFile
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.fleet.load.fleet_objects import FleetObjects, PodEntry
from nodewright.model.kubernetes.objects import ObjectMeta, Pod

CONTAINERS = st.lists(st.sampled_from(["1", "2", "500m", "1500mX"]), min_size=1, max_size=2)


class SlowFleetObjects(FleetObjects):
    """Reads each document by itself."""

    def _add_value(self, value: Any, location: ObjectLocation, source: str) -> None:
        self._by_content.clear()
        super()._add_value(value, location, source)


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    """A node or a pod with the fields that its kind of life leaves in it."""
    metadata: dict[str, Any] = {"name": draw(st.sampled_from(["web-0", "web-1", "job-a", "db"]))}
    if draw(st.integers(0, 5)) == 0:
        status = {"allocatable": {"cpu": draw(st.sampled_from(["8", "16"])), "memory": "32Gi", "pods": "110"}}
        metadata["labels"] = draw(
            st.sampled_from([{}, {"kubernetes.io/hostname": metadata["name"]}, {"zone": "a"}])
        )
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
    metadata_fields: list[tuple[str, Any]] = [
        ("uid", "0-1"),
        ("deletionTimestamp", "2026-01-31T12:00:00Z"),
        ("namespace", "shop"),
        ("finalizers", ["none"]),
        ("annotations", {"kubernetes.io/config.mirror": "x"}),
        (
            "ownerReferences",
            [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "9", "controller": True}],
        ),
    ]
    for name, value in metadata_fields:
        metadata |= {name: value} if draw(st.booleans()) else {}
    names = ("a", "b")
    spec: dict[str, Any] = {
        "containers": [
            {"name": name, "image": "x", "resources": {"requests": {"cpu": cpu}}}
            for name, cpu in zip(names, draw(CONTAINERS), strict=False)
        ]
    }
    spec_fields: list[tuple[str, Any]] = [
        ("nodeName", "n1"),
        ("ephemeralContainers", [{"name": "debug", "image": "x"}]),
        ("unknownField", 1),
    ]
    for name, value in spec_fields:
        spec |= {name: value} if draw(st.booleans()) else {}
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    phase = draw(st.sampled_from(["", "Pending", "Running", "Succeeded", "Failed"]))
    if phase:
        pod["status"] = {"phase": phase, "startTime": "2026-01-31T12:00:00Z"}
    return pod


def read(kind: type[FleetObjects], documents: list[dict[str, Any]]) -> FleetObjects:
    loaded = kind()
    text = "---\n".join(yaml.safe_dump(document, sort_keys=False) for document in documents)
    loaded.read_file(InputFile("all.yaml", text.encode()))
    return loaded


def template_of(pod: Pod) -> Pod:
    """What pods of one template share; the rest is in the entry of each pod."""
    metadata = pod.metadata
    shared = ObjectMeta(
        namespace=metadata.namespace, labels=metadata.labels, annotations=metadata.annotations
    )
    return replace(pod, metadata=shared)


def pods(loaded: FleetObjects) -> list[tuple[Pod, PodEntry]]:
    """The pods by content, not by the number of their template."""
    workloads = loaded.manifests.workloads
    return [
        (template_of(workloads[entry.template].workload.pod), replace(entry, template=0))
        for entry in loaded.pods
    ]


@given(st.lists(objects(), min_size=1, max_size=4), st.data())
def test_alike_documents_are_read_as_each_by_itself(kinds: list[dict[str, Any]], data: st.DataObject) -> None:
    documents = []
    for number in range(data.draw(st.integers(2, 8))):
        document = deepcopy(data.draw(st.sampled_from(kinds)))
        document["metadata"]["name"] = f"{document['metadata']['name']}-{number}"
        documents.append(document)
    fast, slow = read(FleetObjects, documents), read(SlowFleetObjects, documents)
    assert pods(fast) == pods(slow)
    assert fast.nodes == slow.nodes
    assert (fast.ended_pods, fast.unknown_fields) == (slow.ended_pods, slow.unknown_fields)
    assert [str(fault) for fault in fast.faults] == [str(fault) for fault in slow.faults]
