"""The usage of a machine, from copies of its files."""

from pathlib import Path

import pytest

from nodewright.documents.profiles.machine.host_facts import HostTree, MachineSources
from nodewright.documents.profiles.machine.machine_usage import read_usage, usage_of_this_machine
from nodewright.engine.core.eviction.eviction_thresholds import signal_observations
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.eviction_thresholds import Signal
from nodewright.model.kubernetes.stats_summary import FsStats, StatsSummary

MEMINFO = "MemTotal: 1000 kB\nMemFree: 400 kB\nInactive(file): 100 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n"
STALLS = "some avg10=1.50 avg60=0.50 avg300=0.10 total=77\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=7\n"
PROC = {
    "meminfo": MEMINFO,
    "loadavg": "0.86 1.85 1.67 3/110 23429\n",
    "sys/kernel/pid_max": "4000\n",
    "sys/kernel/threads-max": "3000\n",
    "pressure/memory": STALLS,
}
V2 = {
    "cgroup.controllers": "memory pids",
    "memory.stat": "anon 5\ninactive_file 51200\n",
    "kubepods.slice/memory.max": "512000",
    "kubepods.slice/memory.current": "300000",
    "kubepods.slice/memory.stat": "inactive_file 100000",
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/memory.current": "7000",
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/memory.stat": "inactive_file 2000",
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/memory.swap.current": "11",
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/memory.pressure": STALLS,
    "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice/cri-1.scope/cgroup.procs": "1\n2\n",
    "kubepods.slice/kubepods-podc_d.slice/cgroup.procs": "9",
}
V1 = {
    "memory/memory.usage_in_bytes": "700000",
    "memory/memory.stat": "inactive_file 1\ntotal_inactive_file 200000",
    "memory/kubepods/memory.limit_in_bytes": "9223372036854771712",
    "memory/kubepods/memory.usage_in_bytes": "300000",
    "memory/kubepods/besteffort/podq-1/memory.usage_in_bytes": "5000",
    "memory/kubepods/besteffort/podq-1/memory.stat": "total_inactive_file 6000",
    "memory/kubepods/besteffort/podq-1/abc/cgroup.procs": "3\n4\n5",
}


def sources(folder: Path, proc: dict[str, str], cgroups: dict[str, str]) -> MachineSources:
    for root, files in (("proc", proc), ("sys/fs/cgroup", cgroups)):
        (folder / root).mkdir(parents=True)
        for name, text in files.items():
            path = folder / root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return MachineSources(HostTree(folder / "sys"), HostTree(folder / "proc"))


def read(folder: Path, cgroups: dict[str, str], **proc: str) -> StatsSummary:
    given = sources(folder, {**PROC, **proc}, cgroups)
    usage = read_usage(given, nodefs=FsStats(), imagefs=FsStats())
    given.finish()
    return usage


def test_the_working_set_of_the_machine_excludes_free_memory_and_inactive_files(tmp_path: Path) -> None:
    usage = read(tmp_path, V2)
    memory = usage.node.memory
    assert memory is not None
    assert (memory.working_set_bytes, memory.available_bytes) == (600 * 1024 - 51200, 450 * 1024)
    assert memory.psi is not None
    assert (memory.psi.some.avg10, memory.psi.full.total) == (1.5, 7)
    assert usage.node.swap is not None
    assert usage.node.swap.swap_usage_bytes == 30 * 1024
    assert signal_observations(usage)[Signal.PID_AVAILABLE].available.value() == 3000 - 110


def test_pods_are_found_in_the_unified_tree(tmp_path: Path) -> None:
    usage = read(tmp_path, V2)
    seen = signal_observations(usage)[Signal.ALLOCATABLE_MEMORY_AVAILABLE]
    assert (seen.available.value(), seen.capacity.value()) == (312_000, 512_000)
    pods = {pod.pod_ref.uid: pod for pod in usage.pods}
    assert sorted(pods) == ["a-b", "c-d"]
    used = pods["a-b"]
    assert used.memory is not None
    assert used.swap is not None
    assert used.processes is not None
    assert (used.memory.working_set_bytes, used.swap.swap_usage_bytes, used.processes.process_count) == (
        5000,
        11,
        2,
    )
    assert used.memory.psi is not None
    assert pods["c-d"].memory is None


def test_pods_are_found_in_the_memory_tree_of_version_1(tmp_path: Path) -> None:
    usage = read(tmp_path, V1)
    assert usage.node.memory is not None
    assert usage.node.memory.working_set_bytes == 500_000
    assert Signal.ALLOCATABLE_MEMORY_AVAILABLE not in signal_observations(usage), (
        "no limit, so nothing is available of it"
    )
    (pod,) = usage.pods
    assert pod.pod_ref.uid == "q-1"
    assert pod.memory is not None
    assert pod.processes is not None
    assert (pod.memory.working_set_bytes, pod.processes.process_count, pod.swap) == (0, 3, None)


def test_a_machine_without_pods_swap_and_stalls_has_none(tmp_path: Path) -> None:
    bare = {"meminfo": "MemTotal: 10 kB\nMemFree: 4 kB\n", "pressure/memory": ""}
    usage = read(tmp_path, {"cgroup.controllers": ""}, **bare)
    assert (usage.pods, usage.node.system_containers, usage.node.swap) == ((), (), None)
    assert usage.node.memory is not None
    assert (usage.node.memory.working_set_bytes, usage.node.memory.psi) == (6 * 1024, None)


def test_all_faults_of_an_object_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, {**V2, "memory.stat": "inactive_file many"}, meminfo="", loadavg="busy")
    texts = [str(fault) for fault in caught.value.faults]
    assert any("meminfo" in text and "must have lines such as" in text for text in texts)
    assert any("loadavg" in text for text in texts)


def test_an_unknown_process_limit_is_not_observed(tmp_path: Path) -> None:
    given = sources(tmp_path, {"meminfo": MEMINFO}, V2)
    assert read_usage(given).node.rlimit is None
    assert read_usage(given).node.runtime is None


def test_this_machine_has_memory_and_a_disk() -> None:
    seen = signal_observations(usage_of_this_machine())
    assert {Signal.MEMORY_AVAILABLE, Signal.NODEFS_AVAILABLE, Signal.PID_AVAILABLE} <= seen.keys()
