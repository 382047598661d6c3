"""Applies manifests one after the other under quotas and limit ranges: which objects are admitted, and why not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.api_server.charges import (
    VOLUME_CLAIM_RESOURCE,
    ChargeCache,
    NamespacePolicy,
    ObjectCharge,
    counted_kind,
)
from nodewright.engine.admission.api_server.expansion import (
    ExpansionOptions,
    ExpansionPlan,
    ManifestExpander,
    PlannedObject,
)
from nodewright.engine.admission.api_server.pod_creation import ObjectRejection
from nodewright.engine.admission.limit_ranger import DefaultedByLimitRange
from nodewright.engine.admission.quota.evaluator import (
    ZERO_AMOUNT,
    NamespaceObjects,
    charged_quota_as_stored,
    with_calculated_usage,
)
from nodewright.engine.admission.quota.object_usage import stands_for_extended_resources
from nodewright.engine.admission.quota.quota_admission import (
    BeyondQuota,
    QuotaDelta,
    combined_delta,
    max_repetitions,
    with_delta,
    with_repeated_deltas,
)
from nodewright.model.kubernetes.api_request import APIObject, GroupResource, Manifest
from nodewright.model.kubernetes.cluster_objects import (
    DeviceClass,
    LimitRange,
    Namespace,
    PartialObjectMetadata,
    PriorityClass,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceQuota,
    ResourceQuotaStatus,
    RuntimeClass,
)
from nodewright.model.kubernetes.objects import ObjectMeta, Pod, ResourceList

_GUARDS = (ResourceQuota, LimitRange)
_OBJECTS_OF_CONTROLLERS = (
    (GroupResource("configmaps"), "kube-root-ca.crt"),
    (GroupResource("serviceaccounts"), "default"),
)
"""The objects that controllers create in every namespace.

Follows: v1.36, pkg/controller/certificates/rootcacertpublisher/publisher.go;
    pkg/controller/serviceaccount/serviceaccounts_controller.go.
