"""The agent carries out what is decided: pods start, end, wait for one another, and come back."""

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.fake_clock import settle

from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import PodSource, PodStage
from nodewright.agent.state.observations import PodStatusObserved
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.reasons.cpu import NotEnoughCPUs
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod

CHECK = {"exec": {"command": ["check"]}}


def with_inits(pod: Pod, *inits: Container) -> Pod:
    return replace(pod, spec=replace(pod.spec, init_containers=inits))


def with_main(pod: Pod, **changes: object) -> Pod:
    (main,) = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(main, **changes),)))


@async_test
async def test_a_pod_starts_in_its_groups() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(a_pod("web", "500m/64Mi"))
        assert bench.phase("web") == "Running"
        assert bench.runtime_operations() == [
            "run_sandbox sandbox-web-0",
            "create_container main-web-0",
            "start_container main-web-0",
        ]
        group = bench.cgroups.groups["/kubepods/burstable/podweb"]
        assert group["cpu.weight"] == "20"
        assert bench.fake_store.pods["web"].stage is PodStage.ACTIVE


@async_test
async def test_init_containers_come_first_and_in_order() -> None:
    async with AgentBench(a=ContainerScript(runs_for_s=1), b=ContainerScript(runs_for_s=1)) as bench:
        await bench.add_pods(with_inits(a_pod(), Container(name="a"), Container(name="b")))
        assert bench.phase("web") == "Pending"
        await bench.clock.advance(1)
        await bench.clock.advance(1)
        assert bench.phase("web") == "Running"
        started = [each for each in bench.runtime_operations() if each.startswith("start")]
        assert started == [f"start_container {name}-web-0" for name in ("a", "b", "main")]


@async_test
async def test_the_back_off_of_a_failing_container_grows() -> None:
    async with AgentBench(main=ContainerScript(runs_for_s=1, exit_code=1)) as bench:
        await bench.add_pods(a_pod())
        starts: list[int] = []
        for second in range(80):
            if sum("start_container" in each for each in bench.runtime_operations()) > len(starts):
                starts.append(second)
            await bench.clock.advance(1)
        # It runs for a second each time and then waits for 0, 10, 20, 40 s.
        assert starts == [0, 1, 12, 33, 74]
        (status,) = bench.record("web").status.container_statuses
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "CrashLoopBackOff"
        assert "back-off 1m20s restarting failed container=main" in status.state.waiting.message
        assert status.restart_count == 4


@async_test
async def test_a_pod_that_has_done_its_work_frees_what_it_held() -> None:
    profile = a_profile(**STATIC_CPUS)
    async with AgentBench(profile, main=ContainerScript(runs_for_s=5)) as bench:
        pod = a_guaranteed_pod("job", "2/64Mi", restartPolicy="Never")
        await bench.add_pods(pod)
        assert bench.loop.state.node.held.cpu.exclusive("job", "main") is not None
        await bench.clock.advance(5)
        assert bench.phase("job") == "Succeeded"
        assert bench.record("job").stage is PodStage.TERMINATED
        assert "job" not in bench.loop.state.node.pods
        assert "/kubepods/podjob" not in bench.cgroups.groups
        await bench.remove_pod("job")
        assert bench.loop.state.pods == {}
        assert bench.fake_store.pods == {}
        assert bench.runtime.sandboxes == {}


@async_test
async def test_shared_cpus_shrink_before_a_pinned_pod_starts_and_grow_after_its_end() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        await bench.add_pods(a_pod("web"))
        assert _cpus(bench, "main-web-0") == "0-7"
        await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        assert _cpus(bench, "main-pinned-0") == "1-2"
        assert _cpus(bench, "main-web-0") == "0,3-7"
        order = bench.runtime_operations()
        assert order.index("update_container main-web-0") < order.index("start_container main-pinned-0")
        await bench.remove_pod("pinned")
        assert _cpus(bench, "main-web-0") == "0-7"


