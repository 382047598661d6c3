"""What a timeline starts from."""

from msgspec.structs import replace

from nodewright.ask import Node
from nodewright.model.profile import NodeProfile, NodeProfileSpec
from nodewright.model.thresholds import Signal
from nodewright.model.usage import ContainerUse, MemoryUse, NodeUse, PodReference, PodUse, Usage
from nodewright.sim.timeline import ContainerPart, Growth, Setting, setting_of
from nodewright.testing.objects import a_pod
from nodewright.testing.usage import a_reading, a_use
from nodewright.values.instant import Instant
from nodewright.world.nodes import find_profile

GI = 1 << 30
SWAPPING = {
    "failSwapOn": False,
    "memorySwap": {"swapBehavior": "LimitedSwap"},
    "kubeReserved": {"memory": "1Gi"},
    "evictionHard": {"memory.available": "1Gi", "nodefs.available": "10%"},
}


def node(**configuration: object) -> Node:
    spec = find_profile("vm-4").spec
    found: NodeProfileSpec = replace(spec, kubelet_configuration=configuration, swap_bytes=8 * GI)
    return Node.of(NodeProfile(spec=found))


def begun(usage: Usage, *growth: Growth, **configuration: object) -> Setting:
    pods = (
        a_pod("web", "memory=4Gi cpu=500m", "memory=6Gi", status={"startTime": "1970-01-01T00:00:05Z"}),
        a_pod("job", restartPolicy="Never"),
    )
    found = setting_of(node(**configuration).config, pods, usage, growth, duration_ns=1)
    assert found is not None
    return found


def test_limits_points_and_swap_are_those_of_the_containers_groups() -> None:
    setting = begun(a_reading(a_use("web", "2Gi"), at_s=65), **SWAPPING)
    web, job = setting.pods
    assert web.containers == (
        ContainerPart(
            name="main",
            used_bytes=2 * GI,
            limit_bytes=6 * GI,
            swap_bytes=2 * GI,
            oom_score_adj=750,
            cpu_milli=500,
        ),
    )
    assert (web.limit_bytes, web.age_ns, web.has_stats) == (6 * GI, 60 * 10**9, True)
    assert (job.containers[0].oom_score_adj, job.containers[0].restarts, job.has_stats) == (
        1000,
        False,
        False,
    )
    assert (job.limit_bytes, job.age_ns) == (None, None)
    assert (setting.pods_limit_bytes, setting.swap_bytes) == (15 * GI, 8 * GI)
    assert {one.signal for one in setting.rules.thresholds} == {
        Signal.MEMORY_AVAILABLE,
        Signal.ALLOCATABLE_MEMORY_AVAILABLE,
    }
    assert (setting.for_pods, setting.is_notified) == (True, False)


def test_what_no_pod_uses_is_used_beside_them() -> None:
    # 8Gi are used, 7Gi of them in the group of all pods, 2Gi of those by a pod that is known.
    setting = begun(a_reading(a_use("web", "2Gi"), memory="8Gi/16Gi", allocatable="9Gi/16Gi"))
    assert (setting.memory_bytes, setting.system_bytes, setting.pods_other_bytes) == (16 * GI, GI, 5 * GI)


def test_who_is_to_grow_is_measured() -> None:
    assert begun(a_reading(), Growth(at_ns=0, pod="job", container="main", rate=1)).pods[1].has_stats


def test_files_and_what_a_pod_uses_beside_its_containers_count() -> None:
    main = ContainerUse(name="main", memory=MemoryUse(working_set_bytes=2 * GI, rss_bytes=GI))
    use = PodUse(
        pod_ref=PodReference(uid="web"), containers=(main,), memory=MemoryUse(working_set_bytes=3 * GI)
    )
    (web, _) = begun(a_reading(use)).pods
    assert (web.containers[0].used_bytes, web.containers[0].file_bytes) == (3 * GI, GI)


def test_without_memory_there_is_no_start() -> None:
    for memory in (
        None,
        MemoryUse(available_bytes=0, working_set_bytes=0),
        MemoryUse(available_bytes=1),
        MemoryUse(working_set_bytes=1),
    ):
        usage = Usage(node=NodeUse(memory=memory))
        assert setting_of(node().config, (), usage, duration_ns=1) is None


def test_an_age_needs_two_times_that_are_some() -> None:
    odd = a_pod("web", status={"startTime": "yesterday"})
    usage = Usage(node=NodeUse(memory=MemoryUse(time=Instant(0), available_bytes=1, working_set_bytes=1)))
    found = setting_of(node().config, (odd,), usage, duration_ns=1)
    assert found is not None
    assert found.pods[0].age_ns is None
