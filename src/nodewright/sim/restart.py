"""A kubelet that starts anew: what has been changed since the last one started, and what the next one finds."""

from dataclasses import dataclass, replace

import msgspec

from nodewright.checkpoints import StateFiles, files_of, left_by, stored_in
from nodewright.core.config import settled
from nodewright.model.faults import ConfigFault
from nodewright.model.scenario import KubeletRestart
from nodewright.model.start_reasons import ConfigurationRefused
from nodewright.model.verdict import Granted, Refused, Verdict
from nodewright.node.config import NodeFacts, NodeParts, resources_of
from nodewright.node.events import Restarted
from nodewright.node.restart import Stored, begin
from nodewright.node.state import NodeState
from nodewright.node.step import Step, step
from nodewright.world.errors import InputError
from nodewright.world.kubelet_config import Host, kubelet_config_from


def changed_parts(parts: NodeParts, change: KubeletRestart) -> Verdict[NodeParts]:
    """What the node is made of after the change; refused: the configuration is none that a kubelet takes."""
    machine = change.machine_info or parts.machine
    facts = _with_devices(parts.facts, change)
    host = Host(machine=machine, cgroup_version=facts.cgroup_version)
    if change.kubelet_configuration is None:
        found = settled(parts.kubelet, machine=machine, cgroup_version=facts.cgroup_version)
        if found.faults:
            return Refused(tuple(map(_refusal, found.faults)))
        kubelet, gates = parts.kubelet, parts.gates
    else:
        try:
            loaded = kubelet_config_from(change.kubelet_configuration, "", host=host)
        except InputError as error:
            return refused_configuration(error)
        kubelet, gates = loaded.config, loaded.gates
    resources = resources_of(machine, kubelet, facts)
    settings = replace(parts, gates=gates, kubelet=kubelet)
    return Granted(replace(settings, machine=machine, facts=facts, resources=resources))


def _with_devices(facts: NodeFacts, change: KubeletRestart) -> NodeFacts:
    return facts if change.devices is None else replace(facts, devices=change.devices)


def _refusal(fault: ConfigFault) -> ConfigurationRefused:
    return ConfigurationRefused(path=fault.path, error=fault.text)


def refused_configuration(error: InputError) -> Refused:
    """The same as a refusal, in the kubelet's words."""
    return Refused(tuple(ConfigurationRefused(path=fault.path, error=fault.rule) for fault in error.faults))


AS_IT_WAS = KubeletRestart()


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What a kubelet that does not start leaves for the next one; beside that, all is as the node's state says."""

    change: KubeletRestart = AS_IT_WAS
    """What has been changed since a kubelet started last."""
    files: StateFiles | None = None
    """The files; None: those that the running kubelet writes."""


def restarted(state: NodeState, change: KubeletRestart, standing: Standing) -> tuple[Step, Standing]:
    """What comes of a restart, and what the next one finds.

    Errors: as stored_in.
    """
    whole = _both(standing.change, change)
    files = (standing.files or files_of(state)).without(change.deleted_files)
    parts = changed_parts(state.config.parts, whole)
    if isinstance(parts, Refused):
        return step(state, Restarted(parts, Stored())), Standing(change=whole, files=files)
    stored = stored_in(files, parts.value)
    done = step(state, Restarted(parts, stored))
    if done.state.down_for:
        left = left_by(files, begin(parts.value, stored), parts.value)
        return done, Standing(change=whole, files=left)
    return done, Standing()


def _both(before: KubeletRestart, after: KubeletRestart) -> KubeletRestart:
    given = {
        name: value
        for name in ("kubelet_configuration", "machine_info", "devices")
        if (value := getattr(after, name)) is not None
    }
    return msgspec.structs.replace(before, **given)
