"""Changes that make everything fit, and the remaining headroom for pods."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.documents.output.json_yaml import Report
from nodewright.engine.admission.api_server.apply import (
    ApplyOutcome,
    ApplyResult,
    NamespaceStates,
    apply,
    initial_namespaces,
)
from nodewright.engine.admission.api_server.charges import (
    VOLUME_CLAIM_RESOURCE,
    NamespacePolicy,
    ObjectCharge,
)
from nodewright.engine.admission.api_server.expansion import ExpansionOptions, ExpansionPlan, fenceposts
from nodewright.engine.admission.api_server.pod_creation import ObjectRejection
from nodewright.engine.admission.quota.quota_admission import QuotaDelta, combined_delta, max_repetitions
from nodewright.model.kubernetes.api_request import Manifest
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.quantity import Quantity
from nodewright.predict.quota.remedies import remedy

MAX_REMEDIES = 50
"""Number of refused objects for which changes of the pod are tried."""
QuotaResourceKey: TypeAlias = tuple[str, int, str]
"""A resource of a quota: namespace, index of the quota, name of the resource."""
ChargesByQuota: TypeAlias = dict[QuotaResourceKey, Quantity]


class PodHeadroom(msgspec.Struct, frozen=True, kw_only=True):
    """How many more pods of an object fit, with all objects that each of them needs."""

    manifest: int
    additional_pods: int | None
    """None: the quotas set no limit."""
    because: ObjectRejection | None = None
    """Why no further pod is admitted, if not because of an exceeded quota."""
    update_hangs: bool = False
    """Whether a rolling update never ends: it must create a pod before it deletes one, and none more fits."""


class RaisedQuota(Report, frozen=True, kw_only=True):
    """The minimum that `spec.hard` of a quota needs."""

    namespace: str
    quota: str
    resource: str
    hard: Quantity = msgspec.field(name="from")
    minimum: Quantity = msgspec.field(name="to")


class ReplicaReduction(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum number of replicas of an object."""

    manifest: int
    replicas: int
    maximum: int


class QuotaFixes(msgspec.Struct, frozen=True, kw_only=True):
    """Alternatives that make everything fit: all increases, one single reduction, or all combined reductions."""

    quota_increases: tuple[RaisedQuota, ...] = ()
    single_reductions: tuple[ReplicaReduction, ...] = ()
    """Each of them is sufficient."""
    combined_reductions: tuple[ReplicaReduction, ...] = ()
    """All of these together, if no single one is sufficient; empty: reductions alone do not help."""
    without_surge: tuple[tuple[int, ...], ...] = ()
    """The objects for which `maxSurge: 0` is sufficient: each alone, or all of them together."""
    unfixable: tuple[ApplyOutcome, ...] = ()
    """Objects that are refused regardless of the quotas' amounts."""
    remedies: Mapping[int, str] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """For the first of these manifests: what to set in the pod, so that it passes; empty: no change of amounts helps."""
    required: Mapping[str, NamespacePolicy] = msgspec.field(default_factory=lambda: MappingProxyType({}))
    """The namespaces after everything is admitted."""


def pod_headroom(
    manifests: Sequence[Manifest], applied: ApplyResult, options: ExpansionOptions
) -> tuple[PodHeadroom, ...]:
    """For each pod or controller in a namespace with quotas or limit ranges: how many more pods fit."""
    cluster = initial_namespaces(manifests, options, applied.after, applied.charge_cache)
    headroom, refusals = [], applied.refusals
    for index, manifest in enumerate(manifests):
        namespace = applied.after.get(manifest.namespace)
        if isinstance(manifest.object, Pod) and manifest.object.is_terminal:
            continue
        plan = _single_pod_plan(cluster, manifest) if namespace is not None else None
        if namespace is None or plan is None:
            continue
        object_charges = [
            cluster.charge_cache.object_charge(planned.resource, planned.object, namespace)
            for planned in plan.objects
        ]
        reasons = (namespace.refusal_of_new_objects, *(each.because for each in object_charges))
        because = next((reason for reason in reasons if reason is not None), None)
        delta = combined_delta(
            object_charge.delta for object_charge in object_charges if object_charge.delta is not None
        )
        additional_pods = 0 if because is not None else max_repetitions(delta, namespace.quotas)
        is_admitted = not any(refusal.manifest == index for refusal in refusals)
        headroom.append(
            PodHeadroom(
                manifest=index,
                additional_pods=additional_pods,
                because=because,
                update_hangs=additional_pods == 0 and is_admitted and _needs_surge(cluster, manifest),
            )
        )
    return tuple(headroom)


