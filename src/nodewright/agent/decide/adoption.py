"""Reconciles the runtime's pods with the agent's records: known pods continue, orphans are terminated."""

from msgspec.structs import replace

from nodewright.agent.decide.iteration import Iteration
from nodewright.agent.decide.pod_resize import retry_pending_resizes
from nodewright.agent.state.agent_state import PodRecord, PodSource, PodStage
from nodewright.agent.state.observations import RuntimeRelisted
from nodewright.model.kubernetes.objects import DEFAULT_GRACE_PERIOD_S, Container, ObjectMeta, Pod, PodSpec
from nodewright.model.kubernetes.runtime_status import RuntimePodStatus
from nodewright.model.values.instant import Instant


def with_runtime_status(
    record: PodRecord, runtime_status: RuntimePodStatus | None, observed_at_ns: int
) -> PodRecord:
    """The record with the runtime's status, unless it already has a newer one.

    Units: observed_at_ns in nanoseconds on the monotonic clock.
    """
    if observed_at_ns < record.observed_at_ns:
        return record
    return replace(record, runtime_status=runtime_status, observed_at_ns=observed_at_ns)


def adopt_runtime_pods(iteration: Iteration, observation: RuntimeRelisted) -> None:
    """Updates all records from a relist; unknown pods are kept as orphans until every source has listed its pods."""
    by_uid = {runtime_status.uid: runtime_status for runtime_status in observation.pods}
    for uid, record in tuple(iteration.pods.items()):
        iteration.put_record(with_runtime_status(record, by_uid.pop(uid, None), observation.observed_at_ns))
        iteration.update_resources_of(uid)
    iteration.set_orphans(by_uid)
    retry_pending_resizes(iteration)


def terminate_orphans(iteration: Iteration) -> None:
    """Terminates running pods that no source lists."""
    if iteration.unready_sources or iteration.waiting_pods:
        return
    for uid, runtime_status in iteration.orphans.items():
        name = f"{runtime_status.namespace}/{runtime_status.name}"
        iteration.record_event(
            uid, "OrphanFound", f"{name} runs, but no source lists it: it is terminated", warning=True
        )
        iteration.put_record(_orphan_record(iteration, runtime_status))
    iteration.set_orphans({})


def _orphan_record(iteration: Iteration, runtime_status: RuntimePodStatus) -> PodRecord:
    """The record of an orphan, built from the runtime's status alone."""
    names = dict.fromkeys(container.name for container in runtime_status.containers)
    metadata = ObjectMeta(
        name=runtime_status.name,
        namespace=runtime_status.namespace,
        uid=runtime_status.uid,
        deletion_timestamp=Instant(iteration.now.wall_ns),
        deletion_grace_period_seconds=DEFAULT_GRACE_PERIOD_S,
    )
    cgroups = (
        container.cgroup.rpartition("/")[0] for container in runtime_status.containers if container.cgroup
    )
    return PodRecord(
        pod=Pod(metadata=metadata, spec=PodSpec(containers=tuple(Container(name=name) for name in names))),
        source=PodSource.API,
        stage=PodStage.TERMINATING,
        memory=iteration.node.held.memory,
        is_in_source=False,
        runtime_status=runtime_status,
        cgroup=next(cgroups, ""),
    )
