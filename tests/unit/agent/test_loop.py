"""The agent carries out what is decided: pods start, end, wait for one another, and come back."""

from msgspec.structs import replace

from nodewright.agent.values import PodSeen, Source, Stage
from nodewright.model.cpu_reasons import NotEnoughCPUs
from nodewright.model.objects import Container, Pod
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod
from nodewright.testing.runtime import Script, settle

CHECK = {"exec": {"command": ["check"]}}


def with_inits(pod: Pod, *inits: Container) -> Pod:
    return replace(pod, spec=replace(pod.spec, init_containers=inits))


def with_main(pod: Pod, **changes: object) -> Pod:
    (main,) = pod.spec.containers
    return replace(pod, spec=replace(pod.spec, containers=(replace(main, **changes),)))


@running
async def test_a_pod_starts_in_its_groups() -> None:
    async with AgentBench() as bench:
        await bench.want(a_pod("web", "500m/64Mi"))
        assert bench.phase("web") == "Running"
        assert bench.operations() == [
            "run_sandbox sandbox-web-0",
            "create_container main-web-0",
            "start_container main-web-0",
        ]
        group = bench.cgroups.groups["/kubepods/burstable/podweb"]
        assert group["cpu.weight"] == "20"
        assert bench.memory.pods["web"].stage is Stage.ACTIVE


@running
async def test_init_containers_come_first_and_in_order() -> None:
    async with AgentBench(a=Script(runs_for_s=1), b=Script(runs_for_s=1)) as bench:
        await bench.want(with_inits(a_pod(), Container(name="a"), Container(name="b")))
        assert bench.phase("web") == "Pending"
        await bench.clock.advance(1)
        await bench.clock.advance(1)
        assert bench.phase("web") == "Running"
        started = [each for each in bench.operations() if each.startswith("start")]
        assert started == [f"start_container {name}-web-0" for name in ("a", "b", "main")]


@running
async def test_a_container_that_fails_is_held_back_longer_each_time() -> None:
    async with AgentBench(main=Script(runs_for_s=1, exit_code=1)) as bench:
        await bench.want(a_pod())
        starts: list[int] = []
        for second in range(80):
            if sum("start_container" in each for each in bench.operations()) > len(starts):
                starts.append(second)
            await bench.clock.advance(1)
        # It runs for a second each time and then waits for 0, 10, 20, 40 s.
        assert starts == [0, 1, 12, 33, 74]
        (status,) = bench.record("web").status.container_statuses
        assert status.state.waiting is not None
        assert status.state.waiting.reason == "CrashLoopBackOff"
        assert "back-off 1m20s restarting failed container=main" in status.state.waiting.message
        assert status.restart_count == 4


@running
async def test_a_pod_that_has_done_its_work_frees_what_it_held() -> None:
    profile = a_profile(**STATIC_CPUS)
    async with AgentBench(profile, main=Script(runs_for_s=5)) as bench:
        pod = a_guaranteed_pod("job", "2/64Mi", restartPolicy="Never")
        await bench.want(pod)
        assert bench.loop.mind.node.held.cpu.exclusive("job", "main") is not None
        await bench.clock.advance(5)
        assert bench.phase("job") == "Succeeded"
        assert bench.record("job").stage is Stage.ENDED
        assert "job" not in bench.loop.mind.node.pods
        assert "/kubepods/podjob" not in bench.cgroups.groups
        await bench.drop("job")
        assert bench.loop.mind.pods == {}
        assert bench.memory.pods == {}
        assert bench.runtime.sandboxes == {}


@running
async def test_shared_cpus_shrink_before_a_pinned_pod_starts_and_grow_when_it_has_gone() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        await bench.want(a_pod("web"))
        assert _cpus(bench, "main-web-0") == "0-7"
        await bench.want(a_guaranteed_pod("pinned", "2/64Mi"))
        assert _cpus(bench, "main-pinned-0") == "1-2"
        assert _cpus(bench, "main-web-0") == "0,3-7"
        order = bench.operations()
        assert order.index("update_container main-web-0") < order.index("start_container main-pinned-0")
        await bench.drop("pinned")
        assert _cpus(bench, "main-web-0") == "0-7"


