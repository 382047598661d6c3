"""What nodes have in common whose answers about a pod's claims differ in names only."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from nodewright.engine.core.claims.claim_scheduling import ClaimCluster, ClaimScheduling
from nodewright.engine.core.claims.device_pools import IndexedSlices
from nodewright.engine.core.claims.device_reasons import holder_text, names_in, short_name
from nodewright.engine.core.claims.searched_requests import RequestSpec
from nodewright.model.kubernetes.claims import Device, DeviceAttribute
from nodewright.model.kubernetes.cluster_objects import APINode

NODE_WORD = "\0node\0"
"""The name of the node in a text that is the same for all nodes that are alike."""
_WORD = re.compile("\0(\\d+)\0")


class NodeLikeness(NamedTuple):
    """What decides about a node, and the claims that hold its devices."""

    key: tuple[object, ...]
    holders: tuple[str, ...]
    """In order of their first devices."""

    @property
    def words(self) -> dict[str, str]:
        """What to write for the names of the claims."""
        return {name: f"\0{at}\0" for at, name in enumerate(self.holders)}

    def named(self, text: str, cluster: ClaimCluster, node: APINode) -> str:
        """The text with the names of this node and its claims."""
        claims = cluster.claims_by_full_name
        text = _WORD.sub(lambda word: holder_text(self.holders[int(word[1])], claims), text)
        return text.replace(NODE_WORD, node.metadata.name)


def node_likeness(scheduling: ClaimScheduling, node: APINode) -> NodeLikeness | None:
    """What decides about the pod's claims on the node; None: objects that concern several nodes do as well."""
    cluster, name, rules = scheduling.cluster, node.metadata.name, scheduling.rules
    slices = cluster.slices
    assert isinstance(slices, IndexedSlices)
    claims = scheduling.given
    if slices.for_many or (rules.taint_rules and cluster.taint_rules) or not name or claims is None:
        return None
    if any(claim.status.allocation for claim in claims):
        return None
    read, in_use, holders = _names_read(scheduling), cluster.in_use(rules), dict[str, int]()
    parts: list[object] = [
        rules,
        *sorted((name, str(amount)) for name, amount in node.status.allocatable.items()),
    ]
    own = sorted(
        slices.of_nodes.get(name, ()),
        key=lambda item: (item.spec.driver, item.spec.pool.name, item.metadata.name),
    )
    pools: dict[tuple[str, str], int] = {}
    for item in own:
        driver, pool = item.spec.driver, item.spec.pool
        in_pool = slices.by_pool[driver, pool.name]
        if len(in_pool) != pool.resource_slice_count or any(
            each.spec.node_name != name or each.spec.pool.generation != pool.generation for each in in_pool
        ):
            return None
        parts.append((driver, pools.setdefault((driver, pool.name), len(pools))))
        for device in item.spec.devices:
            if device.consumes_counters:
                return None
            place = driver, pool.name, device.name
            parts += _parts(device, read)
            parts += [
                tuple(holders.setdefault(each, len(holders)) for each in held.get(place, ()))
                for held in (in_use.exclusive, in_use.shared)
            ]
            parts.append(str(in_use.consumed.get(place)))
    return NodeLikeness(tuple(parts), tuple(holders))


def _parts(device: Device, read: frozenset[str] | None) -> Iterator[object]:
    """What of the device decides; of attributes that nothing reads, that they are there."""
    yield device.name
    for name, attribute in device.attributes.items():
        is_read = read is None or short_name(name) in read
        yield (name, attribute if is_read or not _is_plain(attribute) else None)
    yield from device.capacity.items()
    yield device.taints, device.binding_conditions, device.allow_multiple_allocations


def _is_plain(attribute: DeviceAttribute) -> bool:
    """Whether selectors can read the attribute, whatever its value."""
    return isinstance(attribute.value, str | int)


def _names_read(scheduling: ClaimScheduling) -> frozenset[str] | None:
    """The attributes that selectors and constraints read, without their domains; None: it may be any."""
    read = set()
    selectors = [each for item in scheduling.cluster.classes for each in item.spec.selectors]
    for claim in scheduling.given or ():
        devices = claim.spec.devices
        read |= {
            short_name(each.match_attribute or each.distinct_attribute or "") for each in devices.constraints
        }
        for request in devices.requests:
            specs: tuple[RequestSpec | None, ...] = (*request.first_available, request.exactly)
            selectors += [each for spec in specs if spec is not None for each in spec.selectors]
    for expression in {each.cel.expression for each in selectors if each.cel}:
        names = names_in(expression)
        if expression.count("attributes") + expression.count("capacity") != len(names):
            return None
        read |= {each.name for each in names}
    return frozenset(read)