@async_test
async def test_a_pod_that_does_not_fit_is_rejected_with_the_reason() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(a_pod("big", "cpu=99"))
        record = bench.record("big")
        assert (record.stage, record.status.phase, record.status.reason) == (
            PodStage.REJECTED,
            "Failed",
            "OutOfcpu",
        )
        assert "Node didn't have enough resource: cpu, requested: 99000" in record.status.message
        assert bench.runtime_operations() == []
        await bench.remove_pod("big")
        assert bench.loop.state.pods == {}


@async_test
async def test_a_rejection_names_pods_by_name_even_after_they_are_gone() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        await bench.add_pods(a_guaranteed_pod("db", "4/1Gi"))
        await bench.add_pods(a_guaranteed_pod("big", "5/1Gi"))
        await bench.remove_pod("db", 0)
        (because,) = bench.record("big").because
        assert isinstance(because, NotEnoughCPUs)
        assert {holder.pod for site in because.where for holder in site.holders} == {"default/db"}


@async_test
async def test_a_critical_pod_starts_after_its_victims_have_ended() -> None:
    async with AgentBench(main=ContainerScript(ignores_sigterm=True)) as bench:
        await bench.add_pods(a_pod("web", "cpu=6", terminationGracePeriodSeconds=20))
        await bench.set_source_pods(a_static_pod("proxy", "cpu=6"), source=PodSource.FILE)
        assert bench.record("proxy").stage is PodStage.WAITING
        assert bench.record("web").status.reason == "Preempting"
        await bench.clock.advance(19)
        assert bench.phase("proxy") == "Pending"
        await bench.clock.advance(1)
        assert bench.phase("proxy") == "Running"
        assert bench.phase("web") == "Failed"


@async_test
async def test_a_source_that_has_a_pod_no_longer_ends_it() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("one"), a_pod("two"))
        await bench.set_source_pods(a_pod("two"))
        assert set(bench.loop.state.pods) == {"two"}
        assert bench.phase("two") == "Running"


@async_test
async def test_a_pod_of_the_same_name_waits_until_the_older_one_has_ended() -> None:
    async with AgentBench(main=ContainerScript(ignores_sigterm=True)) as bench:
        old, new = (
            a_pod("web", metadata={"uid": uid}, terminationGracePeriodSeconds=5) for uid in ("old", "new")
        )
        await bench.set_source_pods(old)
        await bench.set_source_pods(new)
        assert bench.phase("new") == ""
        await bench.clock.advance(5)
        assert bench.phase("new") == "Running"
        assert "old" not in bench.loop.state.pods


@async_test
async def test_a_pod_of_the_same_name_from_another_source_waits_and_is_reported_once() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web"), source=PodSource.FILE)
        other = a_pod("web")
        other = replace(other, metadata=replace(other.metadata, uid="other"))
        await bench.set_source_pods(other)
        await bench.clock.advance(30)
        assert bench.phase("other") == ""
        assert [event.message for event in bench.event_recorder.events if event.reason == "PodRepeated"] == [
            "pod default/web (workload) waits until the pod of the same name (file) is gone"
        ]
        await bench.set_source_pods(source=PodSource.FILE)
        await bench.clock.advance(60)
        assert bench.phase("other") == "Running"


@async_test
async def test_a_pod_with_the_uid_of_another_source_starts_when_that_one_has_ended_and_is_reported_once() -> (
    None
):
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web"), source=PodSource.FILE)
        await bench.set_source_pods(a_pod("web"))
        await bench.set_source_pods(a_pod("web"))
        assert [event.reason for event in bench.event_recorder.events].count("PodRepeated") == 1
        await bench.set_source_pods(source=PodSource.FILE)
        await bench.clock.advance(60)
        assert bench.phase("web") == "Running"
        assert bench.record("web").source is PodSource.WORKLOAD


