"""Kubelet restarts in a scenario: changed configuration and hardware, and the state files that the kubelet reads."""

import msgspec
from msgspec.structs import replace

from nodewright.documents.profiles.kubelet_config_files import ConfigHost, kubelet_config_from
from nodewright.documents.profiles.state_files.checkpoints import (
    StateFiles,
    files_after_failed_start,
    stored_state,
    written_state_files,
)
from nodewright.engine.core.config.complete_config import complete_config
from nodewright.engine.node.events import KubeletRestarted
from nodewright.engine.node.node_config import NodeFacts, NodeParts, resources_from_facts
from nodewright.engine.node.node_state import NodeState
from nodewright.engine.node.restart.kubelet_startup import StoredState, start_kubelet
from nodewright.engine.node.step import Step, step
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.kubelet_config_faults import ConfigFault
from nodewright.model.kubernetes.scenario import KubeletRestart
from nodewright.model.reasons.kubelet_start import ConfigurationRefused
from nodewright.model.reasons.verdict import Granted, Refused, Verdict


def changed_parts(parts: NodeParts, change: KubeletRestart) -> Verdict[NodeParts]:
    """The parts of the node after the change; refused if a kubelet rejects the configuration."""
    machine = change.machine_info or parts.machine
    facts = _with_devices(parts.facts, change)
    host = ConfigHost(machine=machine, cgroup_version=facts.cgroup_version, release=parts.release.table)
    if change.kubelet_configuration is None:
        completion = complete_config(
            parts.kubelet,
            release=parts.release.table,
            machine=machine,
            cgroup_version=facts.cgroup_version,
        )
        if completion.faults:
            return Refused(tuple(map(_refusal, completion.faults)))
        kubelet, gates = parts.kubelet, parts.gates
    else:
        try:
            loaded = kubelet_config_from(change.kubelet_configuration, "", host=host)
        except InputError as error:
            return configuration_refusal(error)
        kubelet, gates = loaded.config, loaded.gates
    if kubelet != parts.kubelet or machine != parts.machine:
        facts = replace(facts, reported_allocatable={})
    resources = resources_from_facts(machine, kubelet, facts)
    settings = replace(parts, gates=gates, kubelet=kubelet)
    return Granted(replace(settings, machine=machine, facts=facts, resources=resources))


def _with_devices(facts: NodeFacts, change: KubeletRestart) -> NodeFacts:
    return facts if change.devices is None else replace(facts, devices=change.devices)


def _refusal(fault: ConfigFault) -> ConfigurationRefused:
    return ConfigurationRefused(path=fault.path, error=fault.text)


def configuration_refusal(error: InputError) -> Refused:
    """The error as a refusal with the kubelet's texts."""
    return Refused(tuple(ConfigurationRefused(path=fault.path, error=fault.rule) for fault in error.faults))


NO_CHANGE = KubeletRestart()


class PendingRestart(msgspec.Struct, frozen=True, kw_only=True):
    """Changes and files that a kubelet which does not start leaves for the next restart."""

    change: KubeletRestart = NO_CHANGE
    """The changes since a kubelet last started."""
    files: StateFiles | None = None
    """The state files; None: those that the running kubelet writes."""


def restart_step(
    state: NodeState, change: KubeletRestart, pending: PendingRestart
) -> tuple[Step, PendingRestart]:
    """Restarts the kubelet: the step, and what remains for the next restart.

    Errors: as stored_in.
    """
    merged_change = _merged(pending.change, change)
    files = (pending.files or written_state_files(state)).without(change.deleted_files)
    parts = changed_parts(state.config.parts, merged_change)
    if isinstance(parts, Refused):
        return step(state, KubeletRestarted(parts, StoredState())), PendingRestart(
            change=merged_change, files=files
        )
    stored = stored_state(files, parts.value)
    result = step(state, KubeletRestarted(parts, stored))
    if result.state.kubelet_down_for:
        files_left = files_after_failed_start(files, start_kubelet(parts.value, stored), parts.value)
        return result, PendingRestart(change=merged_change, files=files_left)
    return result, PendingRestart()


def _merged(before: KubeletRestart, after: KubeletRestart) -> KubeletRestart:
    changed_fields = {
        name: value
        for name in ("kubelet_configuration", "machine_info", "devices")
        if (value := getattr(after, name)) is not None
    }
    return msgspec.structs.replace(before, **changed_fields)
