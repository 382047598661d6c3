"""The cgroups of nodes, seen through `Node`."""

from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.ask import Cgroups, Node
from nodewright.core.cgroups.plan import Level
from nodewright.model.machine import HugePages
from nodewright.model.objects import Pod
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.node.cgroups import Wish
from nodewright.testing.machines import regular_machine
from nodewright.testing.objects import a_guaranteed_pod, a_pod, container, pod
from nodewright.world.errors import InputError

STATIC: dict[str, Any] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "kubeReserved": {"cpu": "1", "memory": "1Gi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}


def a_node(*pods: Pod, swap_bytes: int = 0, version: int = 2, **kubelet: Any) -> Node:
    """Two NUMA nodes with 4 CPUs and 4 GiB each; nothing kept for evictions."""
    spec = NodeProfileSpec(
        machine_info=regular_machine(2),
        root_fs_capacity=100 << 30,
        kubelet_configuration={"evictionHard": {}, **kubelet},
        pods=pods,
        swap_bytes=swap_bytes,
        cgroup_version=version,
    )
    return Node.of(NodeProfile(spec=spec))


def texts(found: Cgroups, name: str = "", container_name: str = "") -> dict[str, str]:
    """The files of a pod's group, of a container's, or of the group of all pods."""
    level = Level.CONTAINER if container_name else Level.POD if name else Level.NODE
    (group,) = (
        one
        for one in found.groups
        if one.level is level and one.pod.endswith(name) and one.container == container_name
    )
    return {file.name: file.value for file in group.files}


def test_without_a_policy_all_pods_may_run_everywhere_and_nobody_is_pinned() -> None:
    found = a_node().cgroups([a_guaranteed_pod("g", "2/1Gi")])
    assert texts(found)["cpuset.cpus"] == "0-7"
    assert not {"cpuset.cpus", "cpuset.mems"} & texts(found, "g", "main").keys()
    assert texts(found, "g")["cpu.max"] == "200000 100000"


def test_pinned_containers_have_their_cpus_and_memory_and_no_quota() -> None:
    found = a_node(**STATIC).cgroups([a_guaranteed_pod("g", "2/1Gi"), a_pod("b", "cpu=1")])
    mine = texts(found, "g", "main")
    assert (mine["cpuset.cpus"], mine["cpuset.mems"], mine["cpu.max"]) == ("1-2", "0", "max 100000")
    assert texts(found, "g")["cpu.max"] == "max 100000"
    assert texts(found, "b", "main")["cpuset.cpus"] == "0,3-7"
    assert "cpuset.cpus" not in texts(found)


def test_shared_cpus_are_those_that_are_left_at_the_end() -> None:
    found = a_node(**STATIC).cgroups([a_pod("b", "cpu=1"), a_guaranteed_pod("g", "2/1Gi")])
    assert texts(found, "b", "main")["cpuset.cpus"] == "0,3-7"


def test_an_init_container_is_told_of_memory_that_is_free_once_it_has_ended() -> None:
    made = pod(container("main", "1/1Gi", "1/1Gi"), init=(container("init", "1/1Gi", "1/1Gi"),), uid="u")
    assert texts(a_node(**STATIC).cgroups([made]), "", "init")["cpuset.mems"] == "0"


def test_a_quota_stays_where_its_gate_is_off() -> None:
    gates: dict[str, Any] = {"featureGates": {"DisableCPUQuotaWithExclusiveCPUs": False}}
    found = a_node(**STATIC, **gates).cgroups([a_guaranteed_pod("g", "2/1Gi")])
    assert texts(found, "g", "main")["cpu.max"] == "200000 100000"


POD_LEVEL: dict[str, Any] = {
    "featureGates": {"PodLevelResourceManagers": True},
    "topologyManagerScope": "pod",
    "topologyManagerPolicy": "restricted",
}


def test_cpus_of_a_pod_as_a_whole_are_shared_by_its_containers_under_their_quotas() -> None:
    made = pod(container("own", "1/1Gi", "1/1Gi"), container("rest"), whole="3/2Gi", uid="u")
    found = a_node(**STATIC, **POD_LEVEL).cgroups([made])
    own, rest = texts(found, "", "own"), texts(found, "", "rest")
    assert (own["cpu.max"], rest["cpu.max"]) == ("max 100000", "300000 100000")
    assert len(own["cpuset.cpus"]) == 1
    assert own["cpuset.cpus"] not in rest["cpuset.cpus"].split(",")
    # One container that shares is enough for the pod to keep its quota.
    assert texts(found, "pod")["cpu.max"] == "300000 100000"
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
        featureGates={"MemoryQoS": True, "QOSReserved": True},
        qosReserved={"memory": "50%"},
    )
    made = a_pod("b", "cpu=1 memory=1Gi", "cpu=1 memory=2Gi")
    found = node.cgroups([made])
    mine = texts(found, "b", "main")
    assert texts(found, "b")["pids.max"] == "77"
    assert (mine["cpu.max"], mine["memory.oom.group"]) == ("50000 50000", "1")
    assert (mine["memory.swap.max"], mine["memory.high"]) == (str(1 << 30), "2040107008")
    classes = {str(one.qos_class): one for one in found.groups if one.level is Level.CLASS}
    reserved = {file.name: file.value for file in classes["BestEffort"].files}["memory.max"]
    assert reserved == str((8 << 30) - (1 << 29))