@async_test
async def test_a_pod_with_the_uid_of_another_source_changes_nothing_of_that_one() -> None:
    async with AgentBench() as bench:
        await bench.set_source_pods(a_pod("web"), source=PodSource.FILE)
        thief = a_pod("thief")
        await bench.set_source_pods(replace(thief, metadata=replace(thief.metadata, uid="web")))
        assert bench.record("web").pod.metadata.name == "web"
        (text,) = [event.message for event in bench.event_recorder.events if event.reason == "PodRepeated"]
        assert text == "pod default/thief (workload) waits: its uid is used by default/web (file)"
        # Who never had a pod does not end it.
        await bench.set_source_pods()
        assert bench.phase("web") == "Running"


@async_test
async def test_liveness_restarts_a_container_and_readiness_is_in_the_status() -> None:
    async with AgentBench() as bench:
        pod = with_main(a_pod(), liveness_probe={**CHECK, "periodSeconds": 1}, readiness_probe=CHECK)
        await bench.add_pods(pod)
        await bench.clock.advance(1)
        assert bench.record("web").status.container_statuses[0].ready
        bench.prober.failing.add("main")
        await bench.clock.advance(3)
        bench.prober.failing.clear()
        await settle()
        assert bench.record("web").status.container_statuses[0].restart_count == 1
        assert "stop_container main-web-0" in bench.runtime_operations()
        texts = {event.message for event in bench.event_recorder.events if event.reason == "Unhealthy"}
        assert texts == {"Liveness probe failed: no", "Readiness probe failed: no"}


