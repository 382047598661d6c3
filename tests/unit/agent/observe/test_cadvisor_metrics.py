"""`/metrics/cadvisor`: names, labels and values of cAdvisor, from counters."""

from msgspec.structs import replace

from nodewright.agent.host.counters import (
    CgroupCounters,
    CPUCounters,
    DeviceIO,
    DiskCounters,
    InterfaceCounters,
    MemoryCounters,
    ProcessCounters,
)
from nodewright.agent.observe.cadvisor_metrics import (
    CountedGroup,
    GroupCounters,
    MachineIds,
    cadvisor_metrics,
    failed_cadvisor_metrics,
)
from nodewright.model.hardware import MachineInfo
from nodewright.model.kubernetes.stats_summary import FsStats

MACHINE = MachineInfo(num_cores=4, num_physical_cores=2, num_sockets=1, memory_capacity=1024)
POD = CountedGroup(path="/pods/p1", started_ns=5 * 10**9, namespace="shop", pod="web", has_own_network=True)
CONTAINER = CountedGroup(
    path="/pods/p1/c1",
    started_ns=7 * 10**9,
    namespace="shop",
    pod="web",
    container="main",
    container_id="c1",
    image="app:1",
    fs=FsStats(used_bytes=12, capacity_bytes=100, inodes=9, inodes_free=8),
)
CGROUP = CgroupCounters(
    at_ns=8 * 10**9,
    cpu=CPUCounters(usage_ns=2_500_000_000, user_ns=10**9, shares=2),
    memory=MemoryCounters(usage_bytes=4096, page_faults=3, major_page_faults=1, limit_bytes=8192),
    threads=2,
)
ETH0 = InterfaceCounters(
    name="eth0",
    received_bytes=10,
    received_packets=1,
    receive_errors=0,
    received_dropped=0,
    sent_bytes=20,
    sent_packets=2,
    send_errors=0,
    sent_dropped=0,
)
OF_POD = 'container="",id="/pods/p1",image="",name="",namespace="shop",pod="web"'
OF_CONTAINER = 'container="main",id="/pods/p1/c1",image="app:1",name="c1",namespace="shop",pod="web"'


def lines(*groups: GroupCounters) -> list[str]:
    return cadvisor_metrics(groups, MACHINE, MachineIds("b", "m", "s")).splitlines()


def counted(group: CountedGroup, cgroup: CgroupCounters = CGROUP) -> GroupCounters:
    return GroupCounters(group=group, cgroup=cgroup, processes=ProcessCounters(processes=1, sockets=4))


def test_a_container_has_the_counters_that_dashboards_read() -> None:
    page = lines(counted(CONTAINER))
    for line in (
        f'container_cpu_usage_seconds_total{{{OF_CONTAINER},cpu="total"}} 2.5 8000',
        f"container_memory_usage_bytes{{{OF_CONTAINER}}} 4096 8000",
        f"container_spec_memory_limit_bytes{{{OF_CONTAINER}}} 8192",
        f"container_start_time_seconds{{{OF_CONTAINER}}} 7",
        f'container_memory_failures_total{{{OF_CONTAINER},failure_type="pgmajfault",scope="hierarchy"}} 1 8000',
        f'container_fs_usage_bytes{{{OF_CONTAINER},device=""}} 12 8000',
        f'container_fs_reads_total{{{OF_CONTAINER},device=""}} 0 8000',
        f"container_sockets{{{OF_CONTAINER}}} 4 8000",
        'machine_cpu_cores{boot_id="b",machine_id="m",system_uuid="s"} 4',
        "container_scrape_error 0",
    ):
        assert line in page


def test_only_pods_with_a_network_of_their_own_have_its_counters() -> None:
    page = lines(replace(counted(POD), interfaces=(ETH0,)), counted(CONTAINER))
    received = [line for line in page if line.startswith("container_network_receive_bytes_total")]
    assert received == [f'container_network_receive_bytes_total{{{OF_POD},interface="eth0"}} 10 8000']
    assert not any(line.startswith("container_processes") and OF_POD in line for line in page)


def test_throttling_is_shown_of_groups_with_a_quota_only() -> None:
    assert not any("cfs_throttled" in line for line in lines(counted(CONTAINER)))
    limited = replace(CGROUP, cpu=replace(CGROUP.cpu, quota_us=50_000, throttled_ns=500_000_000))
    page = lines(counted(POD), counted(CONTAINER, limited))
    throttled = [line for line in page if line.startswith("container_cpu_cfs_throttled_seconds_total")]
    assert throttled == [f"container_cpu_cfs_throttled_seconds_total{{{OF_CONTAINER}}} 0.5 8000"]


def test_io_is_shown_by_device() -> None:
    disk = DeviceIO(device="8:16", read_bytes=5, written_bytes=6, reads=1, writes=2)
    page = lines(counted(CONTAINER, replace(CGROUP, devices=(disk,))))
    assert f'container_fs_writes_bytes_total{{{OF_CONTAINER},device="8:16"}} 6 8000' in page
    numbers = 'device="8:16",major="8",minor="16",operation="Read"'
    assert f"container_blkio_device_usage_total{{{OF_CONTAINER},{numbers}}} 5 8000" in page


def test_the_disk_of_the_node_is_counted() -> None:
    node = replace(counted(CountedGroup(path="/")), disk=DiskCounters(device="/dev/sda1", read_ms=1500))
    labels = 'container="",id="/",image="",name="",namespace="",pod="",device="/dev/sda1"'
    assert f"container_fs_read_seconds_total{{{labels}}} 1.5 8000" in lines(node)


def test_a_failed_reading_is_a_metric() -> None:
    assert failed_cadvisor_metrics().splitlines()[-1] == "container_scrape_error 1"
