import pytest

from nodewright.engine.core.allocatable import NodeResources, node_resources, pod_capacity
from nodewright.model.hardware import Core, HugePages, MachineInfo, NUMANode
from nodewright.model.kubernetes.kubelet_config_faults import KubeletConfigError
from nodewright.model.kubernetes.kubelet_configuration import KubeletConfiguration
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Quantity

GIB = 2**30
MACHINE = MachineInfo(
    num_cores=8,
    memory_capacity=16 * GIB,
    hugepages=(HugePages(page_size=2048, num_pages=512), HugePages(page_size=1048576, num_pages=2)),
    topology=(NUMANode(cores=tuple(Core(core_id=cpu, thread_ids=(cpu,)) for cpu in range(8))),),
)
NO_THRESHOLDS = KubeletConfiguration(eviction_hard={})


def resources(config: KubeletConfiguration, machine: MachineInfo = MACHINE) -> NodeResources:
    return node_resources(machine, 100 * GIB, config)


def texts(amounts: dict[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def test_without_reservations_only_huge_pages_are_taken_off() -> None:
    result = resources(NO_THRESHOLDS)
    assert texts(result.capacity) == {
        "cpu": "8",
        "ephemeral-storage": "100Gi",
        "hugepages-1Gi": "2Gi",
        "hugepages-2Mi": "1Gi",
        "memory": "16Gi",
        "pods": "110",
    }
    assert texts(result.allocatable) == {**texts(result.capacity), "memory": "13Gi"}
    assert result.total_reserved == {}


def test_each_reservation_is_taken_off_and_shown() -> None:
    config = KubeletConfiguration(
        kube_reserved={"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
        system_reserved={"cpu": "250m", "memory": "512Mi", "pid": "1000"},
        eviction_hard={"memory.available": "512Mi", "nodefs.available": "10%", "imagefs.available": "15%"},
    )
    result = resources(config)
    assert texts(result.total_reserved) == {
        "cpu": "750m",
        "memory": "2Gi",
        "ephemeral-storage": "11811160224",
    }
    assert texts(result.allocatable)["cpu"] == "7250m"
    assert texts(result.allocatable)["memory"] == "11Gi"
    (memory,) = (row for row in result.derivations if row.resource == "memory")
    assert [str(amount) for amount in (memory.kube_reserved, memory.system_reserved)] == ["1Gi", "512Mi"]
    assert [str(amount) for amount in (memory.eviction_hard, memory.huge_pages)] == ["512Mi", "3Gi"]


def test_the_kubepods_cgroup_keeps_no_eviction_threshold_and_no_huge_pages() -> None:
    config = KubeletConfiguration(kube_reserved={"memory": "1Gi"}, system_reserved={"pid": "1k"})
    result = node_resources(MACHINE, 0, config, pid_max=32768)
    assert texts(result.kubepods) == {
        "cpu": "8",
        "memory": "15Gi",
        "hugepages-2Mi": "1Gi",
        "hugepages-1Gi": "2Gi",
        "ephemeral-storage": "0",
        "pid": "31768",
    }


@pytest.mark.parametrize(
    "config",
    [
        KubeletConfiguration(kube_reserved={"memory": "1Gi"}, enforce_node_allocatable=()),
        KubeletConfiguration(
            kube_reserved={"memory": "1Gi"}, enforce_node_allocatable=("none",), cgroups_per_qos=False
        ),
    ],
)
def test_pods_that_are_not_held_to_allocatable_may_have_the_whole_node(config: KubeletConfiguration) -> None:
    assert str(resources(config).kubepods["memory"]) == "16Gi"


def test_reserved_cpus_by_number_replace_both_amounts_of_cpu() -> None:
    config = KubeletConfiguration(
        reserved_system_cpus="0,4-5", kube_reserved={"cpu": "2"}, system_reserved={"cpu": "1500m"}
    )
    result = resources(config)
    assert result.reservations.cpus == CPUSet.of(0, 4, 5)
    assert result.reservations.kube is None
    assert str(result.allocatable["cpu"]) == "5"


@pytest.mark.parametrize(
    ("cpus", "online", "text"),
    [
        ("0-8", MACHINE, "reserved-cpus: 0-8 is not a subset of online-cpus: 0-7"),
        ("70000", MACHINE, "reserved-cpus: 70000 is not a subset of online-cpus: 0-7"),
        ("0-999999999", MACHINE, "reserved-cpus: 0-999999999 is not a subset of online-cpus: 0-7"),
        ("0,,1", MACHINE, 'unable to parse reserved-cpus list: strconv.Atoi: parsing "": invalid syntax'),
        ("0", MachineInfo(), "unable to discover CPU topology info: could not detect number of cpus"),
        (
            "0",
            MachineInfo(num_cores=1, topology=(NUMANode(cores=(Core(),)),)),
            "unable to discover CPU topology info: no cpus provided",
        ),
        (
            "0",
            MachineInfo(num_cores=2, topology=(NUMANode(cores=(Core(thread_ids=(1, 1)), Core())),)),
            "unable to discover CPU topology info: cpus provided are not unique",
        ),
    ],
)
def test_reserved_cpus_must_be_there(cpus: str, online: MachineInfo, text: str) -> None:
    with pytest.raises(KubeletConfigError) as refused:
        node_resources(online, 0, KubeletConfiguration(reserved_system_cpus=cpus))
    assert [fault.rule for fault in refused.value.faults] == [text]


def test_allocatable_is_never_below_zero_and_the_excess_is_told() -> None:
    config = KubeletConfiguration(kube_reserved={"memory": "15Gi", "cpu": "9"})
    result = resources(config)
    assert str(result.allocatable["memory"]) == "0"
    assert str(result.allocatable["cpu"]) == "0"
    assert [
        (over_reserved.resource, str(over_reserved.reservation)) for over_reserved in result.over_reserved
    ] == [("cpu", "9")]
    assert [row.resource for row in result.derivations if row.is_over_reserved] == ["cpu", "memory"]


def test_storage_is_no_resource_where_it_is_not_isolated() -> None:
    result = resources(KubeletConfiguration(local_storage_capacity_isolation=False))
    assert "ephemeral-storage" not in result.capacity
    assert "ephemeral-storage" not in result.total_reserved


def test_devices_that_do_not_work_are_capacity_only() -> None:
    result = node_resources(MACHINE, 0, NO_THRESHOLDS, {"example.com/gpu": (4, 3)})
    assert (str(result.capacity["example.com/gpu"]), str(result.allocatable["example.com/gpu"])) == ("4", "3")
    (gpus,) = (row for row in result.derivations if row.resource == "example.com/gpu")
    assert str(gpus.unavailable) == "1"


@pytest.mark.parametrize(("per_core", "pods"), [(0, 110), (-1, 110), (10, 80), (20, 110)])
def test_pods_are_limited_by_cores_where_that_is_asked(per_core: int, pods: int) -> None:
    assert pod_capacity(8, 110, per_core) == pods


def test_wrong_reservations_are_refused_with_all_that_is_wrong() -> None:
    config = KubeletConfiguration(
        kube_reserved={"cpu": "-1", "pods": "1"},
        system_reserved={"memory": "1GB2"},
        eviction_hard={"memory.available": "0"},
    )
    with pytest.raises(KubeletConfigError) as refused:
        resources(config)
    assert [fault.path for fault in refused.value.faults] == [
        "kubeReserved[cpu]",
        "kubeReserved[pods]",
        "systemReserved[memory]",
        "evictionHard[memory.available]",
    ]