@async_test
async def test_a_probe_of_an_unknown_port_name_is_not_run_and_counts_for_nothing() -> None:
    async with AgentBench() as bench:
        probe = {"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
        await bench.add_pods(with_main(a_pod(), liveness_probe=probe))
        await bench.clock.advance(3)
        assert bench.prober.requests == []
        assert bench.record("web").status.container_statuses[0].restart_count == 0
        assert (
            'Liveness probe errored and resulted in unknown state: strconv.Atoi: parsing "web": invalid syntax'
            in {event.message for event in bench.event_recorder.events}
        )


@async_test
async def test_a_pod_may_run_for_so_long() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(a_pod(activeDeadlineSeconds=30))
        await bench.clock.advance(29)
        assert bench.phase("web") == "Running"
        await bench.clock.advance(1)
        assert bench.record("web").status.reason == "DeadlineExceeded"
        assert bench.record("web").stage is PodStage.TERMINATED


@async_test
async def test_failures_are_reported_and_tried_again() -> None:
    async with AgentBench() as bench:
        bench.runtime.fail("run_sandbox", "no space left on device")
        await bench.add_pods(a_pod())
        (status,) = bench.record("web").status.container_statuses
        assert status.state.waiting is not None
        assert "no space left on device" in status.state.waiting.message
        await bench.clock.advance(10)
        assert bench.phase("web") == "Running"
        assert [event.reason for event in bench.event_recorder.events] == ["FailedCreatePodSandBox"]


@async_test
async def test_an_unavailable_runtime_is_reported_once_for_a_pod() -> None:
    async with AgentBench() as bench:
        for _ in range(4):
            bench.runtime.fail("pod", "the line is dead")
        await bench.add_pods(a_pod("web"))
        await bench.clock.advance(12)
        events = [event for event in bench.event_recorder.events if event.reason == "RuntimeUnavailable"]
        assert [(event.uid, event.message) for event in events] == [("web", "pod web: the line is dead")]
        assert bench.phase("web") == "Pending"
        await bench.clock.advance(30)
        assert bench.phase("web") == "Running"


@async_test
async def test_nothing_starts_that_would_be_forgotten() -> None:
    async with AgentBench() as bench:
        bench.fake_store.is_full = True
        await bench.add_pods(a_pod())
        assert bench.runtime_operations() == []
        bench.fake_store.is_full = False
        await bench.clock.advance(10)
        assert bench.phase("web") == "Running"
        assert bench.fake_store.pods["web"].status.phase == "Running"


@async_test
async def test_a_pod_that_ends_while_it_starts_ends() -> None:
    async with AgentBench() as bench:
        hook = {"postStart": {"exec": {"command": ["sleep"]}}}
        await bench.add_pods(with_main(a_pod(), lifecycle=hook))
        await bench.remove_pod("web")
        assert bench.loop.state.pods == {}


@async_test
async def test_a_hook_that_fails_ends_its_container() -> None:
    async with AgentBench() as bench:
        bench.prober.failing.add("main")
        await bench.add_pods(with_main(a_pod(), lifecycle={"postStart": CHECK}))
        assert "stop_container main-web-0" in bench.runtime_operations()
        assert [event.reason for event in bench.event_recorder.events] == ["FailedPostStartHook", "Killing"]


@async_test
async def test_sidecars_end_after_those_that_they_serve() -> None:
    async with AgentBench(main=ContainerScript(ignores_sigterm=True)) as bench:
        proxy = Container(name="proxy", restart_policy="Always")
        await bench.add_pods(with_inits(a_pod(terminationGracePeriodSeconds=4), proxy))
        assert bench.phase("web") == "Running"
        await bench.remove_pod("web")
        assert "stop_container proxy-web-0" not in bench.runtime_operations()
        await bench.clock.advance(4)
        assert "stop_container proxy-web-0" in bench.runtime_operations()
        assert bench.loop.state.pods == {}


@async_test
async def test_a_dead_sandbox_is_recreated() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(a_pod())
        bench.runtime.lose_sandbox("sandbox-web-0")
        await settle()
        await bench.clock.advance(15)
        assert bench.phase("web") == "Running"
        assert "run_sandbox sandbox-web-1" in bench.runtime_operations()


@async_test
async def test_the_journal_has_every_event_of_the_node() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(a_pod("one"))
        await bench.remove_pod("one")
        assert [type(each.event).__name__ for each in bench.fake_store.stepped] == [
            "PodAdded",
            "PodStarted",
            "PodRemoved",
        ]


def _cpus(bench: AgentBench, container_id: str) -> str:
    files = bench.runtime.containers[container_id].cgroup_files
    return next((file.value for file in files if file.name == "cpuset.cpus"), "")


@async_test
async def test_nothing_is_decided_before_the_first_relist() -> None:
    bench = AgentBench()
    bench.runtime.fail("pods", "connection refused")
    async with bench:
        await bench.add_pods(a_pod())
        assert bench.runtime_operations() == []
        await bench.clock.advance(1)
        assert bench.phase("web") == "Running"
        assert [event.reason for event in bench.event_recorder.events] == ["RuntimeUnavailable"]


@async_test
async def test_an_orphan_is_terminated_once_all_sources_have_listed_their_pods() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(a_pod("web"), a_pod("stray"))
        runtime, cgroups = bench.runtime, bench.cgroups
    bench = AgentBench(unready_sources={PodSource.FILE})
    bench.adopt(runtime, cgroups)
    async with bench:
        await bench.add_pods(a_pod("web"))
        assert bench.phase("web") == "Running"
        assert set(bench.loop.state.pods) == {"web"}
        await bench.set_source_pods(source=PodSource.FILE)
        assert [container.config.pod.uid for container in runtime.containers.values()] == ["web"]
        assert [event.reason for event in bench.event_recorder.events] == ["OrphanFound"]
        assert runtime.operations.count(("start_container", "main-web-0")) == 1
        assert not any("stray" in path for path in cgroups.groups)


@async_test
async def test_an_answer_that_was_overtaken_by_a_newer_one_counts_for_nothing() -> None:
    async with AgentBench() as bench:
        await bench.clock.advance(1)
        await bench.add_pods(a_pod())
        bench.loop.observe(PodStatusObserved("web", None, observed_at_ns=0))
        await settle()
        assert bench.phase("web") == "Running"
        assert bench.runtime.operations.count(("run_sandbox", "sandbox-web-0")) == 1


@async_test
async def test_an_attempt_that_never_started_is_cleared_away() -> None:
    async with AgentBench() as bench:
        bench.runtime.fail("start_container", "no such file")
        await bench.add_pods(a_pod())
        await bench.clock.advance(10)
        assert list(bench.runtime.containers) == ["main-web-1"]
