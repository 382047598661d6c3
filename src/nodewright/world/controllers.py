"""What controllers make of objects: how many pods at a time, and what these need besides."""

from typing import Any

from msgspec.structs import replace

from nodewright.core.validation import Violation, update_violations
from nodewright.model.api_request import APIObject, GroupResource
from nodewright.model.manifest import Controller, RollingUpdate
from nodewright.model.objects import ObjectMeta, Pod, PodStatus
from nodewright.model.quota_objects import CountedObject, PersistentVolumeClaim
from nodewright.world.decode import decode

_REPLICA_SETS, _JOBS = GroupResource("replicasets", "apps"), GroupResource("jobs", "batch")
_REVISIONS = GroupResource("controllerrevisions", "apps")
_ROLLING = "RollingUpdate"
_QUARTER = "25%"


def applied(value: dict[str, Any], pod: Pod) -> APIObject:
    """The object as it is applied: a pod as new, of anything else the metadata."""
    if value["kind"] == "Pod":
        return replace(pod, status=PodStatus())
    return CountedObject(metadata=decode(value.get("metadata") or {}, ObjectMeta))


def controller_of(value: dict[str, Any], pod: Pod) -> Controller | None:
    """The controller of the object, which has passed the check of its fields; None: it makes no pods by itself.

    Follows: v1.36, pkg/apis/apps/v1/defaults.go and pkg/apis/batch/v1/defaults.go for what is not said;
        pkg/controller/job/job_controller.go, manageJob, for how many pods of a job run at a time.
    Departs: a CronJob has one Job, as if a run were under way and no other.
    """
    kind, spec = value["kind"], value.get("spec") or {}
    if kind in ("Pod", "PodTemplate"):
        return None
    if kind == "CronJob":
        job = (spec.get("jobTemplate") or {}).get("spec") or {}
        is_idle = bool(spec.get("suspend"))
        return Controller(
            pod=pod, replicas=0 if is_idle else _at_a_time(job), makes=() if is_idle else (_JOBS,)
        )
    if kind == "Job":
        return Controller(pod=pod, replicas=_at_a_time(spec))
    if kind == "DaemonSet":
        update = _update(spec.get("updateStrategy"), 0, 1)
        return Controller(pod=pod, replicas=None, makes=(_REVISIONS,), update=update)
    replicas = _number(spec.get("replicas"), 1)
    if kind == "Deployment":
        update = _update(spec.get("strategy"), _QUARTER, _QUARTER)
        return Controller(pod=pod, replicas=replicas, makes=(_REPLICA_SETS,), update=update)
    if kind == "StatefulSet":
        templates = spec.get("volumeClaimTemplates") or ()
        return Controller(
            pod=pod,
            replicas=replicas,
            makes=(_REVISIONS,),
            claims=tuple(decode({**one, "status": None}, PersistentVolumeClaim) for one in templates),
            is_one_by_one=spec.get("podManagementPolicy") != "Parallel",
        )
    return Controller(pod=pod, replicas=replicas)


def strategy_violations(value: dict[str, Any]) -> tuple[Violation, ...]:
    """What the API server has against the way in which the object changes its pods."""
    kind, spec = value["kind"], value.get("spec") or {}
    if kind == "Deployment":
        field, update = "strategy", _update(spec.get("strategy"), _QUARTER, _QUARTER)
    elif kind == "DaemonSet":
        field, update = "updateStrategy", _update(spec.get("updateStrategy"), 0, 1)
    else:
        return ()
    if update is None:
        return ()
    return tuple(update_violations(update, f"spec.{field}.rollingUpdate", one_only=kind == "DaemonSet"))


def ephemeral_claims(pod: Pod) -> tuple[PersistentVolumeClaim, ...]:
    """The claims that the pod's generic ephemeral volumes stand for, under the names of the volumes.

    Follows: v1.36, pkg/controller/volume/ephemeral/controller.go, handleVolume.
    """
    found = []
    for volume in pod.spec.volumes:
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            claim = decode({**template, "status": None}, PersistentVolumeClaim)
            meta = replace(claim.metadata, name=str(volume.get("name") or ""))
            found.append(replace(claim, metadata=meta))
    return tuple(found)


def _at_a_time(job: dict[str, Any]) -> int:
    """How many pods of the job run at a time."""
    if job.get("suspend"):
        return 0
    parallelism = _number(job.get("parallelism"), 1)
    return min(parallelism, _number(job.get("completions"), parallelism))


def _update(
    strategy: dict[str, Any] | None, surge: int | str, unavailable: int | str
) -> RollingUpdate | None:
    strategy = strategy or {}
    if strategy.get("type") not in (None, "", _ROLLING):
        return None
    written = strategy.get("rollingUpdate") or {}
    return RollingUpdate(
        max_surge=_given(written.get("maxSurge"), surge),
        max_unavailable=_given(written.get("maxUnavailable"), unavailable),
    )


def _given(written: int | str | None, default: int | str) -> int | str:
    return default if written is None else written


def _number(written: int | None, default: int) -> int:
    return default if written is None else written
