"""Captures a machine as a NodeProfile: from its /sys and /proc, lscpu or cAdvisor."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from nodewright.documents.profiles.machine import sysfs
from nodewright.documents.profiles.machine.host_facts import (
    HostFacts,
    MachineFact,
    MachineSources,
    MissingFact,
    cgroup_version,
    copied_machine,
    kubernetes_architecture,
    memory_capacity,
    missing_fact_sentence,
    process_limit,
    swap_capacity,
    this_host,
    this_machine,
)
from nodewright.documents.profiles.machine.lscpu import read_lscpu, read_machine_info
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.node_profile import (
    NodePart,
    NodeProfile,
    NodeProfileSpec,
    UnknownNodePart,
    architecture_labels,
    kubelet_labels,
)
from nodewright.model.kubernetes.objects import ObjectMeta

DEFAULT_PAGE_SIZE_BYTES = 4096

# Facts that descriptions other than /sys and /proc never have, and the values of the profile instead.
FACTS_NOT_IN_DESCRIPTIONS = (
    MachineFact.CGROUP_VERSION,
    MachineFact.PID_MAX,
    MachineFact.PAGE_SIZE,
    MachineFact.ROOT_FS,
)
FACT_DEFAULTS = {
    MachineFact.MEMORY: 0,
    MachineFact.SWAP: 0,
    MachineFact.CGROUP_VERSION: 2,
    MachineFact.PID_MAX: 0,
    MachineFact.PAGE_SIZE: DEFAULT_PAGE_SIZE_BYTES,
    MachineFact.ROOT_FS: 0,
}


class CapturedMachine(msgspec.Struct, frozen=True, kw_only=True):
    """A profile, and the facts that could not be read."""

    profile: NodeProfile
    missing: tuple[MissingFact, ...] = ()


def capture_this_machine(configuration: Mapping[str, Any] | None = None) -> CapturedMachine:
    """The profile of this machine. Needs no privileges.

    Errors: InputError with all faults in /sys and /proc.
    """
    return _capture(this_machine(), this_host(), configuration)


def capture_copy(directory: Path, configuration: Mapping[str, Any] | None = None) -> CapturedMachine:
    """The machine whose /sys and /proc were copied to the directory.

    Errors: InputError with all faults in the copy.
    """
    return _capture(copied_machine(directory), None, configuration)


def read_machine(sources: MachineSources) -> MachineInfo:
    """The machine as the kubelet's cAdvisor describes it; `sources` collects faults and missing facts.

    Follows: v1.36, cadvisor/machine/info.go, Info.
    """
    nodes, num_cores = sysfs.topology(sources)
    num_physical_cores, num_sockets = sysfs.physical_counts(sources)
    return MachineInfo(
        num_cores=num_cores,
        num_physical_cores=num_physical_cores,
        num_sockets=num_sockets,
        memory_capacity=memory_capacity(sources),
        hugepages=sysfs.huge_pages(sources, sysfs.HUGE_PAGES),
        topology=nodes,
    )


def capture_lscpu(paths: Sequence[Path], configuration: Mapping[str, Any] | None = None) -> CapturedMachine:
    """The machine that lscpu described, without memory, huge pages and distances.

    Errors: InputError with the faults of the files.
    """
    lscpu = read_lscpu(paths)
    unknown_facts = (
        MachineFact.MEMORY,
        MachineFact.HUGE_PAGES,
        MachineFact.DISTANCES,
        *FACTS_NOT_IN_DESCRIPTIONS,
        MachineFact.SWAP,
    )
    spec = NodeProfileSpec(machine_info=lscpu.machine, kubelet_configuration=dict(configuration or {}))
    if lscpu.processor:
        spec = msgspec.structs.replace(
            spec, labels=architecture_labels(kubernetes_architecture(lscpu.processor))
        )
    return _described(spec, (*lscpu.missing, *_missing_facts(unknown_facts)), configuration)


def capture_machine_info(path: Path, configuration: Mapping[str, Any] | None = None) -> CapturedMachine:
    """The machine that cAdvisor described.

    Errors: InputError with the faults of the file.
    """
    machine, swap_bytes = read_machine_info(path)
    spec = NodeProfileSpec(
        machine_info=machine, kubelet_configuration=dict(configuration or {}), swap_bytes=swap_bytes or 0
    )
    unknown_facts = (*FACTS_NOT_IN_DESCRIPTIONS, *((MachineFact.SWAP,) if swap_bytes is None else ()))
    return _described(spec, _missing_facts(unknown_facts), configuration)


def _described(
    spec: NodeProfileSpec, missing: tuple[MissingFact, ...], configuration: Mapping[str, Any] | None
) -> CapturedMachine:
    if configuration is None:
        missing += (MissingFact(fact=MachineFact.KUBELET_CONFIGURATION),)
    spec = msgspec.structs.replace(spec, not_judged=_unknown_parts(missing))
    return CapturedMachine(profile=NodeProfile(spec=spec), missing=missing)


def _missing_facts(facts: tuple[MachineFact, ...]) -> tuple[MissingFact, ...]:
    return tuple(MissingFact(fact=fact, substitute=str(FACT_DEFAULTS.get(fact, ""))) for fact in facts)


def _capture(
    sources: MachineSources, host: HostFacts | None, configuration: Mapping[str, Any] | None
) -> CapturedMachine:
    version = cgroup_version(sources)
    # By default a kubelet does not start on cgroup v1; one that runs there has this setting.
    default_configuration = {"failCgroupV1": False} if version == 1 else {}
    spec = NodeProfileSpec(
        machine_info=read_machine(sources),
        kubelet_configuration=default_configuration if configuration is None else dict(configuration),
        cgroup_version=version,
        swap_bytes=swap_capacity(sources),
        pid_max=process_limit(sources),
    )
    metadata = ObjectMeta()
    if host is None:
        sources.missing.extend(_missing_facts((MachineFact.PAGE_SIZE, MachineFact.ROOT_FS)))
    else:
        metadata = ObjectMeta(name=host.name)
        spec = msgspec.structs.replace(
            spec,
            page_size_bytes=host.page_size_bytes,
            root_fs_capacity=host.root_fs_capacity,
            image_fs=host.image_fs,
            labels=kubelet_labels(host.name, host.architecture),
        )
    if configuration is None:
        sources.add_missing(
            MachineFact.KUBELET_CONFIGURATION,
            substitute="failCgroupV1: false" if default_configuration else "",
        )
    missing = sources.finish()
    if sources.is_copy:
        spec = msgspec.structs.replace(spec, not_judged=_unknown_parts(missing))
    return CapturedMachine(profile=NodeProfile(metadata=metadata, spec=spec), missing=missing)


_PARTS = {
    MachineFact.SIBLINGS: NodePart.CPU_LAYOUT,
    MachineFact.NUMA_NODES: NodePart.NUMA_NODES,
    MachineFact.NODE_MEMORY: NodePart.NUMA_NODES,
}


def _unknown_parts(missing: Sequence[MissingFact]) -> tuple[UnknownNodePart, ...]:
    """The parts of the node that a description lacks and that are assumed, so that nothing is judged by them."""
    causes = {_PARTS[lack.fact]: missing_fact_sentence(lack) for lack in missing if lack.fact in _PARTS}
    return tuple(UnknownNodePart(part=part, because=cause) for part, cause in causes.items())