def test_other_versions_and_drivers_can_be_wished_for() -> None:
    node = a_node()
    found = node.cgroups([a_pod("b", "cpu=1")], Wish(version=1, driver="systemd", has_linear_runtime=True))
    assert "cpu.shares" in texts(found, "b")
    assert found.groups[0].path == "/kubepods.slice"
    linear = node.cgroups([a_pod("b", "cpu=1")], Wish(has_linear_runtime=True))
    assert texts(linear, "b", "main")["cpu.weight"] == "39"


def test_the_description_tells_the_version() -> None:
    found = a_node(version=1, failCgroupV1=False).cgroups([a_pod("b", "cpu=1")])
    assert found.rules.version == 1


ENFORCED: dict[str, Any] = {
    "cgroupDriver": "systemd",
    "systemReservedCgroup": "/system.slice",
    "kubeReservedCgroup": "/kube.slice",
    "systemReserved": {"cpu": "500m", "memory": "1Gi"},
    "kubeReserved": {"cpu": "500m", "memory": "1Gi"},
}


def test_daemons_are_held_where_that_is_enforced() -> None:
    whole = a_node(
        **ENFORCED, enforceNodeAllocatable=["pods", "system-reserved", "kube-reserved-compressible"]
    )
    first, second, *_ = whole.cgroups([]).groups
    assert [group.path for group in (first, second)] == ["/system.slice", "/kube.slice"]
    assert [file.name for file in first.files] == ["cpu.weight", "cpuset.cpus", "memory.max"]
    assert [file.name for file in second.files] == ["cpu.weight", "cpuset.cpus"]


def test_pods_that_are_refused_evicted_or_over_have_no_groups() -> None:
    node = a_node(a_pod("old", "cpu=7"))
    critical = a_pod("critical", "cpu=4", priority=2_000_000_000)
    found = node.cgroups(
        [a_pod("big", "cpu=9"), a_pod("over", status={"phase": "Succeeded"}), critical], own_too=True
    )
    assert [one.pod.metadata.name for one in found.answers] == ["big", "critical"]
    assert {group.pod for group in found.groups if group.pod} == {"default/critical"}


def test_pods_that_the_node_has_count_above_and_are_shown_if_asked() -> None:
    node = a_node(a_pod("old", "cpu=1"))
    alone, both = node.cgroups([a_pod("new", "cpu=1")]), node.cgroups([a_pod("new", "cpu=1")], own_too=True)
    assert {group.pod for group in alone.groups if group.pod} == {"default/new"}
    assert {group.pod for group in both.groups if group.pod} == {"default/new", "default/old"}
    (burstable,) = (one for one in alone.groups if one.qos_class == "Burstable" and one.level is Level.CLASS)
    assert burstable.files[0].value == "79"


def test_a_uid_that_no_group_can_have_is_refused() -> None:
    with pytest.raises(InputError, match=r'the kubelet crashes: invalid character in component \["poda_b"\]'):
        a_node().cgroups([a_pod("odd", metadata={"uid": "a_b"})])


def test_the_machine_names_the_sizes_of_huge_pages() -> None:
    machine = replace(regular_machine(1), hugepages=(HugePages(page_size=2048, num_pages=4),))
    node = Node.of(NodeProfile(spec=NodeProfileSpec(machine_info=machine)))
    assert texts(node.cgroups([]))["hugetlb.2MB.max"] == str(1 << 62)
