import pytest

from nodewright.engine.core.cgroups.cgroup_names import (
    CgroupName,
    CgroupNameError,
    QOSCgroupNames,
    is_systemd_style,
    node_allocatable_root,
    parse_cgroup_name,
    parse_cgroupfs,
    parse_systemd,
    pod_cgroup_name,
    pod_uid_from_cgroup,
    uid_on_node,
)
from nodewright.testing.objects import a_guaranteed_pod, a_pod

PARENTS = QOSCgroupNames.for_root(node_allocatable_root("/", per_qos=True))

# Components, path under cgroupfs, path under systemd.
NAMES = """
    -                     /                      /
    kubepods              /kubepods              /kubepods.slice
    kubepods,burstable    /kubepods/burstable    /kubepods.slice/kubepods-burstable.slice
    a-b,pod1-2            /a-b/pod1-2            /a_b.slice/a_b-pod1_2.slice
    workload.slice        /workload.slice        /workload.slice.slice
"""


@pytest.mark.parametrize("line", NAMES.strip().splitlines())
def test_each_driver_has_its_spelling_and_reads_it_back(line: str) -> None:
    listed, cgroupfs, systemd = line.split()
    name = CgroupName(() if listed == "-" else tuple(listed.split(",")))
    assert (name.path("cgroupfs"), name.path("systemd")) == (cgroupfs, systemd)
    assert parse_cgroup_name(cgroupfs, "cgroupfs") == name
    if name.components:
        assert parse_cgroup_name(systemd, "systemd") == name


@pytest.mark.parametrize("component", ["a/b", "_", "pod_1"])
def test_components_that_systemd_could_not_tell_apart_are_refused(component: str) -> None:
    with pytest.raises(CgroupNameError) as refused:
        CgroupName(("kubepods",)).child("x", component)
    assert str(refused.value) == f'invalid character in component ["{component}"] of CgroupName'


@pytest.mark.parametrize("components", [("a", ""), ("", "a", "b"), ("a/b",)])
def test_systemd_has_no_name_for_some_groups(components: tuple[str, ...]) -> None:
    with pytest.raises(
        CgroupNameError, match=r"^error converting cgroup name \[\[.*\]\] to systemd format: "
    ):
        CgroupName(components).systemd()


def test_odd_paths_are_read_as_they_stand() -> None:
    assert parse_cgroupfs("//a").components == ("", "a")
    assert CgroupName(("", "a")).cgroupfs() == "/a"
    assert parse_systemd("").components == (".",)
    assert parse_systemd("/").components == ("/",)
    assert [is_systemd_style(path) for path in ("/a.slice", "/a")] == [True, False]


@pytest.mark.parametrize(
    ("root", "per_qos", "path"),
    [("", True, "/kubepods"), ("/", False, "/"), ("/foo/bar", True, "/foo/bar/kubepods"), ("x", False, "/x")],
)
def test_all_pods_stand_below_the_configured_root(root: str, per_qos: bool, path: str) -> None:
    assert node_allocatable_root(root, per_qos=per_qos).path("cgroupfs") == path


def test_guaranteed_pods_stand_beside_the_classes_not_in_one() -> None:
    paths = [
        pod_cgroup_name(pod, PARENTS).path("cgroupfs")
        for pod in (a_guaranteed_pod("g", "1/1Gi"), a_pod("b", "cpu=1"), a_pod("e"))
    ]
    assert paths == ["/kubepods/podg", "/kubepods/burstable/podb", "/kubepods/besteffort/pode"]


# A path and the uid of the pod whose group it is; `-`: it is no pod's.
GROUPS = """
    /kubepods/podu1                   u1
    /kubepods/burstable/podu1         u1
    /elsewhere/burstable/podu1        u1
    /kubepods/burstable/pod           ''
    /kubepods/burstable               -
    /kubepods/burstable/podu1/c1      -
    /kubepods/burstable/podpod1       -
    /kubepods/burstable/c1            -
"""


@pytest.mark.parametrize("line", GROUPS.strip().splitlines())
def test_depth_and_last_component_alone_make_the_group_of_a_pod(line: str) -> None:
    path, uid = line.split()
    expected = {"-": None, "''": ""}.get(uid, uid)
    assert pod_uid_from_cgroup(path, PARENTS, "cgroupfs") == expected


def test_a_scope_of_systemd_is_read_by_its_last_element_alone() -> None:
    pod = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice"
    assert pod_uid_from_cgroup(pod, PARENTS, "systemd") == "u-1"
    assert pod_uid_from_cgroup(f"{pod}/cri-containerd-1f.scope", PARENTS, "systemd") is None


def test_the_node_knows_a_mirror_pod_by_the_uid_of_the_static_pod() -> None:
    mirror = a_pod("m", metadata={"annotations": {"kubernetes.io/config.mirror": "0f3a"}})
    assert [uid_on_node(pod) for pod in (mirror, a_pod("p"))] == ["0f3a", "p"]
