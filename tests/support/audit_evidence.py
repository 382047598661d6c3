"""The evidence of an audit from an agent on a bench. Apart from the bench: PodResources needs gRPC."""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench

from nodewright.agent.state.agent_state import PodStage
from nodewright.cluster.pod_resources.lister import (
    allocatable_from_message,
    allocatable_message,
    pod_from_message,
    pod_message,
)
from nodewright.documents.profiles.state_files.checkpoints import stored_state, written_state_files
from nodewright.engine.core.cgroups.cgroup_names import QOSCgroupNames, pod_uid_from_cgroup
from nodewright.engine.core.requests.qos_and_priority import QOSClass
from nodewright.engine.node.node_cgroups import cgroup_rules, cgroup_tree
from nodewright.engine.node.pod_resources_view import allocatable_resources, pod_resources_of
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.reasons.verdict import Granted, Verdict
from nodewright.predict.audit.audit_evidence import AuditEvidence, CgroupEvidence, StateFileEvidence
from nodewright.predict.audit.container_check import cgroups_to_read, file_names_to_read

T = TypeVar("T")


def audit_evidence(bench: AgentBench) -> AuditEvidence:
    """Evidence from state files, PodResources, cgroup files and the API of the bench's node, decoded from their bytes."""
    state = bench.loop.state
    config, records = state.node.config, state.pods.values()
    there = [
        record
        for record in records
        if record.stage in (PodStage.ACTIVE, PodStage.WAITING, PodStage.TERMINATING)
    ]
    pods = tuple(replace(pod_record.pod, status=pod_record.status) for pod_record in there)
    stored = stored_state(written_state_files(state.node), config.parts)
    devices = _value(stored.devices)
    return AuditEvidence(
        config=config,
        state_files=StateFileEvidence(
            cpu=_value(stored.cpu), memory=_value(stored.memory), devices=devices.pod_devices
        ),
        pod_resources=tuple(pod_from_message(pod_message(pod_resources_of(state.node, pod))) for pod in pods),
        allocatable=allocatable_from_message(allocatable_message(allocatable_resources(state.node))),
        cgroups=_groups(bench, pods),
        pods=pods,
    )


def _groups(bench: AgentBench, pods: Iterable[Pod]) -> CgroupEvidence:
    """The cgroups as a real runtime creates them; the fake one does not."""
    state = bench.loop.state
    for record in state.pods.values():
        for container_status in record.runtime_status.containers if record.runtime_status else ():
            bench.cgroups.ensure(
                container_status.cgroup, tuple(record.applied_resources.get(container_status.id, ()))
            )
    constants = cgroup_rules(state.node.config)
    cgroups = cgroups_to_read(state.node.config, pods, constants)
    texts = {
        group.path: bench.cgroups.read_files(group.path, file_names_to_read(group, constants.version))
        for group in cgroups.groups
    }
    parents = QOSCgroupNames.for_root(cgroup_tree(state.node.config).root)
    places = [
        path
        for qos_class in QOSClass
        for path in bench.cgroups.children(parents.for_class(qos_class).path(constants.driver))
    ]
    uids = {uid for path in places if (uid := pod_uid_from_cgroup(path, parents, constants.driver))}
    return CgroupEvidence(rules=constants, texts=texts, uids=frozenset(uids))


def _value(read: Verdict[T] | None) -> T:
    assert isinstance(read, Granted)
    return read.value
