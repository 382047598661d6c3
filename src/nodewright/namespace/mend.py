"""What would make everything fit, and what still fits besides."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from nodewright.core.quota import Bill
from nodewright.core.quota.multiple import times_payable, together
from nodewright.model.manifest import Manifest
from nodewright.namespace.apply import Applied, Cluster, Outcome, apply, cluster_of
from nodewright.namespace.plans import Plan, Setting
from nodewright.namespace.prices import Namespace, Priced, Reason
from nodewright.values.quantity import Quantity

Key: TypeAlias = tuple[str, int, str]
"""A resource of a quota: namespace, the quota's place, the resource's name."""
Demand: TypeAlias = dict[Key, Quantity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many more pods of a kind there is room for, with all that each of them needs."""

    manifest: int
    more: int | None
    """None: as many as one likes, as far as quotas go."""
    because: Reason | None = None
    """Why not one more, if it is not for lack of room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """What `spec.hard` of a quota has to say at least."""

    namespace: str
    quota: str
    resource: str
    hard: Quantity
    to: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Lower:
    """How many pods an object may want at most."""

    manifest: int
    replicas: int
    to: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mending:
    """What would make everything fit: all of the first, or any one of the second, or all of the third."""

    raises: tuple[Raise, ...] = ()
    lowers: tuple[Lower, ...] = ()
    """Each alone is enough."""
    lower_all: tuple[Lower, ...] = ()
    """All of these, where none alone is enough; empty: lower numbers alone do not help."""
    beyond: tuple[Outcome, ...] = ()
    """What is refused however much room there is."""
    wanted: Mapping[str, Namespace] = field(default_factory=lambda: MappingProxyType({}))
    """The namespaces if there were room for everything."""


def rooms(manifests: Sequence[Manifest], applied: Applied, setting: Setting) -> tuple[Room, ...]:
    """For each object that is or makes pods in a guarded namespace: how many more there is room for."""
    cluster = cluster_of(manifests, setting, applied.after, applied.book)
    found = []
    for index, one in enumerate(manifests):
        namespace = applied.after.get(one.namespace)
        plan = _one_more(cluster, one) if namespace is not None else None
        if namespace is None or plan is None:
            continue
        prices = [cluster.book.priced(part.resource, part.object, namespace) for part in plan.parts]
        because = next((price.because for price in prices if price.because is not None), None)
        bill = together(price.bill for price in prices if price.bill is not None)
        more = 0 if because is not None else times_payable(bill, namespace.quotas)
        found.append(Room(manifest=index, more=more, because=because))
    return tuple(found)


def mending(manifests: Sequence[Manifest], applied: Applied, setting: Setting) -> Mending:
    """The smallest changes that make everything fit: nothing less of any of them does."""
    if not applied.refusals:
        return Mending(wanted=applied.after)
    full = apply(manifests, setting, is_enforced=False, again=applied)
    raises = tuple(_raises(applied.before, full.after))
    demands = _Demands(cluster_of(manifests, setting, applied.before, applied.book), applied.before)
    over = [key for key, hard in demands.hard.items() if demands.total.get(key, hard).compare(hard) > 0]
    lowers = tuple(demands.alone(over)) if over else ()
    return Mending(
        raises=raises,
        lowers=lowers,
        lower_all=() if lowers or not over else tuple(demands.all_lower()),
        beyond=full.refusals,
        wanted=full.after,
    )


def _one_more(cluster: Cluster, manifest: Manifest) -> Plan | None:
    """The plan that makes a pod of the object's; None: it makes none."""
    if manifest.kind != "Pod" and manifest.controller is None:
        return None
    return list(cluster.planner(manifest).steady(manifest, 1))[-1]


def _raises(before: Mapping[str, Namespace], after: Mapping[str, Namespace]) -> Iterator[Raise]:
    for name, namespace in after.items():
        for was, quota in zip(before[name].quotas, namespace.quotas, strict=True):
            for resource in sorted(quota.status.hard):
                hard, used = quota.status.hard[resource], quota.status.used[resource]
                if used.compare(hard) > 0 and used.compare(was.status.used[resource]) > 0:
                    yield Raise(namespace=name, quota=quota.name, resource=resource, hard=hard, to=used)


# ---------------------------------------------------------------- fewer replicas


