"""Kueue's ClusterQueues and ResourceFlavors: how much of what pods of a queue may have, and on which nodes."""

from collections.abc import Mapping, Sequence
from itertools import chain, islice, product
from math import prod
from typing import Any

import msgspec

from nodewright.documents.formats.decode import decode, decoding_fault
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.kubernetes.resource_names import CPU
from nodewright.model.values.quantity import Quantity

_MAX_CHOICES = 64
"""Most combinations of flavors of a queue."""


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an object, of which only the fields below count."""


class QueuedResource(_Part, frozen=True, kw_only=True):
    """The quota of a resource."""

    name: str = ""
    nominal_quota: Quantity = Quantity.of(0)


class FlavorQuotas(_Part, frozen=True, kw_only=True):
    """The quotas on the nodes of a flavor."""

    name: str = ""
    resources: tuple[QueuedResource, ...] = ()


class ResourceGroup(_Part, frozen=True, kw_only=True):
    """Flavors of which a pod gets one, for some resources."""

    covered_resources: tuple[str, ...] = ()
    flavors: tuple[FlavorQuotas, ...] = ()


class QueueSpec(_Part, frozen=True, kw_only=True):
    """What a queue has."""

    resource_groups: tuple[ResourceGroup, ...] = ()


class ClusterQueue(_Part, frozen=True, kw_only=True):
    """A ClusterQueue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: QueueSpec = QueueSpec()


class FlavorSpec(_Part, frozen=True, kw_only=True):
    """Which nodes a flavor is."""

    node_labels: dict[str, str] = {}


class ResourceFlavor(_Part, frozen=True, kw_only=True):
    """A ResourceFlavor."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FlavorSpec = FlavorSpec()


QUEUE_KINDS: Mapping[str, type[ClusterQueue | ResourceFlavor]] = {
    "ClusterQueue": ClusterQueue,
    "ResourceFlavor": ResourceFlavor,
}
"""What is read of Kueue, by kind."""


class QueueQuota(msgspec.Struct, frozen=True, kw_only=True):
    """The quota of a queue on the nodes of its flavors, one of each resource group."""

    queue: str
    flavors: tuple[str, ...]
    node_labels: frozenset[tuple[str, str]]
    """The labels of its flavors; of two with one name no node has both."""
    amounts: Mapping[str, int]
    """Units: cpu in thousandths, else bytes or units."""


def read_queue_object(value: dict[str, Any]) -> ClusterQueue | ResourceFlavor | None:
    """The queue or flavor; None for other kinds.

    Errors: InputError for a field of a wrong type.
    """
    kind = QUEUE_KINDS.get(str(value.get("kind")))
    try:
        return None if kind is None else decode(value, kind)
    except msgspec.ValidationError as error:
        raise InputError([decoding_fault(error)]) from None


class QueueQuotas(msgspec.Struct, frozen=True, kw_only=True):
    """The quotas of queues, and which of them are not judged."""

    quotas: tuple[QueueQuota, ...]
    unjudged: tuple[str, ...]
    """As sentences."""


def queue_quotas(objects: Sequence[ClusterQueue | ResourceFlavor]) -> QueueQuotas:
    """The quotas of all queues, by combination of flavors.

    Follows: Kueue v0.18, apis/kueue/v1beta2, clusterqueue_types.go, resourceflavor_types.go.
    Departs: what cohorts lend and what is in use does not count; nor do taints and tolerations of flavors.
    """
    flavors = {each.metadata.name: each.spec for each in objects if isinstance(each, ResourceFlavor)}
    quotas, unjudged = list[QueueQuota](), dict[str, None]()
    for queue in objects:
        if not isinstance(queue, ClusterQueue):
            continue
        label = f"ClusterQueue {queue.metadata.name}"
        groups = [group.flavors for group in queue.spec.resource_groups if group.flavors]
        count = prod(map(len, groups))
        if count > _MAX_CHOICES:
            unjudged[f"{label}: {count} combinations of flavors; not judged: those after {_MAX_CHOICES}"] = (
                None
            )
        for choice in islice(product(*groups), _MAX_CHOICES) if groups else ():
            if unknown := [each.name for each in choice if each.name not in flavors]:
                unjudged[f"{label}: not judged: no ResourceFlavor {unknown[0]} is given"] = None
                continue
            labels = [flavors[each.name].node_labels.items() for each in choice]
            quotas.append(
                QueueQuota(
                    queue=queue.metadata.name,
                    flavors=tuple(each.name for each in choice),
                    node_labels=frozenset(chain.from_iterable(labels)),
                    amounts={quota.name: _amount(quota) for each in choice for quota in each.resources},
                )
            )
    return QueueQuotas(quotas=tuple(quotas), unjudged=tuple(unjudged))


def _amount(quota: QueuedResource) -> int:
    amount = quota.nominal_quota
    return amount.milli_value() if quota.name == CPU else amount.value()
