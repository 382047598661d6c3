"""Expands manifests to the objects that controllers create: replicas, and the objects of each replica."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from nodewright.engine.admission.api_server.charges import (
    POD_RESOURCE,
    RESOURCE_CLAIM_RESOURCE,
    VOLUME_CLAIM_RESOURCE,
)
from nodewright.model.kubernetes.api_request import (
    APIObject,
    GroupResource,
    Manifest,
    RollingUpdate,
    WorkloadController,
)
from nodewright.model.kubernetes.cluster_objects import (
    PartialObjectMetadata,
    PersistentVolumeClaim,
    ResourceClaim,
    ResourceClaimTemplate,
)
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.releases.feature_gates import DEFAULT_GATES, FeatureGates

_PERCENT = re.compile(r"([0-9]+)%", re.ASCII)


class PlannedObject(NamedTuple):
    """One object of a set."""

    resource: GroupResource
    object: APIObject
    is_required: bool = True
    """Whether the following objects of the set are not created without it."""


class ExpansionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Equal sets of objects that are created one after the other."""

    objects: tuple[PlannedObject, ...]
    """One set, in order of creation."""
    count: int = 1
    pod: Pod | None = None
    """The pod after which the objects of a set are named; None: the names are fixed."""
    first_ordinal: int = 0
    """Ordinal of the first pod."""
    max_batch: int = 0
    """The most sets that are tried whatever becomes of the others: batches double from one set up to it, and none
    follows a batch with a failure; 0: all sets are tried."""
    is_surge: bool = False
    """Whether these are the surge pods of a rolling update."""

    def batch_end(self, number: int) -> int:
        """The number of the first set that is not tried if the set with this number, from 0, fails.

        Follows: v1.36, pkg/controller/statefulset/stateful_set_control.go, slowStartBatch.

        >>> [ExpansionPlan(objects=(), count=9, max_batch=size).batch_end(3) for size in (0, 1, 2, 500)]
        [9, 4, 5, 7]
        """
        if not self.max_batch:
            return self.count
        size = end = 1
        while end <= number and size < self.max_batch:
            size = min(2 * size, self.max_batch)
            end += size
        return min(self.count, end + max(0, -(-(number - end + 1) // size)) * size)

    def object_metadata(self, planned: PlannedObject, number: int) -> ObjectMeta:
        """The metadata of an object in the set with that number, from 0."""
        meta = planned.object.metadata
        if self.pod is None:
            return meta
        old, base = self.pod.metadata.name, self.pod.metadata.generate_name
        new = f"{base}{int(old.removeprefix(base)) + self.first_ordinal + number}"
        return replace(
            meta,
            name=meta.name.replace(old, new, 1),
            # A name makes generateName irrelevant.
            generate_name="" if meta.name else meta.generate_name.replace(old, new, 1),
        )


class ExpansionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that are not in the manifests."""

    nodes: int = 1
    """Number of nodes on which each DaemonSet runs a pod."""
    surge: bool = False
    """Whether all rolling updates are in progress, at the time of most pods."""
    from_status: bool = False
    """Whether the used amounts in the quotas' status are the initial usage."""
    gates: FeatureGates = DEFAULT_GATES
    """Those of the API server, with the rules of its release."""


class ManifestExpander(msgspec.Struct, frozen=True):
    """Expands the manifests of one namespace."""

    options: ExpansionOptions
    templates: Mapping[str, ResourceClaimTemplate]
    """ResourceClaimTemplates by name."""

    def steady_plans(self, manifest: Manifest, replicas: int | None = None) -> Iterator[ExpansionPlan]:
        """The object, intermediate objects of its controller, and its replicas (``replicas``, or as it specifies)."""
        controller = manifest.controller
        planned_object = PlannedObject(manifest.resource, manifest.object)
        if controller is None:
            yield ExpansionPlan(objects=(planned_object, *self._claims_of_pod(manifest.object, manifest)))
            return
        if not manifest.is_part:
            yield ExpansionPlan(objects=(planned_object,))
        count = self.replicas(manifest) if replicas is None else replicas
        yield from self._intermediate_plans(controller)
        if count:
            yield ExpansionPlan(
                objects=self.replica_objects(manifest, controller),
                count=count,
                pod=controller.pod,
                max_batch=controller.max_batch,
            )

    def surge_plans(self, manifest: Manifest, replicas: int | None = None) -> Iterator[ExpansionPlan]:
        """Additional objects while the object is updated."""
        controller = manifest.controller
        if controller is None or not self.options.surge:
            return
        count = self.replicas(manifest) if replicas is None else replicas
        extra = (
            fenceposts(controller.rolling_update, count).surge if controller.rolling_update and count else 0
        )
        if extra:
            yield from self._intermediate_plans(controller, is_surge=True)
            yield ExpansionPlan(
                objects=self.replica_objects(manifest, controller),
                count=extra,
                pod=controller.pod,
                first_ordinal=count,
                is_surge=True,
            )

    def replicas(self, manifest: Manifest) -> int:
        """Number of pods that the object specifies."""
        controller = manifest.controller
        if controller is None:
            return 0
        return self.options.nodes if controller.replicas is None else controller.replicas

    def replica_objects(
        self, manifest: Manifest, controller: WorkloadController
    ) -> tuple[PlannedObject, ...]:
        """The objects of one replica: volume claims, the pod, and objects that are created for the pod."""
        claims = (
            PlannedObject(VOLUME_CLAIM_RESOURCE, _stateful_set_claim(claim, controller.pod))
            for claim in controller.volume_claims
        )
        return (
            *claims,
            PlannedObject(POD_RESOURCE, controller.pod),
            *self._claims_of_pod(controller.pod, manifest),
        )

    def _claims_of_pod(self, item: APIObject, manifest: Manifest) -> Iterator[PlannedObject]:
        """The claims that are created for a pod after its creation; of a stored pod those that its status does not name.

        Follows: v1.36, pkg/controller/volume/ephemeral/controller.go, handleVolume;
            pkg/controller/resourceclaim/controller.go, handleClaim.
        """
        if not isinstance(item, Pod):
            return
        for claim in manifest.ephemeral_volume_claims:
            name = f"{item.metadata.name}-{claim.metadata.name}"
            yield PlannedObject(VOLUME_CLAIM_RESOURCE, _named(claim, name, item), is_required=False)
        created = {status.name for status in item.status.resource_claim_statuses}
        for claim_reference in item.spec.resource_claims:
            if claim_reference.get("name") in created:
                continue
            template = self.templates.get(str(claim_reference.get("resourceClaimTemplateName")))
            if template is not None:
                name = f"{item.metadata.name}-{claim_reference.get('name')}-"
                meta = ObjectMeta(generate_name=name, namespace=item.metadata.namespace)
                yield PlannedObject(
                    RESOURCE_CLAIM_RESOURCE,
                    ResourceClaim(metadata=meta, spec=template.spec.spec),
                    is_required=False,
                )

    def _intermediate_plans(
        self, controller: WorkloadController, *, is_surge: bool = False
    ) -> Iterator[ExpansionPlan]:
        owner = next(iter(controller.pod.metadata.owner_references), None)
        name = owner.name if owner is not None else ""
        meta = ObjectMeta(generate_name=f"{name}-", namespace=controller.pod.metadata.namespace)
        for resource in controller.intermediate_resources:
            yield ExpansionPlan(
                objects=(PlannedObject(resource, PartialObjectMetadata(metadata=meta)),), is_surge=is_surge
            )


class Fenceposts(NamedTuple):
    """The numbers of pods above and below the specified replicas during an update."""

    surge: int
    unavailable: int


def fenceposts(update: RollingUpdate, replicas: int) -> Fenceposts:
    """The absolute numbers: surge rounded up, unavailable rounded down, and never both zero.

    Follows: v1.36, pkg/controller/deployment/util/deployment_util.go, ResolveFenceposts.

    >>> fenceposts(RollingUpdate(max_surge="25%", max_unavailable="25%"), 10)
    Fenceposts(surge=3, unavailable=2)
    >>> fenceposts(RollingUpdate(max_surge=0, max_unavailable="25%"), 3)
    Fenceposts(surge=0, unavailable=1)
    """
    surge = -(-_scaled(update.max_surge, replicas) // 100)
    unavailable = _scaled(update.max_unavailable, replicas) // 100
    if not surge and not unavailable:
        unavailable = 1
    return Fenceposts(surge, min(unavailable, replicas))


def _scaled(value: int | str, replicas: int) -> int:
    """A hundred times the number, or the percentage of the replicas."""
    if isinstance(value, int):
        return 100 * value
    match = _PERCENT.fullmatch(value)
    return int(match[1]) * replicas if match else 0


def _stateful_set_claim(claim: PersistentVolumeClaim, pod: Pod) -> PersistentVolumeClaim:
    """The claim that a StatefulSet creates for the pod.

    Follows: v1.36, pkg/controller/statefulset/stateful_set_utils.go, getPersistentVolumeClaimName.
    """
    return _named(claim, f"{claim.metadata.name}-{pod.metadata.name}", pod)


def _named(claim: PersistentVolumeClaim, name: str, pod: Pod) -> PersistentVolumeClaim:
    meta = replace(claim.metadata, name=name, namespace=pod.metadata.namespace)
    return replace(claim, metadata=meta)