@running
async def test_a_pod_that_finds_no_room_says_so() -> None:
    async with AgentBench() as bench:
        await bench.want(a_pod("big", "cpu=99"))
        record = bench.record("big")
        assert (record.stage, record.status.phase, record.status.reason) == (
            Stage.REFUSED,
            "Failed",
            "OutOfcpu",
        )
        assert "Node didn't have enough resource: cpu, requested: 99000" in record.status.message
        assert bench.operations() == []
        await bench.drop("big")
        assert bench.loop.mind.pods == {}


@running
async def test_a_refusal_names_pods_as_people_do_and_goes_on_naming_them_when_they_are_gone() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        await bench.want(a_guaranteed_pod("db", "4/1Gi"))
        await bench.want(a_guaranteed_pod("big", "5/1Gi"))
        await bench.drop("db", 0)
        (because,) = bench.record("big").because
        assert isinstance(because, NotEnoughCPUs)
        assert {holder.pod for site in because.where for holder in site.holders} == {"default/db"}


@running
async def test_a_critical_pod_starts_when_its_victims_are_gone() -> None:
    async with AgentBench(main=Script(ignores_sigterm=True)) as bench:
        await bench.want(a_pod("web", "cpu=6", terminationGracePeriodSeconds=20))
        await bench.have(a_static_pod("proxy", "cpu=6"), source=Source.FILE)
        assert bench.record("proxy").stage is Stage.WAITING
        assert bench.record("web").status.reason == "Preempting"
        await bench.clock.advance(19)
        assert bench.phase("proxy") == "Pending"
        await bench.clock.advance(1)
        assert bench.phase("proxy") == "Running"
        assert bench.phase("web") == "Failed"


@running
async def test_a_source_that_has_a_pod_no_longer_ends_it() -> None:
    async with AgentBench() as bench:
        await bench.have(a_pod("one"), a_pod("two"))
        await bench.have(a_pod("two"))
        assert set(bench.loop.mind.pods) == {"two"}
        assert bench.phase("two") == "Running"


@running
async def test_a_pod_of_the_same_name_waits_for_the_older_one_to_be_gone() -> None:
    async with AgentBench(main=Script(ignores_sigterm=True)) as bench:
        old, new = (
            a_pod("web", metadata={"uid": uid}, terminationGracePeriodSeconds=5) for uid in ("old", "new")
        )
        await bench.have(old)
        await bench.have(new)
        assert bench.phase("new") == ""
        await bench.clock.advance(5)
        assert bench.phase("new") == "Running"
        assert "old" not in bench.loop.mind.pods


@running
async def test_a_pod_of_the_same_name_from_elsewhere_waits_and_people_are_told_once() -> None:
    async with AgentBench() as bench:
        await bench.have(a_pod("web"), source=Source.FILE)
        other = a_pod("web")
        other = replace(other, metadata=replace(other.metadata, uid="other"))
        await bench.have(other)
        await bench.clock.advance(30)
        assert bench.phase("other") == ""
        assert [one.message for one in bench.ears.told if one.reason == "PodRepeated"] == [
            "pod default/web (workload) waits until the one of that name (file) is gone"
        ]
        await bench.have(source=Source.FILE)
        await bench.clock.advance(60)
        assert bench.phase("other") == "Running"


@running
async def test_a_pod_with_the_uid_of_another_source_changes_nothing_of_that_one() -> None:
    async with AgentBench() as bench:
        await bench.have(a_pod("web"), source=Source.FILE)
        thief = a_pod("thief")
        await bench.have(replace(thief, metadata=replace(thief.metadata, uid="web")))
        assert bench.record("web").pod.metadata.name == "web"
        (told,) = [one.message for one in bench.ears.told if one.reason == "PodRepeated"]
        assert told == "pod default/thief (workload) is passed over: its uid is that of default/web (file)"
        # Who never had a pod does not end it.
        await bench.have()
        assert bench.phase("web") == "Running"


