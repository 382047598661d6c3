"""The workloads of manifests as they are applied under the quotas among the same objects."""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from nodewright.documents.formats.api_objects import LoadedObject, RESTMapper, with_namespace
from nodewright.documents.formats.controllers import applied_object, controller_of, ephemeral_claims
from nodewright.documents.formats.workloads import Workload, api_server_refusal
from nodewright.engine.admission.api_server.apply import ApplyOutcome, apply, unknown_usage
from nodewright.engine.admission.api_server.charges import ChargeCache
from nodewright.engine.admission.api_server.expansion import ExpansionOptions
from nodewright.engine.admission.api_server.pod_creation import (
    PODS,
    PodCreation,
    rejection_error,
)
from nodewright.engine.core.requests.qos_and_priority import is_static
from nodewright.model.kubernetes.api_request import APIObject, Manifest, WorkloadController
from nodewright.model.kubernetes.cluster_objects import PartialObjectMetadata, ResourceQuota
from nodewright.model.kubernetes.objects import ObjectMeta


def with_quota_refusals(
    workloads: Sequence[Workload],
    values: Sequence[dict[str, Any]],
    creations: Sequence[PodCreation],
    policies: Sequence[LoadedObject],
    namespace: str,
) -> tuple[Workload, ...]:
    """The workloads, without the pods for which quotas among the objects leave no room; applied in order.

    ``creations``: those of the pods that do not exist yet.
    """
    mapper = RESTMapper()
    manifests = [
        workload_manifest(value, workload, mapper, namespace)
        for value, workload in zip(values, workloads, strict=True)
    ]
    guards = [
        object_manifest(loaded.value, loaded.item, mapper, namespace)
        for loaded in policies
        if not isinstance(loaded.item, int)
    ]
    charge_cache = ChargeCache(creations={id(creation.submitted): creation for creation in creations})
    result = apply((*manifests, *guards), ExpansionOptions(), charge_cache=charge_cache)
    outcomes: dict[int, list[ApplyOutcome]] = {}
    for outcome in result.outcomes:
        outcomes.setdefault(outcome.manifest, []).append(outcome)
    return tuple(_with_outcome(workload, outcomes.get(index, ())) for index, workload in enumerate(workloads))


def unknown_usage_warnings(policies: Sequence[LoadedObject]) -> Iterator[str]:
    """Names the quotas of a cluster whose usage is unknown, because the objects are all that is counted."""
    quotas = [loaded.item for loaded in policies if isinstance(loaded.item, ResourceQuota)]
    for text in filter(None, (unknown_usage(quota) for quota in quotas if quota.metadata.uid)):
        yield f"{text}; only the objects here are counted"


def _with_outcome(workload: Workload, outcomes: Sequence[ApplyOutcome]) -> Workload:
    """The workload without its pod if none is admitted; a stored pod exists, and a static pod runs without its mirror pod."""
    if is_static(workload.pod) or workload.is_stored:
        return workload
    quotas = dict.fromkeys(f"ResourceQuota {name}" for outcome in outcomes for name, _ in outcome.charge)
    workload = replace(workload, applied=(*workload.applied, *quotas))
    if workload.refusal is not None:
        return workload
    refused = next((outcome for outcome in outcomes if outcome.refusal and not outcome.admitted), None)
    if refused is None or refused.refusal is None:
        return workload
    error = rejection_error(refused.resource, refused.refusal.metadata, refused.refusal.because)
    is_owner_refused = refused.resource != PODS
    return replace(
        workload, refusal=api_server_refusal(workload, error, "Forbidden", is_owner_refused=is_owner_refused)
    )


def workload_manifest(
    value: dict[str, Any], workload: Workload, mapper: RESTMapper, default_namespace: str
) -> Manifest:
    """The object with its pods before their creation, as it is applied."""
    pod = workload.submitted or workload.pod
    if workload.kind != value["kind"]:  # a template of a custom resource
        meta = ObjectMeta(name=workload.name, namespace=workload.namespace)
        owner = {"apiVersion": workload.api_version, "kind": workload.kind}
        return replace(
            object_manifest(owner, PartialObjectMetadata(metadata=meta), mapper, default_namespace),
            is_part=True,
            controller=WorkloadController(pod=pod, replicas=workload.replicas or 0),
            ephemeral_volume_claims=ephemeral_claims(pod),
        )
    item = applied_object(value, pod, is_stored=workload.is_stored)
    manifest = object_manifest(value, item, mapper, default_namespace)
    return replace(
        manifest,
        is_stored=manifest.is_stored or workload.is_stored,
        controller=controller_of(value, pod),
        ephemeral_volume_claims=ephemeral_claims(pod),
    )


def object_manifest(
    value: dict[str, Any], item: APIObject, mapper: RESTMapper, default_namespace: str
) -> Manifest:
    """The object as it is applied."""
    version, kind = value["apiVersion"], value["kind"]
    mapping = mapper.rest_mapping(version, kind)
    namespace = (item.metadata.namespace or default_namespace) if mapping.is_namespaced else ""
    return Manifest(
        api_version=version,
        kind=kind,
        resource=mapping.resource,
        object=with_namespace(item, namespace),
        is_namespaced=mapping.is_namespaced,
        is_stored=isinstance(metadata := value.get("metadata"), dict) and bool(metadata.get("uid")),
    )