"""


class RefusedObject(msgspec.Struct, frozen=True, kw_only=True):
    """The first rejected object of several equal ones."""

    metadata: ObjectMeta
    because: ObjectRejection


class ApplyOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of equal objects."""

    manifest: int
    """Index of the manifest."""
    resource: GroupResource
    name: str
    """Name of the first object."""
    object: APIObject
    """The first object as it would be stored."""
    requested: int
    admitted: int = 0
    refused: int = 0
    """Objects that are neither admitted nor refused were not tried, because of an earlier failure."""
    charge: tuple[tuple[str, ResourceList], ...] = ()
    """The charge of each object, by quota."""
    filled: tuple[DefaultedByLimitRange, ...] = ()
    refusal: RefusedObject | None = None
    is_surge: bool = False
    totals: tuple[tuple[str, ResourceList], ...] = ()
    """Used amounts of the charged quotas afterwards, for the charged resources."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyResult:
    """The outcomes of all manifests."""

    outcomes: tuple[ApplyOutcome, ...]
    before: Mapping[str, NamespacePolicy]
    """The namespaces with quotas or limit ranges, before the manifests are applied."""
    after: Mapping[str, NamespacePolicy]
    charge_cache: ChargeCache = field(default_factory=ChargeCache, repr=False, compare=False)

    @property
    def refusals(self) -> tuple[ApplyOutcome, ...]:
        """The outcomes with fewer admitted than requested objects, in order."""
        return tuple(outcome for outcome in self.outcomes if outcome.admitted < outcome.requested)


@dataclass(slots=True)
class NamespaceStates:
    """The state of the namespaces while manifests are applied."""

    manifests: Sequence[Manifest]
    options: ExpansionOptions
    is_enforced: bool = True
    """False: everything is charged and nothing is refused for an exceeded quota."""
    charge_cache: ChargeCache = field(default_factory=ChargeCache)
    namespaces: dict[str, NamespacePolicy] = field(default_factory=dict)
    expanders: dict[str, ManifestExpander] = field(default_factory=dict)
    unguarded: NamespacePolicy = field(default_factory=lambda: NamespacePolicy(name=""))
    """A namespace without quotas and limit ranges."""
    incomplete: set[int] = field(default_factory=set)
    """The manifests that are refused, or of which an object between them and their pods is."""

    def apply(self) -> Iterator[ApplyOutcome]:
        """Applies all manifests in order; surge pods of rolling updates come last."""
        steps = [(index, manifest) for index, manifest in enumerate(self.manifests) if manifest.is_namespaced]
        for index, manifest in steps:
            if not self.is_quota_or_limit_range(manifest):
                yield from self._execute_all(index, manifest, self.expander(manifest).steady_plans(manifest))
        for index, manifest in steps if self.options.surge else ():
            if index not in self.incomplete:
                yield from self._execute_all(index, manifest, self.expander(manifest).surge_plans(manifest))

    def _execute_all(
        self, index: int, manifest: Manifest, plans: Iterable[ExpansionPlan]
    ) -> Iterator[ApplyOutcome]:
        """Executes the plans of one object: an object that is refused has no children.

        Follows: v1.36, pkg/controller/deployment/sync.go, getNewReplicaSet; pkg/controller/daemon/update.go,
            constructHistory; pkg/controller/statefulset/stateful_set_control.go, getStatefulSetRevisions.
        """
        for plan in plans:
            outcomes = tuple(self._execute(index, manifest, plan, is_tried=index not in self.incomplete))
            if plan.pod is None and any(outcome.refused for outcome in outcomes):
                self.incomplete.add(index)
            yield from outcomes

    @staticmethod
    def is_quota_or_limit_range(manifest: Manifest) -> bool:
        """Whether it is a quota or a limit range: these exist before all other objects."""
        return isinstance(manifest.object, _GUARDS)

    def namespace(self, name: str) -> NamespacePolicy:
        """The namespace of that name; without quotas and limit ranges if it is unknown."""
        return self.namespaces.get(name) or replace(self.unguarded, name=name)

    def expander(self, manifest: Manifest) -> ManifestExpander:
        """The expander for the manifest's namespace."""
        return self.expanders.get(manifest.namespace) or ManifestExpander(self.options, MappingProxyType({}))

    def _execute(
        self, index: int, manifest: Manifest, plan: ExpansionPlan, *, is_tried: bool
    ) -> Iterator[ApplyOutcome]:
        namespace = self.namespace(manifest.namespace)
        charges = tuple(self._charge(planned, manifest, namespace) for planned in plan.objects)
        run = _PlanRun(plan, charges, namespace.quotas, is_enforced=self.is_enforced)
        if is_tried:
            run.run()
        if namespace.name in self.namespaces:
            self.namespaces[namespace.name] = replace(namespace, quotas=run.quotas)
        yield from (counts.outcome(index, plan, run.quotas) for counts in run.counts_by_object)

    def _charge(self, planned: PlannedObject, manifest: Manifest, namespace: NamespacePolicy) -> ObjectCharge:
        because = namespace.refusal_of_new_objects
        is_stored = manifest.is_stored and planned.object is manifest.object
        if because is None or is_stored:
            return self.charge_cache.object_charge(
                planned.resource, planned.object, namespace, is_stored=is_stored
            )
        return ObjectCharge(resource=planned.resource, object=planned.object, because=because)


@dataclass(slots=True)
class _ObjectCounts:
    """Counts for one object of all sets of a plan."""

    planned: PlannedObject
    charge: ObjectCharge
    admitted: int = 0
    refused: int = 0
    refusal: RefusedObject | None = None

    def outcome(self, index: int, plan: ExpansionPlan, quotas: Sequence[ResourceQuota]) -> ApplyOutcome:
        delta = self.charge.delta or QuotaDelta()
        charge = tuple((quotas[at].name, amounts) for at, amounts in delta.items if amounts)
        totals = tuple(
            (quotas[at].name, {name: quotas[at].status.used[name] for name in amounts})
            for at, amounts in delta.items
            if amounts
        )
        return ApplyOutcome(
            manifest=index,
            resource=self.planned.resource,
            name=plan.object_metadata(self.planned, 0).name or self.planned.object.metadata.generate_name,
            object=self.charge.object,
            requested=plan.count,
            admitted=self.admitted,
            refused=self.refused,
            charge=charge,
            filled=tuple(defaulted for defaulted in self.charge.filled if defaulted.defaults),
            refusal=self.refusal,
            is_surge=plan.is_surge,
            totals=totals if self.admitted else (),
        )


