"""A machine's files as a NodeProfile."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from nodewright.model.machine import MachineInfo
from nodewright.model.objects import ObjectMeta
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.world.machine import sysfs
from nodewright.world.machine.cadvisor import read_machine_info
from nodewright.world.machine.files import Sources, copied, this_machine
from nodewright.world.machine.host import Host, cgroup_version, kubernetes_arch, this_host
from nodewright.world.machine.lacks import Fact, Lack
from nodewright.world.machine.lscpu import read_lscpu
from nodewright.world.machine.proc import memory_capacity, process_limit, swap_capacity

USUAL_PAGE_SIZE_BYTES = 4096

# What descriptions other than the files of a machine never tell, and what the profile says instead.
NEVER_IN_DESCRIPTIONS = (Fact.CGROUP_VERSION, Fact.PID_MAX, Fact.PAGE_SIZE, Fact.ROOT_FS)
INSTEAD = {
    Fact.MEMORY: 0,
    Fact.SWAP: 0,
    Fact.CGROUP_VERSION: 2,
    Fact.PID_MAX: 0,
    Fact.PAGE_SIZE: USUAL_PAGE_SIZE_BYTES,
    Fact.ROOT_FS: 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A profile, and the facts that could not be learned for it."""

    profile: NodeProfile
    lacks: tuple[Lack, ...] = ()


def capture_here(configuration: Mapping[str, Any] | None = None) -> Captured:
    """The machine that we run on. Needs no privileges.

    Errors: InputError with everything in /sys and /proc that makes no sense.
    """
    return _capture(this_machine(), this_host(), configuration)


def capture_copy(directory: Path, configuration: Mapping[str, Any] | None = None) -> Captured:
    """The machine whose /sys and /proc were copied to the directory.

    Errors: InputError with everything in the copy that makes no sense.
    """
    return _capture(copied(directory), None, configuration)


def read_machine(sources: Sources) -> MachineInfo:
    """The machine as the kubelet's cAdvisor would describe it; faults and lacks stay with the sources.

    Follows: v1.36, cadvisor/machine/info.go, Info.
    """
    nodes, num_cores = sysfs.topology(sources)
    num_physical_cores, num_sockets = sysfs.counts(sources)
    return MachineInfo(
        num_cores=num_cores,
        num_physical_cores=num_physical_cores,
        num_sockets=num_sockets,
        memory_capacity=memory_capacity(sources),
        hugepages=sysfs.huge_pages(sources, sysfs.HUGE_PAGES),
        topology=nodes,
    )


def capture_lscpu(paths: Sequence[Path], configuration: Mapping[str, Any] | None = None) -> Captured:
    """The machine that lscpu described. It tells nothing of memory, huge pages and distances.

    Errors: InputError with what is wrong in the files.
    """
    read = read_lscpu(paths)
    unknown = (Fact.MEMORY, Fact.HUGE_PAGES, Fact.DISTANCES, *NEVER_IN_DESCRIPTIONS, Fact.SWAP)
    spec = NodeProfileSpec(machine_info=read.machine, kubelet_configuration=dict(configuration or {}))
    if read.processor:
        spec = msgspec.structs.replace(spec, labels=arch_labels(kubernetes_arch(read.processor)))
    return _described(spec, (*read.lacks, *_unknown(unknown)), configuration)


def capture_machine_info(path: Path, configuration: Mapping[str, Any] | None = None) -> Captured:
    """The machine that cAdvisor described.

    Errors: InputError with what is wrong in the file.
    """
    machine, swap_bytes = read_machine_info(path)
    spec = NodeProfileSpec(
        machine_info=machine, kubelet_configuration=dict(configuration or {}), swap_bytes=swap_bytes or 0
    )
    unknown = (*NEVER_IN_DESCRIPTIONS, *((Fact.SWAP,) if swap_bytes is None else ()))
    return _described(spec, _unknown(unknown), configuration)


def _described(
    spec: NodeProfileSpec, lacks: tuple[Lack, ...], configuration: Mapping[str, Any] | None
) -> Captured:
    if configuration is None:
        lacks += (Lack(fact=Fact.KUBELET_CONFIGURATION),)
    return Captured(profile=NodeProfile(spec=spec), lacks=lacks)


def _unknown(facts: tuple[Fact, ...]) -> tuple[Lack, ...]:
    return tuple(Lack(fact=fact, instead=str(INSTEAD.get(fact, ""))) for fact in facts)


def _capture(sources: Sources, host: Host | None, configuration: Mapping[str, Any] | None) -> Captured:
    version = cgroup_version(sources)
    # By default a kubelet does not start on cgroup v1; one that runs there has been told to.
    usual = {"failCgroupV1": False} if version == 1 else {}
    spec = NodeProfileSpec(
        machine_info=read_machine(sources),
        kubelet_configuration=usual if configuration is None else dict(configuration),
        cgroup_version=version,
        swap_bytes=swap_capacity(sources),
        pid_max=process_limit(sources),
    )
    metadata = ObjectMeta()
    if host is None:
        sources.lacks.extend(_unknown((Fact.PAGE_SIZE, Fact.ROOT_FS)))
    else:
        metadata = ObjectMeta(name=host.name)
        spec = msgspec.structs.replace(
            spec,
            page_size_bytes=host.page_size_bytes,
            root_fs_capacity=host.root_fs_capacity,
            image_fs=host.image_fs,
            labels=labels(host.name, host.architecture),
        )
    if configuration is None:
        sources.lack(Fact.KUBELET_CONFIGURATION, instead="failCgroupV1: false" if usual else "")
    return Captured(profile=NodeProfile(metadata=metadata, spec=spec), lacks=sources.end())


def labels(name: str, architecture: str) -> dict[str, str]:
    """The labels that a kubelet gives its node."""
    return {"kubernetes.io/hostname": name, **arch_labels(architecture)}


def arch_labels(architecture: str) -> dict[str, str]:
    """Those of the labels that do not name the node."""
    return {"kubernetes.io/os": "linux", "kubernetes.io/arch": architecture}
