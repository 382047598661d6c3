"""What becomes of manifests that are applied one after the other: who gets in, who does not, and why."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import msgspec

from nodewright.core.limits import Filled
from nodewright.core.quota import BeyondQuota, Bill, Population, calculated, paid
from nodewright.core.quota.amounts import NOTHING
from nodewright.core.quota.multiple import paid_times, times_payable, together
from nodewright.model.api_request import APIObject, GroupResource
from nodewright.model.manifest import Manifest
from nodewright.model.objects import ObjectMeta, ResourceList
from nodewright.model.quota_objects import (
    DeviceClass,
    LimitRange,
    ResourceClaimTemplate,
    ResourceQuota,
    ResourceQuotaStatus,
)
from nodewright.namespace.plans import Part, Plan, Planner, Setting
from nodewright.namespace.prices import Namespace, PriceBook, Priced, Reason, kind_of

_GUARDS = (ResourceQuota, LimitRange)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The first of a number of objects alike that was not let in."""

    metadata: ObjectMeta
    because: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of objects that are alike."""

    manifest: int
    """Of what was applied, by its place."""
    resource: GroupResource
    name: str
    """Of the first of them."""
    object: APIObject
    """One of them, as it would be stored."""
    wanted: int
    admitted: int = 0
    refused: int = 0
    """What was neither admitted nor refused was never tried, as something went wrong before."""
    charge: tuple[tuple[str, ResourceList], ...] = ()
    """What each of them is charged, by quota."""
    filled: tuple[Filled, ...] = ()
    refusal: Refused | None = None
    is_surge: bool = False
    totals: tuple[tuple[str, ResourceList], ...] = ()
    """What is in use then of the quotas that are charged, as far as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """All that became of the manifests."""

    outcomes: tuple[Outcome, ...]
    before: Mapping[str, Namespace]
    """The namespaces with quotas or limit ranges, as they were."""
    after: Mapping[str, Namespace]
    book: PriceBook = field(default_factory=PriceBook, repr=False, compare=False)

    @property
    def refusals(self) -> tuple[Outcome, ...]:
        """The outcomes that were not as wanted, in order."""
        return tuple(one for one in self.outcomes if one.admitted < one.wanted)


@dataclass(slots=True)
class Cluster:
    """The namespaces while manifests are applied."""

    manifests: Sequence[Manifest]
    setting: Setting
    is_enforced: bool = True
    """False: everything is charged and nothing refused for lack of room."""
    book: PriceBook = field(default_factory=PriceBook)
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    planners: dict[str, Planner] = field(default_factory=dict)

    def apply(self) -> Iterator[Outcome]:
        """Apply all manifests in order; what rolling updates add comes last."""
        steps = [(index, one) for index, one in enumerate(self.manifests) if one.is_namespaced]
        for index, manifest in steps:
            if not self.is_guard(manifest):
                for plan in self.planner(manifest).steady(manifest):
                    yield from self._carry_out(index, manifest.namespace, plan)
        for index, manifest in steps if self.setting.surge else ():
            for plan in self.planner(manifest).surging(manifest):
                yield from self._carry_out(index, manifest.namespace, plan)

    @staticmethod
    def is_guard(manifest: Manifest) -> bool:
        """Whether it is a quota or a limit range: those are there before all else."""
        return isinstance(manifest.object, _GUARDS)

    def namespace(self, name: str) -> Namespace:
        """The namespace of that name; unguarded if nothing is known of it."""
        return self.namespaces.get(name) or Namespace(name=name)

    def planner(self, manifest: Manifest) -> Planner:
        """Who knows what becomes of the manifest."""
        return self.planners.get(manifest.namespace) or Planner(self.setting, MappingProxyType({}))

    def _carry_out(self, index: int, name: str, plan: Plan) -> Iterator[Outcome]:
        namespace = self.namespace(name)
        prices = tuple(self.book.priced(part.resource, part.object, namespace) for part in plan.parts)
        run = _Run(plan, prices, namespace.quotas, is_enforced=self.is_enforced)
        run.go()
        if name in self.namespaces:
            self.namespaces[name] = replace(namespace, quotas=run.quotas)
        yield from (tally.outcome(index, plan, run.quotas) for tally in run.tallies)


@dataclass(slots=True)
class _Tally:
    """What became of one part of all sets."""

    part: Part
    price: Priced
    admitted: int = 0
    refused: int = 0
    refusal: Refused | None = None

    def outcome(self, index: int, plan: Plan, quotas: Sequence[ResourceQuota]) -> Outcome:
        bill = self.price.bill or Bill()
        charge = tuple((quotas[at].name, amounts) for at, amounts in bill.items if amounts)
        totals = tuple(
            (quotas[at].name, {name: quotas[at].status.used[name] for name in amounts})
            for at, amounts in bill.items
            if amounts
        )
        return Outcome(
            manifest=index,
            resource=self.part.resource,
            name=plan.named(self.part, 0).name or self.part.object.metadata.generate_name,
            object=self.price.object,
            wanted=plan.count,
            admitted=self.admitted,
            refused=self.refused,
            charge=charge,
            filled=tuple(one for one in self.price.filled if one.given),
            refusal=self.refusal,
            is_surge=plan.is_surge,
            totals=totals if self.admitted else (),
        )