class _PlanRun:
    """Applies the sets of a plan, one after the other."""

    def __init__(
        self,
        plan: ExpansionPlan,
        charges: Sequence[ObjectCharge],
        quotas: tuple[ResourceQuota, ...],
        *,
        is_enforced: bool,
    ) -> None:
        self.plan, self.quotas = plan, quotas
        self.counts_by_object = [
            _ObjectCounts(planned, charge) for planned, charge in zip(plan.objects, charges, strict=True)
        ]
        self._deltas = [
            charge.delta and (charge.delta if is_enforced else replace(charge.delta, enforced=False))
            for charge in charges
        ]
        self._is_enforced = is_enforced

    def run(self) -> None:
        """Applies as many sets as possible."""
        end = self.plan.count
        number = self._apply_complete_sets(end)
        while number < end:
            before = self.quotas
            counts_before = [(counts.admitted, counts.refused) for counts in self.counts_by_object]
            if not self._apply_set(number):
                end = self.plan.batch_end(number)
            number += 1
            if self.quotas == before:
                # The outcome is the same for all further sets.
                remaining = end - number
                for counts, (admitted, refused) in zip(self.counts_by_object, counts_before, strict=True):
                    counts.admitted += remaining * (counts.admitted - admitted)
                    counts.refused += remaining * (counts.refused - refused)
                return

    def _apply_complete_sets(self, count: int) -> int:
        """Applies as many complete sets at once as the quotas allow; their number."""
        deltas = [delta for delta in self._deltas if delta is not None]
        if len(deltas) < len(self._deltas):
            return 0
        delta = combined_delta(deltas)
        times = max_repetitions(delta, self.quotas) if self._is_enforced else None
        times = count if times is None else min(times, count)
        self.quotas = with_repeated_deltas(deltas, self.quotas, times)
        for counts in self.counts_by_object:
            counts.admitted += times
        return times

    def _apply_set(self, number: int) -> bool:
        """Applies one set as far as possible; whether all required objects are admitted.

        All claims of a StatefulSet's pod are tried before the pod, which needs each of them.
        Follows: v1.36, pkg/controller/statefulset/stateful_pod_control.go, createPersistentVolumeClaims.
        """
        is_made = True
        for counts, delta in zip(self.counts_by_object, self._deltas, strict=True):
            is_claim = counts.planned.resource == VOLUME_CLAIM_RESOURCE
            if not is_made and not is_claim:
                return False
            because = counts.charge.because
            if delta is not None:
                verdict = with_delta(delta, self.quotas)
                if isinstance(verdict, BeyondQuota):
                    because = verdict.because
                else:
                    self.quotas = tuple(map(charged_quota_as_stored, self.quotas, verdict.quotas))
            if because is None:
                counts.admitted += 1
                continue
            counts.refused += 1
            if counts.refusal is None:
                counts.refusal = RefusedObject(
                    metadata=self.plan.object_metadata(counts.planned, number), because=because
                )
            is_made &= not counts.planned.is_required
        return is_made


# ---------------------------------------------------------------- initial state


def apply(
    manifests: Sequence[Manifest],
    options: ExpansionOptions,
    *,
    is_enforced: bool = True,
    again: ApplyResult | None = None,
    charge_cache: ChargeCache | None = None,
) -> ApplyResult:
    """Applies the manifests in order.

    Quotas, limit ranges, templates and classes are in force from the beginning, whatever their position.
    ``again``: an earlier result for the same manifests, which saves most of the work; ``charge_cache``: likewise, with
    pods that have been created before.
    Departs: controllers create their objects at once, before the next manifest is applied; in a cluster they run
        concurrently, so that the order is not determined.
    """
    namespaces = namespaces_with_quotas(manifests, options) if again is None else again.before
    if charge_cache is None:
        charge_cache = ChargeCache() if again is None else again.charge_cache
    cluster = initial_namespaces(manifests, options, namespaces, charge_cache)
    cluster.is_enforced = is_enforced
    outcomes = tuple(cluster.apply())
    return ApplyResult(
        outcomes=outcomes, before=namespaces, after=cluster.namespaces, charge_cache=cluster.charge_cache
    )


def initial_namespaces(
    manifests: Sequence[Manifest],
    options: ExpansionOptions,
    namespaces: Mapping[str, NamespacePolicy],
    charge_cache: ChargeCache,
) -> NamespaceStates:
    """The state of these namespaces before any manifest is applied."""
    templates: dict[str, dict[str, ResourceClaimTemplate]] = {}
    for manifest in manifests:
        if isinstance(manifest.object, ResourceClaimTemplate):
            templates.setdefault(manifest.namespace, {})[manifest.name] = manifest.object
    expanders = {name: ManifestExpander(options, known) for name, known in templates.items()}
    return NamespaceStates(
        manifests,
        options,
        charge_cache=charge_cache,
        namespaces=dict(namespaces),
        expanders=expanders,
        unguarded=_unguarded_namespace(manifests, options),
    )