@running
async def test_liveness_restarts_a_container_and_readiness_is_told() -> None:
    async with AgentBench() as bench:
        pod = with_main(a_pod(), liveness_probe={**CHECK, "periodSeconds": 1}, readiness_probe=CHECK)
        await bench.want(pod)
        await bench.clock.advance(1)
        assert bench.record("web").status.container_statuses[0].ready
        bench.asker.bad.add("main")
        await bench.clock.advance(3)
        bench.asker.bad.clear()
        await settle()
        assert bench.record("web").status.container_statuses[0].restart_count == 1
        assert "stop_container main-web-0" in bench.operations()
        told = {one.message for one in bench.ears.told if one.reason == "Unhealthy"}
        assert told == {"Liveness probe failed: no", "Readiness probe failed: no"}


@running
async def test_a_probe_whose_port_is_not_named_is_not_asked_and_counts_for_nothing() -> None:
    async with AgentBench() as bench:
        probe = {"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 1}
        await bench.want(with_main(a_pod(), liveness_probe=probe))
        await bench.clock.advance(3)
        assert bench.asker.asked == []
        assert bench.record("web").status.container_statuses[0].restart_count == 0
        assert (
            'Liveness probe errored and resulted in unknown state: strconv.Atoi: parsing "web": invalid syntax'
            in {one.message for one in bench.ears.told}
        )


@running
async def test_a_pod_may_run_for_so_long() -> None:
    async with AgentBench() as bench:
        await bench.want(a_pod(activeDeadlineSeconds=30))
        await bench.clock.advance(29)
        assert bench.phase("web") == "Running"
        await bench.clock.advance(1)
        assert bench.record("web").status.reason == "DeadlineExceeded"
        assert bench.record("web").stage is Stage.ENDED


@running
async def test_what_fails_is_told_and_tried_again() -> None:
    async with AgentBench() as bench:
        bench.runtime.fail("run_sandbox", "no space left on device")
        await bench.want(a_pod())
        (status,) = bench.record("web").status.container_statuses
        assert status.state.waiting is not None
        assert "no space left on device" in status.state.waiting.message
        await bench.clock.advance(10)
        assert bench.phase("web") == "Running"
        assert [told.reason for told in bench.ears.told] == ["FailedCreatePodSandBox"]


@running
async def test_a_pod_for_which_nothing_can_be_done_since_the_runtime_is_away_says_so_once() -> None:
    async with AgentBench() as bench:
        for _ in range(4):
            bench.runtime.fail("pod", "the line is dead")
        await bench.want(a_pod("web"))
        await bench.clock.advance(12)
        told = [one for one in bench.ears.told if one.reason == "RuntimeUnavailable"]
        assert [(one.uid, one.message) for one in told] == [("web", "pod web: the line is dead")]
        assert bench.phase("web") == "Pending"
        await bench.clock.advance(30)
        assert bench.phase("web") == "Running"


@running
async def test_nothing_starts_that_would_be_forgotten() -> None:
    async with AgentBench() as bench:
        bench.memory.is_full = True
        await bench.want(a_pod())
        assert bench.operations() == []
        bench.memory.is_full = False
        await bench.clock.advance(10)
        assert bench.phase("web") == "Running"
        assert bench.memory.pods["web"].status.phase == "Running"


@running
async def test_a_pod_that_ends_while_it_starts_ends() -> None:
    async with AgentBench() as bench:
        hook = {"postStart": {"exec": {"command": ["sleep"]}}}
        await bench.want(with_main(a_pod(), lifecycle=hook))
        await bench.drop("web")
        assert bench.loop.mind.pods == {}


@running
async def test_a_hook_that_fails_ends_its_container() -> None:
    async with AgentBench() as bench:
        bench.asker.bad.add("main")
        await bench.want(with_main(a_pod(), lifecycle={"postStart": CHECK}))
        assert "stop_container main-web-0" in bench.operations()
        assert [told.reason for told in bench.ears.told] == ["FailedPostStartHook", "Killing"]


@running
async def test_sidecars_end_after_those_that_they_serve() -> None:
    async with AgentBench(main=Script(ignores_sigterm=True)) as bench:
        proxy = Container(name="proxy", restart_policy="Always")
        await bench.want(with_inits(a_pod(terminationGracePeriodSeconds=4), proxy))
        assert bench.phase("web") == "Running"
        await bench.drop("web")
        assert "stop_container proxy-web-0" not in bench.operations()
        await bench.clock.advance(4)
        assert "stop_container proxy-web-0" in bench.operations()
        assert bench.loop.mind.pods == {}


@running
async def test_a_sandbox_that_died_is_made_anew() -> None:
    async with AgentBench() as bench:
        await bench.want(a_pod())
        bench.runtime.lose_sandbox("sandbox-web-0")
        await settle()
        await bench.clock.advance(15)
        assert bench.phase("web") == "Running"
        assert "run_sandbox sandbox-web-1" in bench.operations()


@running
async def test_the_journal_has_every_event_of_the_node() -> None:
    async with AgentBench() as bench:
        await bench.want(a_pod("one"))
        await bench.drop("one")
        assert [type(each.event).__name__ for each in bench.memory.stepped] == [
            "PodArrived",
            "PodStarted",
            "PodGone",
        ]


def _cpus(bench: AgentBench, container_id: str) -> str:
    files = bench.runtime.containers[container_id].files
    return next((one.value for one in files if one.name == "cpuset.cpus"), "")


@running
async def test_nothing_is_decided_before_the_runtime_has_said_what_runs() -> None:
    bench = AgentBench()
    bench.runtime.fail("pods", "connection refused")
    async with bench:
        await bench.want(a_pod())
        assert bench.operations() == []
        await bench.clock.advance(1)
        assert bench.phase("web") == "Running"
        assert [told.reason for told in bench.ears.told] == ["RuntimeUnavailable"]


@running
async def test_a_pod_that_nobody_wants_ends_once_all_sources_have_been_heard() -> None:
    async with AgentBench() as bench:
        await bench.want(a_pod("web"), a_pod("stray"))
        runtime, cgroups = bench.runtime, bench.cgroups
    bench = AgentBench(unheard={Source.FILE})
    bench.use(runtime, cgroups)
    async with bench:
        await bench.want(a_pod("web"))
        assert bench.phase("web") == "Running"
        assert set(bench.loop.mind.pods) == {"web"}
        await bench.have(source=Source.FILE)
        assert [one.wish.pod.uid for one in runtime.containers.values()] == ["web"]
        assert [told.reason for told in bench.ears.told] == ["OrphanFound"]
        assert runtime.done.count(("start_container", "main-web-0")) == 1
        assert not any("stray" in path for path in cgroups.groups)


@running
async def test_an_answer_that_was_overtaken_by_a_newer_one_counts_for_nothing() -> None:
    async with AgentBench() as bench:
        await bench.clock.advance(1)
        await bench.want(a_pod())
        bench.loop.see(PodSeen("web", None, asked_ns=0))
        await settle()
        assert bench.phase("web") == "Running"
        assert bench.runtime.done.count(("run_sandbox", "sandbox-web-0")) == 1


@running
async def test_an_attempt_that_never_started_is_cleared_away() -> None:
    async with AgentBench() as bench:
        bench.runtime.fail("start_container", "no such file")
        await bench.want(a_pod())
        await bench.clock.advance(10)
        assert list(bench.runtime.containers) == ["main-web-1"]