def _needs_surge(cluster: NamespaceStates, manifest: Manifest) -> bool:
    """Whether an update creates a pod before it deletes one.

    Follows: v1.36, pkg/controller/deployment/rolling.go, reconcileOldReplicaSets: `maxUnavailable`, rounded down, may be 0.
    """
    controller, replicas = manifest.controller, cluster.expander(manifest).replicas(manifest)
    if controller is None or controller.rolling_update is None or not replicas:
        return False
    surge, unavailable = fenceposts(controller.rolling_update, replicas)
    return surge > 0 and not unavailable


def smallest_fixes(
    manifests: Sequence[Manifest], applied: ApplyResult, options: ExpansionOptions
) -> QuotaFixes:
    """The smallest changes that make everything fit."""
    if not applied.refusals:
        return QuotaFixes(required=applied.after)
    full = apply(manifests, options, is_enforced=False, again=applied)
    quota_increases = tuple(_quota_increases(applied.before, full.after))

    def totals_with(options: ExpansionOptions) -> _ChargeTotals:
        cluster = initial_namespaces(manifests, options, applied.before, applied.charge_cache)
        return _ChargeTotals(cluster, applied.before)

    totals = totals_with(options)
    exceeded = totals.exceeded()
    single_reductions = tuple(totals.single_reductions(exceeded)) if exceeded else ()
    return QuotaFixes(
        quota_increases=quota_increases,
        single_reductions=single_reductions,
        combined_reductions=() if single_reductions or not exceeded else tuple(totals.combined_reductions()),
        without_surge=totals.without_surge(totals_with(replace(options, surge=False)), exceeded)
        if exceeded and options.surge
        else (),
        unfixable=full.refusals,
        remedies=_remedies(manifests, full),
        required=full.after,
    )


def _remedies(manifests: Sequence[Manifest], full: ApplyResult) -> dict[int, str]:
    counts = {outcome.manifest: outcome.requested for outcome in reversed(full.refusals)}
    return {
        index: remedy(manifests[index], full.before[manifests[index].namespace], counts[index])
        for index in sorted(counts)[:MAX_REMEDIES]
        if manifests[index].namespace in full.before
    }


def _single_pod_plan(cluster: NamespaceStates, manifest: Manifest) -> ExpansionPlan | None:
    """The plan for one pod of the object; None: it has no pods."""
    if manifest.kind != "Pod" and manifest.controller is None:
        return None
    return list(cluster.expander(manifest).steady_plans(manifest, 1))[-1]


def _quota_increases(
    before: Mapping[str, NamespacePolicy], after: Mapping[str, NamespacePolicy]
) -> Iterator[RaisedQuota]:
    for name, namespace in after.items():
        for quota_before, quota in zip(before[name].quotas, namespace.quotas, strict=True):
            for resource in sorted(quota.status.hard):
                hard, used = quota.status.hard[resource], quota.status.used[resource]
                if used.compare(hard) > 0 and used.compare(quota_before.status.used[resource]) > 0:
                    yield RaisedQuota(
                        namespace=name, quota=quota.name, resource=resource, hard=hard, minimum=used
                    )


# ---------------------------------------------------------------- fewer replicas


