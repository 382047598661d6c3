from msgspec.structs import replace

from nodewright.engine.core.cgroups.cgroup_config import CgroupConfig
from nodewright.engine.core.cgroups.cgroup_facts import AmountOrigin
from nodewright.engine.core.cgroups.cgroup_names import CgroupName
from nodewright.engine.core.cgroups.cgroup_plan import (
    CgroupLayout,
    CgroupLevel,
    DaemonCgroup,
    PlannedCgroup,
    pod_cgroups,
    top_level_cgroups,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.releases.feature_gates import default_gates
from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.model.values.idset import CPUSet
from nodewright.model.values.quantity import Bytes
from nodewright.testing.objects import a_guaranteed_pod, a_pod, amounts, container, pod, sidecar

MIB = 1 << 20
RULES = CgroupConfig(memory_capacity=Bytes(1 << 34))
TREE = CgroupLayout(root=CgroupName(("kubepods",)), limits=amounts("cpu=4 memory=1Gi hugepages-2Mi=4Mi"))
GATES_1_36 = default_gates(RELEASE_TABLES["1.36"])
PODS = (a_guaranteed_pod("g", "1/100Mi"), a_pod("b", "250m/40Mi"))


def file_lines(groups: tuple[PlannedCgroup, ...]) -> list[str]:
    return [
        f"{group.path}/{file.name} = {file.value}"
        for group in groups
        for file in group.files
        if ".rsvd." not in file.name
    ]


def test_the_top_holds_all_pods_and_classes_stand_below() -> None:
    assert file_lines(top_level_cgroups(TREE, RULES, PODS)) == [
        "/kubepods/cpu.weight = 157",
        "/kubepods/memory.max = 1073741824",
        "/kubepods/memory.min = 0",
        "/kubepods/memory.low = 0",
        "/kubepods/burstable/cpu.weight = 10",
        "/kubepods/burstable/memory.low = 0",
        "/kubepods/besteffort/cpu.weight = 1",
    ]
    older = file_lines(top_level_cgroups(TREE, replace(RULES, gates=GATES_1_36), PODS))
    assert [line for line in older if "memory" in line] == ["/kubepods/memory.max = 1073741824"]


def test_a_minute_after_the_start_huge_pages_are_unbounded_at_the_top() -> None:
    lines = file_lines(top_level_cgroups(TREE, replace(RULES, huge_page_sizes=(Bytes(2 * MIB),)), PODS))
    assert [line for line in lines if "hugetlb" in line] == [
        f"/kubepods{below}/hugetlb.2MB.max = {1 << 62}" for below in ("", "/burstable", "/besteffort")
    ]


def test_memory_is_protected_and_reserved_by_class() -> None:
    rules = replace(RULES, has_memory_qos=True, reservation_policy="TieredReservation")
    reserving = replace(TREE, qos_reserved_percent=50, allocatable_memory=Bytes(1000 * MIB))
    lines = file_lines(top_level_cgroups(reserving, rules, PODS))
    assert [line for line in lines if "/memory." in line] == [
        "/kubepods/memory.max = 1073741824",
        f"/kubepods/memory.min = {140 * MIB}",
        f"/kubepods/memory.low = {40 * MIB}",
        f"/kubepods/burstable/memory.max = {950 * MIB}",
        f"/kubepods/burstable/memory.low = {40 * MIB}",
        f"/kubepods/besteffort/memory.max = {930 * MIB}",
    ]


def test_daemons_are_held_to_what_is_kept_for_them() -> None:
    kept = DaemonCgroup(path="/system.slice", limits=amounts("500m/1Gi"), origin=AmountOrigin.SYSTEM_RESERVED)
    rules = replace(RULES, driver="systemd", has_memory_qos=True, huge_page_sizes=(Bytes(2 * MIB),))
    tree = replace(TREE, daemons=(kept,), all_cpus=CPUSet.of(0, 1))
    assert [line for line in file_lines(top_level_cgroups(tree, rules, ())) if "/system" in line] == [
        "/system.slice/cpu.weight = 20",
        "/system.slice/cpuset.cpus = 0-1",
        "/system.slice/memory.max = 1073741824",
        "/system.slice/memory.min = 1073741824",
        # All page sizes that the reservation does not name, and it cannot name any.
        "/system.slice/hugetlb.2MB.max = 0",
    ]
    compressible = replace(tree, daemons=(replace(kept, compressible_only=True),), all_cpus=None)
    lines = file_lines(top_level_cgroups(compressible, replace(rules, huge_page_sizes=()), ()))
    assert [line for line in lines if "/system" in line] == ["/system.slice/cpu.weight = 20"]


def test_without_groups_for_classes_there_is_the_root_alone_or_nothing() -> None:
    flat = replace(TREE, cgroups_per_qos=False, root=CgroupName(("all",)))
    assert [group.path for group in top_level_cgroups(flat, RULES, PODS)] == ["/all"]
    assert top_level_cgroups(replace(flat, root=CgroupName()), RULES, PODS) == ()


def groups_of(made: Pod, rules: CgroupConfig = RULES, tree: CgroupLayout = TREE) -> list[PlannedCgroup]:
    return list(pod_cgroups(made, tree, rules, {}, has_exclusive_cpus=False))


def test_a_pod_holds_its_containers_and_init_containers_pass() -> None:
    made = pod(container("a"), init=(container("i"), sidecar("s")), uid="u1")
    assert [(group.level, group.path, group.is_transient) for group in groups_of(made)] == [
        (CgroupLevel.POD, "/kubepods/besteffort/podu1", False),
        (CgroupLevel.CONTAINER, "/kubepods/besteffort/podu1/<a>", False),
        (CgroupLevel.CONTAINER, "/kubepods/besteffort/podu1/<i>", True),
        (CgroupLevel.CONTAINER, "/kubepods/besteffort/podu1/<s>", False),
    ]


def leaf(container_id: str, driver: str) -> str:
    status = {"containerStatuses": [{"name": "main", "containerID": container_id}]}
    return groups_of(a_pod("p", status=status), replace(RULES, driver=driver))[-1].path.rpartition("/")[2]


def test_containers_with_an_id_stand_where_their_runtime_puts_them() -> None:
    assert [leaf(f"{runtime}://1f", "systemd") for runtime in ("containerd", "cri-o", "docker", "other")] == [
        "cri-containerd-1f.scope",
        "crio-1f.scope",
        "docker-1f.scope",
        "1f",
    ]
    assert [leaf(f"{runtime}://1f", "cgroupfs") for runtime in ("containerd", "cri-o")] == ["1f", "crio-1f"]
    assert leaf("containerd://../../1f", "cgroupfs") == "<main>"


def test_a_mirror_pod_stands_where_its_static_pod_does() -> None:
    mirror = a_pod("m", metadata={"annotations": {"kubernetes.io/config.mirror": "0f3a"}})
    assert groups_of(mirror)[0].path == "/kubepods/besteffort/pod0f3a"


def test_without_groups_for_pods_containers_stand_where_the_runtime_wants() -> None:
    (group,) = groups_of(a_pod("p"), tree=replace(TREE, cgroups_per_qos=False))
    assert (group.level, group.path) == (CgroupLevel.CONTAINER, "/<runtime>/<main>")