class _Run:
    """The sets of a plan, one after the other."""

    def __init__(
        self, plan: Plan, prices: Sequence[Priced], quotas: tuple[ResourceQuota, ...], *, is_enforced: bool
    ) -> None:
        self.plan, self.quotas = plan, quotas
        self.tallies = [_Tally(part, price) for part, price in zip(plan.parts, prices, strict=True)]
        self._bills = [
            price.bill and (price.bill if is_enforced else replace(price.bill, enforced=False))
            for price in prices
        ]
        self._is_enforced = is_enforced

    def go(self) -> None:
        """Make as many sets as can be made."""
        count = self.plan.count
        for number in range(self._at_once(count), count):
            before = self.quotas
            counts = [(tally.admitted, tally.refused) for tally in self.tallies]
            is_made = self._make(number)
            if not is_made and self.plan.gives_up:
                return
            if self.quotas == before:
                # It will be the same with all others.
                left = count - number - 1
                for tally, (admitted, refused) in zip(self.tallies, counts, strict=True):
                    tally.admitted += left * (tally.admitted - admitted)
                    tally.refused += left * (tally.refused - refused)
                return

    def _at_once(self, count: int) -> int:
        """How many whole sets there is room for; they are made."""
        bills = [bill for bill in self._bills if bill is not None]
        if len(bills) < len(self._bills):
            return 0
        bill = together(bills)
        times = times_payable(bill, self.quotas) if self._is_enforced else None
        times = count if times is None else min(times, count)
        self.quotas = paid_times(bill, self.quotas, times)
        for tally in self.tallies:
            tally.admitted += times
        return times

    def _make(self, number: int) -> bool:
        """Make what can be made of one set; whether it is whole as far as that is needed."""
        for tally, bill in zip(self.tallies, self._bills, strict=True):
            because = tally.price.because
            if bill is not None:
                verdict = paid(bill, self.quotas)
                if isinstance(verdict, BeyondQuota):
                    because = verdict.because
                else:
                    self.quotas = verdict.quotas
            if because is None:
                tally.admitted += 1
                continue
            tally.refused += 1
            if tally.refusal is None:
                tally.refusal = Refused(metadata=self.plan.named(tally.part, number), because=because)
            if tally.part.is_needed:
                return False
        return True


# ---------------------------------------------------------------- what is there before


def apply(
    manifests: Sequence[Manifest],
    setting: Setting,
    *,
    is_enforced: bool = True,
    again: Applied | None = None,
) -> Applied:
    """What becomes of the manifests, applied in their order.

    Quotas, limit ranges, templates and classes are in force from the beginning, wherever they stand.
    `again`: what became of the same manifests before, which saves most of the work.
    Departs: controllers make their objects at once, before the next manifest is applied; in a cluster they work
        side by side, so that who comes first is a matter of luck.
    """
    namespaces = guarded(manifests, setting) if again is None else again.before
    cluster = cluster_of(manifests, setting, namespaces, PriceBook() if again is None else again.book)
    cluster.is_enforced = is_enforced
    outcomes = tuple(cluster.apply())
    return Applied(outcomes=outcomes, before=namespaces, after=cluster.namespaces, book=cluster.book)


def cluster_of(
    manifests: Sequence[Manifest],
    setting: Setting,
    namespaces: Mapping[str, Namespace],
    book: PriceBook,
) -> Cluster:
    """The cluster with these namespaces before anything is applied."""
    templates: dict[str, dict[str, ResourceClaimTemplate]] = {}
    for one in manifests:
        if isinstance(one.object, ResourceClaimTemplate):
            templates.setdefault(one.namespace, {})[one.name] = one.object
    planners = {name: Planner(setting, known) for name, known in templates.items()}
    return Cluster(manifests, setting, book=book, namespaces=dict(namespaces), planners=planners)


def guarded(manifests: Sequence[Manifest], setting: Setting) -> dict[str, Namespace]:
    """The namespaces with quotas or limit ranges; in use is what those are charged, or what quotas' status says."""
    classes = {
        one.name: one.object.spec.extended_resource_name
        for one in manifests
        if isinstance(one.object, DeviceClass)
    }
    names = dict.fromkeys(one.namespace for one in manifests if isinstance(one.object, _GUARDS))
    return {name: _guarded(name, manifests, classes, setting) for name in names}


def _guarded(
    name: str, manifests: Iterable[Manifest], classes: Mapping[str, str], setting: Setting
) -> Namespace:
    own = [one for one in manifests if one.namespace == name and isinstance(one.object, _GUARDS)]
    quotas = [one.object for one in own if isinstance(one.object, ResourceQuota)]
    ranges = tuple(one.object for one in own if isinstance(one.object, LimitRange))
    empty = Namespace(name=name, limit_ranges=ranges, device_classes=MappingProxyType(dict(classes)))
    populations = [
        Population(kind_of(resource, empty), [guard.object for guard in own if guard.resource == resource])
        for resource in dict.fromkeys(guard.resource for guard in own)
    ]
    begun = (_begun(quota, setting) for quota in quotas)
    if setting.from_status:
        return replace(empty, quotas=tuple(begun))
    return replace(empty, quotas=tuple(calculated(quota, populations) for quota in begun))


def _begun(quota: ResourceQuota, setting: Setting) -> ResourceQuota:
    """The quota as its controller has worked it out; of what nothing is known nothing is in use."""
    hard = quota.spec.hard
    known = quota.status.used if setting.from_status else {}
    used = {name: known.get(name, NOTHING) for name in hard}
    return msgspec.structs.replace(quota, status=ResourceQuotaStatus(hard=hard, used=used))