@dataclass(slots=True)
class _Demands:
    """What each object would be charged in all, if it wanted so many pods."""

    cluster: Cluster
    before: Mapping[str, Namespace]
    hard: Demand = field(default_factory=dict)
    used: Demand = field(default_factory=dict)
    total: Demand = field(default_factory=dict)
    """Of the resources that are charged at all: what would be in use if everything were admitted."""
    own: list[Demand] = field(default_factory=list)
    """What each manifest adds to it, in order."""
    prices: dict[tuple[int, str, str], Priced] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, namespace in self.before.items():
            for at, quota in enumerate(namespace.quotas):
                for resource, hard in quota.status.hard.items():
                    self.hard[name, at, resource] = hard
                    self.used[name, at, resource] = quota.status.used[resource]
        for index in range(len(self.cluster.manifests)):
            demand = self.of(index)
            self.own.append(demand)
            for key, amount in demand.items():
                self.total[key] = self.total.get(key, self.used[key]) + amount

    def of(self, index: int, replicas: int | None = None) -> Demand:
        """What the object is charged in all with so many replicas, or as many as it wants."""
        one = self.cluster.manifests[index]
        namespace = self.before.get(one.namespace)
        found: Demand = {}
        if namespace is None or self.cluster.is_guard(one):
            return found
        planner = self.cluster.planner(one)
        for plan in (*planner.steady(one, replicas), *planner.surging(one, replicas)):
            bill, count = self._bill(index, plan, namespace)
            for at, amounts in bill.items:
                for resource, amount in amounts.items():
                    key = (namespace.name, at, resource)
                    more = amount * count
                    found[key] = found[key] + more if key in found else more
        return found

    def alone(self, over: Sequence[Key]) -> Iterator[Lower]:
        """The objects of which fewer pods are enough, each with the greatest number that is."""
        for index, one in enumerate(self.cluster.manifests):
            wanted = self._lowerable(one)
            if wanted > 1 and all(key in self.own[index] for key in over):
                to = self._greatest(wanted - 1, partial(self._fits, index, over))
                if to:
                    yield Lower(manifest=index, replicas=wanted, to=to)

    def all_lower(self) -> list[Lower]:
        """The objects that get fewer pods when each gets as many as fit after those before it; or none.

        Objects that cannot be made smaller must fit all the same.
        """
        used, found = dict(self.used), []
        for index, one in enumerate(self.cluster.manifests):
            wanted = self._lowerable(one)
            demand = self.own[index]
            if not self._has_room(used, demand):
                to = self._greatest(wanted - 1, partial(self._fits_after, dict(used), index))
                if to is None:
                    return []
                demand = self.of(index, to)
                found.append(Lower(manifest=index, replicas=wanted, to=to))
            for key, amount in demand.items():
                used[key] = used[key] + amount
        return found

    def _fits(self, index: int, over: Sequence[Key], replicas: int) -> bool:
        fewer = self.of(index, replicas)
        for key in over:
            left = self.total[key] - self.own[index][key]
            if (left + fewer[key] if key in fewer else left).compare(self.hard[key]) > 0:
                return False
        return True

    def _fits_after(self, used: Demand, index: int, replicas: int) -> bool:
        return self._has_room(used, self.of(index, replicas))

    def _has_room(self, used: Demand, demand: Demand) -> bool:
        return all((used[key] + amount).compare(self.hard[key]) <= 0 for key, amount in demand.items())

    def _lowerable(self, manifest: Manifest) -> int:
        """How many pods the object says that it wants; 0: it does not say."""
        made = manifest.controller
        return 0 if made is None or made.replicas is None else made.replicas

    def _bill(self, index: int, plan: Plan, namespace: Namespace) -> tuple[Bill, int]:
        """What each set of the plan is charged where there is room, and how many there are."""
        bills, count = [], plan.count
        for part in plan.parts:
            meta = part.object.metadata
            key = (index, str(part.resource), meta.name or meta.generate_name)
            price = self.prices.get(key)
            if price is None:
                price = self.cluster.book.priced(part.resource, part.object, namespace)
                self.prices[key] = price
            if price.bill is not None:
                bills.append(price.bill)
            elif part.is_needed:
                count = 1 if plan.gives_up else count
                break
        return together(bills), count

    @staticmethod
    def _greatest(most: int, is_enough: Callable[[int], bool]) -> int | None:
        """The greatest number from 0 that will do; None: not even 0 does."""
        if most < 0 or not is_enough(0):
            return None
        least = 0
        while least < most:
            middle = (least + most + 1) // 2
            if is_enough(middle):
                least = middle
            else:
                most = middle - 1
        return least