def namespaces_with_quotas(
    manifests: Sequence[Manifest], options: ExpansionOptions
) -> dict[str, NamespacePolicy]:
    """The namespaces with quotas or limit ranges; used amounts are calculated, or those in the quotas' status."""
    unguarded = _unguarded_namespace(manifests, options)
    members: dict[str, list[Manifest]] = {}
    for manifest in manifests:
        members.setdefault(manifest.namespace, []).append(manifest)
    names = dict.fromkeys(
        manifest.namespace for manifest in manifests if isinstance(manifest.object, _GUARDS)
    )
    return {name: _namespace_policy(replace(unguarded, name=name), members[name], options) for name in names}


def _unguarded_namespace(manifests: Sequence[Manifest], options: ExpansionOptions) -> NamespacePolicy:
    """A namespace without quotas and limit ranges, in the cluster of the manifests."""
    objects = [manifest.object for manifest in manifests]
    classes = {
        item.metadata.name: item.spec.extended_resource_name
        for item in objects
        if isinstance(item, DeviceClass)
    }
    return NamespacePolicy(
        name="",
        device_classes=MappingProxyType(classes),
        priority_classes=tuple(item for item in objects if isinstance(item, PriorityClass)),
        runtime_classes=tuple(item for item in objects if isinstance(item, RuntimeClass)),
        gates=options.gates,
        terminating=frozenset(
            item.metadata.name for item in objects if isinstance(item, Namespace) and item.is_terminating
        ),
    )


def _namespace_policy(
    unguarded: NamespacePolicy, here: Sequence[Manifest], options: ExpansionOptions
) -> NamespacePolicy:
    guards = [manifest for manifest in here if isinstance(manifest.object, _GUARDS)]
    quotas = [guard.object for guard in guards if isinstance(guard.object, ResourceQuota)]
    ranges = tuple(guard.object for guard in guards if isinstance(guard.object, LimitRange))
    objects_here = [manifest.object for manifest in here]
    claims = (item for item in objects_here if isinstance(item, ResourceClaim))
    extended = tuple(filter(stands_for_extended_resources, claims))
    pods = {item.metadata.name: item for item in objects_here if isinstance(item, Pod)} if extended else {}
    namespace = replace(unguarded, limit_ranges=ranges, claims=extended, pods=MappingProxyType(pods))
    initial_quotas = (_with_initial_status(quota, options) for quota in quotas)
    if options.from_status:
        return replace(namespace, quotas=tuple(initial_quotas))
    written = {(manifest.resource, manifest.name) for manifest in here}
    objects = [(guard.resource, guard.object) for guard in guards]
    objects += [
        (resource, PartialObjectMetadata(metadata=ObjectMeta(name=name, namespace=unguarded.name)))
        for resource, name in _OBJECTS_OF_CONTROLLERS
        if (resource, name) not in written
    ]
    populations = [
        NamespaceObjects(
            counted_kind(resource, namespace),
            [item for item_resource, item in objects if item_resource == resource],
        )
        for resource in dict.fromkeys(resource for resource, _ in objects)
    ]
    return replace(
        namespace, quotas=tuple(with_calculated_usage(quota, populations) for quota in initial_quotas)
    )


def _with_initial_status(quota: ResourceQuota, options: ExpansionOptions) -> ResourceQuota:
    """The quota with a status from its controller; with the amounts in use of its own status, only resources that it has."""
    hard = quota.spec.hard
    used = quota.status.used if options.from_status else dict.fromkeys(hard, ZERO_AMOUNT)
    known = {name: amount for name, amount in hard.items() if name in used}
    status = ResourceQuotaStatus(hard=known, used={name: used[name] for name in known})
    return replace(quota, status=status)


def unknown_usage(quota: ResourceQuota) -> str:
    """Names the resources of a quota whose usage its status does not have; empty: it has all.

    Follows: v1.36, apiserver/pkg/admission/plugin/resourcequota/controller.go, CheckRequest (`status.hard` is enforced).
    """
    missing = sorted(quota.spec.hard.keys() - quota.status.used.keys())
    name = f"{quota.metadata.namespace or 'default'}/{quota.metadata.name}"
    return (
        f"ResourceQuota {name}: `status` does not have what is in use of {', '.join(missing)}"
        if missing
        else ""
    )
