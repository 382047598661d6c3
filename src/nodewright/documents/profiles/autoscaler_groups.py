"""The nodes by which groups of Cluster API can grow, as the cluster autoscaler expects them."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from nodewright.documents.formats.decode import decode
from nodewright.documents.formats.documents import parse_documents
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.profiles.planned_objects import (
    PlannedNode,
    PlannedObjects,
    PlannedTaint,
    UnknownAmountsError,
    node_object,
    number_of,
)
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.objects import TAINT_EFFECTS, ObjectMeta, Taint
from nodewright.model.kubernetes.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from nodewright.model.values.quantity import Quantity, QuantityError

STATUS = "cluster-autoscaler-status"
"""The name of the ConfigMap that is read."""
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
_MAX_SIZE = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
_DEFAULT_MAX_PODS = 110
_MAX_GROWTH = 1_000
"""Most nodes that a group is assumed to grow by."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an object, of which only the fields below count."""


class MachineTemplateSpec(_Part, frozen=True, kw_only=True):
    """What a machine of a group has."""

    taints: tuple[PlannedTaint, ...] = ()


class MachineTemplate(_Part, frozen=True, kw_only=True):
    """The machines of a group."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MachineTemplateSpec = MachineTemplateSpec()


class MachineGroupSpec(_Part, frozen=True, kw_only=True):
    """How many machines there are."""

    replicas: int = 1
    template: MachineTemplate = MachineTemplate()


class MachineGroup(_Part, frozen=True, kw_only=True):
    """A MachineDeployment, MachineSet or MachinePool of Cluster API."""

    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: MachineGroupSpec = MachineGroupSpec()


class AutoscalerStatus(_Part, frozen=True, kw_only=True):
    """The ConfigMap in which the cluster autoscaler reports its groups."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] = {}


class GroupHealth(_Part, frozen=True, kw_only=True):
    """The sizes of a group."""

    cloud_provider_target: int = 0
    max_size: int = 0


class GroupStatus(_Part, frozen=True, kw_only=True):
    """A group in the autoscaler's report; ``name`` as `MachineDeployment/NAMESPACE/NAME`, or what its cloud has."""

    name: str = ""
    health: GroupHealth = GroupHealth()


class ReportedGroups(_Part, frozen=True, kw_only=True):
    """The groups of the autoscaler's report."""

    node_groups: tuple[GroupStatus, ...] = ()


def group_nodes(objects: PlannedObjects) -> Iterator[PlannedNode]:
    """The nodes by which the groups of the cluster autoscaler can grow; appends notes.

    Follows: autoscaler 1.36, cluster-autoscaler/cloudprovider/clusterapi/clusterapi_nodegroup.go, TemplateNodeInfo.
    """
    growth = dict(_reported(objects))
    for group, location, source in objects.of_kind(MachineGroup):
        meta, template = group.metadata, group.spec.template
        annotations = {
            key.removeprefix(_CAPACITY): text
            for key, text in meta.annotations.items()
            if key.startswith(_CAPACITY)
        }
        key = f"{group.kind}/{meta.namespace}/{meta.name}"
        count = growth.pop(key, None)
        if count is None:
            count = _growth(objects, group, location)
        try:
            node = _group_node(annotations, template)
        except UnknownAmountsError as unknown:
            if count:
                objects.notes.append(f"{key}: {unknown}, so the nodes that it can grow by are not known")
            continue
        except InputError as error:
            objects.faults += location.locate_all(error.faults)
            continue
        for number in range(min(count, _MAX_GROWTH)):
            named = {**node["metadata"], "name": f"{meta.name}-planned-{number}"}
            yield PlannedNode(node={**node, "metadata": named}, location=location, source=source)
        if count:
            more = f" of the {count:,} by which it can grow" if count > _MAX_GROWTH else ""
            counted = f"{min(count, _MAX_GROWTH)} nodes{more} that do not exist yet"
            objects.notes.append(
                f"{key}: {counted}; as the autoscaler has it, all of their capacity is allocatable"
            )
    for name, count in growth.items():
        if count:
            objects.notes.append(
                f"{STATUS}: group {name} can grow by {count}, but nothing tells what its nodes are"
            )


def _growth(objects: PlannedObjects, group: MachineGroup, location: ObjectLocation) -> int:
    text = group.metadata.annotations.get(_MAX_SIZE)
    if text is None:
        return 0
    most = number_of(text)
    if most is None:
        path = f"metadata.annotations[{_MAX_SIZE}]"
        objects.faults.append(location.locate(Fault(path=path, value=text, rule="must be a number of nodes")))
        return 0
    return max(most - group.spec.replicas, 0)


def _reported(objects: PlannedObjects) -> Iterator[tuple[str, int]]:
    """By how many nodes each group can grow, by the autoscaler's report."""
    for status, location, _ in objects.of_kind(AutoscalerStatus):
        try:
            documents = parse_documents(status.data.get("status", "").encode(), "data.status")
            report = decode(documents[0].value if documents else {}, ReportedGroups)
        except (InputError, msgspec.ValidationError) as error:
            rule = f"must be the report of a cluster autoscaler from 1.30 on as YAML: {error}"
            objects.faults.append(location.locate(Fault(path="data[status]", rule=rule)))
            continue
        for group in report.node_groups:
            yield group.name, max(group.health.max_size - group.health.cloud_provider_target, 0)


def _group_node(annotations: Mapping[str, str], template: MachineTemplate) -> dict[str, Any]:
    """The node of a group without its name.

    Errors: UnknownAmountsError without CPUs and memory; InputError for faulty annotations.
    """
    names = {CPU: "cpu", MEMORY: "memory", EPHEMERAL_STORAGE: "ephemeral-disk", PODS: "maxPods"}
    if gpu := annotations.get("gpu-type"):
        names[gpu] = "gpu-count"
    if not annotations.keys() >= {"cpu", "memory"}:
        raise UnknownAmountsError(f"it has no annotations {_CAPACITY}cpu and {_CAPACITY}memory")
    capacity, faults = {PODS: Quantity.of(_DEFAULT_MAX_PODS)}, []
    for resource, field in names.items():
        text = annotations.get(field)
        try:
            if text is not None:
                capacity[resource] = Quantity.parse(text)
        except QuantityError as error:
            path = f"metadata.annotations[{_CAPACITY}{field}]"
            faults.append(Fault(path=path, value=text, rule=str(error)))
    labels = dict(pair.split("=", 1) for pair in annotations.get("labels", "").split(",") if "=" in pair)
    taints: list[Taint] = list(template.spec.taints)
    for text in filter(None, annotations.get("taints", "").split(",")):
        key, _, effect = text.rpartition(":")
        name, _, value = key.partition("=")
        taints.append(Taint(key=name, value=value, effect=effect))
        if not name or effect not in TAINT_EFFECTS:
            path = f"metadata.annotations[{_CAPACITY}taints]"
            faults.append(
                Fault(
                    path=path,
                    value=text,
                    rule=f"must be KEY=VALUE:EFFECT, with one of the effects {', '.join(TAINT_EFFECTS)}",
                )
            )
    if faults:
        raise InputError(faults)
    return node_object("", {**template.metadata.labels, **labels}, taints, capacity, capacity)
