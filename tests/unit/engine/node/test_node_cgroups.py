"""The cgroups of nodes, tested through `Node`."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_plan import CgroupLevel
from nodewright.engine.node.node_cgroups import CgroupOverrides
from nodewright.model.errors import InputError
from nodewright.model.hardware import HugePages
from nodewright.model.kubernetes.node_profile import NodeProfile, NodeProfileSpec
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.release_table import NEWEST
from nodewright.predict.node import Node, NodeCgroups
from nodewright.testing.machines import regular_machine
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod

STATIC: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"cpu": "1", "memory": "1Gi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}


def a_node(
    *pods: Pod, swap_bytes: int = 0, version: int = 2, release: str = NEWEST.name, **kubelet: Any
) -> Node:
    """Two NUMA nodes with 4 CPUs and 4 GiB each; nothing kept for evictions."""
    spec = NodeProfileSpec(
        machine_info=regular_machine(2),
        root_fs_capacity=100 << 30,
        kubelet_configuration={"evictionHard": {}, **kubelet},
        pods=pods,
        swap_bytes=swap_bytes,
        cgroup_version=version,
        kubernetes_version=release,
    )
    return Node.from_profile(NodeProfile(spec=spec))


def texts(cgroups: NodeCgroups, name: str = "", container_name: str = "") -> dict[str, str]:
    """The files of a pod's group, of a container's, or of the group of all pods."""
    level = CgroupLevel.CONTAINER if container_name else CgroupLevel.POD if name else CgroupLevel.NODE
    (group,) = (
        group
        for group in cgroups.groups
        if group.level is level and group.pod.endswith(name) and group.container == container_name
    )
    return {file.name: file.value for file in group.files}


def test_under_policy_none_all_pods_run_on_all_cpus() -> None:
    cgroups = a_node().cgroups([a_guaranteed_pod("g", "2/1Gi")])
    assert texts(cgroups)["cpuset.cpus"] == "0-7"
    assert not {"cpuset.cpus", "cpuset.mems"} & texts(cgroups, "g", "main").keys()
    assert texts(cgroups, "g")["cpu.max"] == "200000 100000"


def test_containers_with_exclusive_cpus_have_cpusets_and_no_quota() -> None:
    cgroups = a_node(**STATIC).cgroups([a_guaranteed_pod("g", "2/1Gi"), a_pod("b", "cpu=1")])
    mine = texts(cgroups, "g", "main")
    assert (mine["cpuset.cpus"], mine["cpuset.mems"], mine["cpu.max"]) == ("1-2", "0", "max 100000")
    assert texts(cgroups, "g")["cpu.max"] == "max 100000"
    assert texts(cgroups, "b", "main")["cpuset.cpus"] == "0,3-7"
    assert "cpuset.cpus" not in texts(cgroups)


def test_the_shared_pool_is_the_one_after_all_pods() -> None:
    cgroups = a_node(**STATIC).cgroups([a_pod("b", "cpu=1"), a_guaranteed_pod("g", "2/1Gi")])
    assert texts(cgroups, "b", "main")["cpuset.cpus"] == "0,3-7"


def test_an_init_container_keeps_the_memory_nodes_of_its_admission() -> None:
    made = pod(container("main", "1/1Gi", "1/1Gi"), init=(container("init", "1/1Gi", "1/1Gi"),), uid="u")
    assert texts(a_node(**STATIC).cgroups([made]), "", "init")["cpuset.mems"] == "0"


def test_a_quota_remains_with_its_gate_off() -> None:
    gates: dict[str, Any] = {"featureGates": {"DisableCPUQuotaWithExclusiveCPUs": False}}
    cgroups = a_node(release="1.36", **STATIC, **gates).cgroups([a_guaranteed_pod("g", "2/1Gi")])
    assert texts(cgroups, "g", "main")["cpu.max"] == "200000 100000"


POD_LEVEL: dict[str, Any] = {
    "featureGates": {"PodLevelResourceManagers": True},
    "topologyManagerScope": "pod",
    "topologyManagerPolicy": "restricted",
}


def test_pod_level_cpus_are_shared_by_the_containers_under_quotas() -> None:
    made = pod(container("own", "1/1Gi", "1/1Gi"), container("rest"), whole="3/2Gi", uid="u")
    cgroups = a_node(**STATIC, **POD_LEVEL).cgroups([made])
    own, rest = texts(cgroups, "", "own"), texts(cgroups, "", "rest")
    assert (own["cpu.max"], rest["cpu.max"]) == ("max 100000", "300000 100000")
    assert len(own["cpuset.cpus"]) == 1
    assert own["cpuset.cpus"] not in rest["cpuset.cpus"].split(",")
    # One container that shares is enough for the pod to keep its quota.
    assert texts(cgroups, "pod")["cpu.max"] == "300000 100000"
    alone = pod(container("own", "2/2Gi", "2/2Gi"), whole="2/2Gi", uid="u")
    assert texts(a_node(**STATIC, **POD_LEVEL).cgroups([alone]), "pod")["cpu.max"] == "max 100000"


def test_settings_of_the_kubelet_count() -> None:
    node = a_node(
        swap_bytes=8 << 30,
        memorySwap={"swapBehavior": "LimitedSwap"},
        failSwapOn=False,
        podPidsLimit=77,
        cpuCFSQuotaPeriod="50ms",
        singleProcessOOMKill=False,
        featureGates={"QOSReserved": True},
        memoryThrottlingFactor=0.9,
        qosReserved={"memory": "50%"},
    )
    made = a_pod("b", "cpu=1 memory=1Gi", "cpu=1 memory=2Gi")
    cgroups = node.cgroups([made])
    mine = texts(cgroups, "b", "main")
    assert texts(cgroups, "b")["pids.max"] == "77"
    assert (mine["cpu.max"], mine["memory.oom.group"]) == ("50000 50000", "1")
    assert (mine["memory.swap.max"], mine["memory.high"]) == (str(1 << 30), "2040107008")
    classes = {
        str(group.qos_class): group for group in cgroups.groups if group.level is CgroupLevel.QOS_CLASS
    }
    reserved = {file.name: file.value for file in classes["BestEffort"].files}["memory.max"]
    assert reserved == str((8 << 30) - (1 << 29))


def test_version_and_driver_can_be_overridden() -> None:
    node = a_node()
    cgroups = node.cgroups(
        [a_pod("b", "cpu=1")], CgroupOverrides(version=1, driver="systemd", has_linear_runtime=True)
    )
    assert "cpu.shares" in texts(cgroups, "b")
    assert cgroups.groups[0].path == "/kubepods.slice"
    linear = node.cgroups([a_pod("b", "cpu=1")], CgroupOverrides(has_linear_runtime=True))
    assert texts(linear, "b", "main")["cpu.weight"] == "39"


def test_the_profile_sets_the_version() -> None:
    cgroups = a_node(version=1, failCgroupV1=False).cgroups([a_pod("b", "cpu=1")])
    assert cgroups.rules.version == 1


ENFORCED: dict[str, Any] = {
    "cgroupDriver": "systemd",
    "systemReservedCgroup": "/system.slice",
    "kubeReservedCgroup": "/kube.slice",
    "systemReserved": {"cpu": "500m", "memory": "1Gi"},
    "kubeReserved": {"cpu": "500m", "memory": "1Gi"},
}


def test_daemon_cgroups_exist_where_enforced() -> None:
    whole = a_node(
        **ENFORCED, enforceNodeAllocatable=["pods", "system-reserved", "kube-reserved-compressible"]
    )
    first, second, *_ = whole.cgroups([]).groups
    assert [group.path for group in (first, second)] == ["/system.slice", "/kube.slice"]
    assert [file.name for file in first.files] == ["cpu.weight", "cpuset.cpus", "memory.max", "memory.min"]
    assert [file.name for file in second.files] == ["cpu.weight", "cpuset.cpus"]


def test_refused_preempted_and_terminal_pods_have_no_cgroups() -> None:
    node = a_node(a_pod("old", "cpu=7"))
    critical = a_pod("critical", "cpu=4", priority=2_000_000_000)
    cgroups = node.cgroups(
        [a_pod("big", "cpu=9"), a_pod("over", status={"phase": "Succeeded"}), critical], include_existing=True
    )
    assert [result.pod.metadata.name for result in cgroups.results] == ["big", "critical"]
    assert {group.pod for group in cgroups.groups if group.pod} == {"default/critical"}


def test_existing_pods_count_for_node_cgroups_and_are_included_on_request() -> None:
    node = a_node(a_pod("old", "cpu=1"))
    alone, both = (
        node.cgroups([a_pod("new", "cpu=1")]),
        node.cgroups([a_pod("new", "cpu=1")], include_existing=True),
    )
    assert {group.pod for group in alone.groups if group.pod} == {"default/new"}
    assert {group.pod for group in both.groups if group.pod} == {"default/new", "default/old"}
    (burstable,) = (
        group
        for group in alone.groups
        if group.qos_class == "Burstable" and group.level is CgroupLevel.QOS_CLASS
    )
    assert burstable.files[0].value == "79"


def test_a_uid_that_is_invalid_in_a_cgroup_name_is_rejected() -> None:
    with pytest.raises(InputError, match=r'the kubelet crashes: invalid character in component \["poda_b"\]'):
        a_node().cgroups([a_pod("odd", metadata={"uid": "a_b"})])


def test_huge_page_sizes_come_from_the_machine() -> None:
    machine = replace(regular_machine(1), hugepages=(HugePages(page_size=2048, num_pages=4),))
    node = Node.from_profile(NodeProfile(spec=NodeProfileSpec(machine_info=machine)))
    assert texts(node.cgroups([]))["hugetlb.2MB.max"] == str(1 << 62)