@dataclass(slots=True)
class _ChargeTotals:
    """The total charge of each object, depending on its number of replicas."""

    cluster: NamespaceStates
    before: Mapping[str, NamespacePolicy]
    hard: ChargesByQuota = field(default_factory=dict)
    used: ChargesByQuota = field(default_factory=dict)
    total: ChargesByQuota = field(default_factory=dict)
    """Used amounts of charged resources if everything were admitted."""
    by_manifest: list[ChargesByQuota] = field(default_factory=list)
    """The part of each manifest, in order."""
    object_charges: dict[tuple[int, str, str], ObjectCharge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, namespace in self.before.items():
            for at, quota in enumerate(namespace.quotas):
                for resource, hard in quota.status.hard.items():
                    self.hard[name, at, resource] = hard
                    self.used[name, at, resource] = quota.status.used[resource]
        for index in range(len(self.cluster.manifests)):
            charges = self.charges_of(index)
            self.by_manifest.append(charges)
            for key, amount in charges.items():
                self.total[key] = self.total.get(key, self.used[key]) + amount

    def charges_of(self, index: int, replicas: int | None = None) -> ChargesByQuota:
        """The total charge of the object with so many replicas, or as many as it specifies."""
        manifest = self.cluster.manifests[index]
        namespace = self.before.get(manifest.namespace)
        charges: ChargesByQuota = {}
        if namespace is None or self.cluster.is_quota_or_limit_range(manifest):
            return charges
        expander = self.cluster.expander(manifest)
        for plan in (*expander.steady_plans(manifest, replicas), *expander.surge_plans(manifest, replicas)):
            delta, count = self._set_delta(index, plan, namespace)
            for at, amounts in delta.items:
                for resource, amount in amounts.items():
                    key = (namespace.name, at, resource)
                    charge = amount * count
                    charges[key] = charges[key] + charge if key in charges else charge
        return charges

    def exceeded(self) -> list[QuotaResourceKey]:
        """The resources that do not suffice."""
        return [key for key, hard in self.hard.items() if self.total.get(key, hard).compare(hard) > 0]

    def without_surge(
        self, steady: "_ChargeTotals", exceeded: Sequence[QuotaResourceKey]
    ) -> tuple[tuple[int, ...], ...]:
        """The objects that have no pods beyond their replicas in ``steady``, if that is sufficient: each alone, or all."""
        surging = [at for at, charges in enumerate(steady.by_manifest) if charges != self.by_manifest[at]]
        alone = [at for at in surging if self._fits_with(steady.by_manifest[at], at, exceeded)]
        if alone:
            return tuple((at,) for at in alone)
        return () if steady.exceeded() else (tuple(surging),)

    def single_reductions(self, exceeded: Sequence[QuotaResourceKey]) -> Iterator[ReplicaReduction]:
        """The objects for which fewer replicas are sufficient, each with the largest such number."""
        for index, manifest in enumerate(self.cluster.manifests):
            replicas = self._reducible_replicas(manifest)
            if replicas > 1 and all(key in self.by_manifest[index] for key in exceeded):
                maximum = self._largest(replicas - 1, partial(self._fits, index, exceeded))
                if maximum:
                    yield ReplicaReduction(manifest=index, replicas=replicas, maximum=maximum)

    def combined_reductions(self) -> list[ReplicaReduction]:
        """The objects with fewer replicas, at least one, if each gets as many as the later ones leave; or none.

        Objects that cannot be reduced must fit as they are.
        """
        counts = [self._reducible_replicas(manifest) for manifest in self.cluster.manifests]
        least = [
            self.charges_of(index, 1) if replicas > 1 else self.by_manifest[index]
            for index, replicas in enumerate(counts)
        ]
        used, reductions = dict(self.used), []
        for key, amount in (item for charges in least for item in charges.items()):
            used[key] = used[key] + amount
        if any(used[key].compare(self.hard[key]) > 0 for charges in least for key in charges):
            return []
        for index, replicas in enumerate(counts):
            if replicas <= 1:
                continue
            for key, amount in least[index].items():
                used[key] = used[key] - amount
            maximum = self._largest(replicas, partial(self._fits_after, dict(used), index)) or 1
            if maximum < replicas:
                reductions.append(ReplicaReduction(manifest=index, replicas=replicas, maximum=maximum))
            for key, amount in self.charges_of(index, maximum).items():
                used[key] = used[key] + amount
        return reductions

    def _fits(self, index: int, exceeded: Sequence[QuotaResourceKey], replicas: int) -> bool:
        return self._fits_with(self.charges_of(index, replicas), index, exceeded)

    def _fits_with(self, reduced: ChargesByQuota, index: int, exceeded: Sequence[QuotaResourceKey]) -> bool:
        for key in exceeded:
            left = self.total[key]
            if key in self.by_manifest[index]:
                left -= self.by_manifest[index][key]
            if (left + reduced[key] if key in reduced else left).compare(self.hard[key]) > 0:
                return False
        return True

    def _fits_after(self, used: ChargesByQuota, index: int, replicas: int) -> bool:
        return self._has_room(used, self.charges_of(index, replicas))

    def _has_room(self, used: ChargesByQuota, charges: ChargesByQuota) -> bool:
        return all((used[key] + amount).compare(self.hard[key]) <= 0 for key, amount in charges.items())

    def _reducible_replicas(self, manifest: Manifest) -> int:
        """The replicas that the object specifies; 0: it specifies none."""
        controller = manifest.controller
        return 0 if controller is None or controller.replicas is None else controller.replicas

    def _set_delta(
        self, index: int, plan: ExpansionPlan, namespace: NamespacePolicy
    ) -> tuple[QuotaDelta, int]:
        """The charge of each set of the plan, and the number of sets."""
        deltas, count, is_made = [], plan.count, True
        for planned in plan.objects:
            if not is_made and planned.resource != VOLUME_CLAIM_RESOURCE:
                break
            meta = planned.object.metadata
            key = (index, str(planned.resource), meta.name or meta.generate_name)
            object_charge = self.object_charges.get(key)
            if object_charge is None:
                object_charge = self.cluster.charge_cache.object_charge(
                    planned.resource, planned.object, namespace
                )
                self.object_charges[key] = object_charge
            if object_charge.delta is not None:
                deltas.append(object_charge.delta)
            elif planned.is_required:
                count, is_made = plan.batch_end(0), False
        return combined_delta(deltas), count

    @staticmethod
    def _largest(high: int, is_enough: Callable[[int], bool]) -> int | None:
        """The largest number from 0 that is sufficient; None: not even 0 is."""
        if high < 0 or not is_enough(0):
            return None
        low = 0
        while low < high:
            middle = (low + high + 1) // 2
            if is_enough(middle):
                low = middle
            else:
                high = middle - 1
        return low
