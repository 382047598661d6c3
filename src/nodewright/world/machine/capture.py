"""A machine's files as a NodeProfile."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from nodewright.model.machine import MachineInfo
from nodewright.model.objects import ObjectMeta
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.world.machine import sysfs
from nodewright.world.machine.files import Sources, copied, this_machine
from nodewright.world.machine.host import Host, cgroup_version, this_host
from nodewright.world.machine.lacks import Fact, Lack
from nodewright.world.machine.proc import memory_capacity, process_limit, swap_capacity

USUAL_PAGE_SIZE_BYTES = 4096


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


def _capture(sources: Sources, host: Host | None, configuration: Mapping[str, Any] | None) -> Captured:
    spec = NodeProfileSpec(
        machine_info=read_machine(sources),
        kubelet_configuration=dict(configuration or {}),
        cgroup_version=cgroup_version(sources),
        swap_bytes=swap_capacity(sources),
        pid_max=process_limit(sources),
    )
    metadata = ObjectMeta()
    if host is None:
        sources.lack(Fact.ROOT_FS, instead="0")
        sources.lack(Fact.PAGE_SIZE, instead=str(USUAL_PAGE_SIZE_BYTES))
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
        sources.lack(Fact.KUBELET_CONFIGURATION)
    return Captured(profile=NodeProfile(metadata=metadata, spec=spec), lacks=sources.end())


def labels(name: str, architecture: str) -> dict[str, str]:
    """The labels that a kubelet gives its node."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
    }
