"""Containers start on what is right at that moment, and their hooks have run before they count as started."""

from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.agent_restarts import stored_part
from tests.support.fake_clock import settle

from nodewright.agent.state.agent_state import PodSource
from nodewright.agent.state.observations import RuntimeRelisted
from nodewright.cluster.tasks.timing import monotonic_ns
from nodewright.model.kubernetes.objects import Container, ContainerStateWaiting, Pod
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

HOOK = {"postStart": {"exec": {"command": ["greet"]}}}


def hooked(pod: Pod, *before: Container) -> Pod:
    """The pod, its container with a hook after its start."""
    (main,) = pod.spec.containers
    spec = replace(pod.spec, containers=(replace(main, lifecycle=HOOK),), init_containers=before)
    return replace(pod, spec=spec)


def cpus(bench: AgentBench, container_id: str) -> str:
    files = bench.runtime.containers[container_id].cgroup_files
    return next(file.value for file in files if file.name == "cpuset.cpus")


def next_agent(bench: AgentBench) -> AgentBench:
    """The agent that comes when this one was killed, on what it kept and what runs."""
    later = AgentBench(clock=bench.clock)
    later.adopt(bench.runtime, bench.cgroups)
    kept = {uid: stored_part(record) for uid, record in bench.fake_store.pods.items()}
    later.replace_state(replace(later.loop.state, pods=kept, node=bench.loop.state.node), later.fake_store)
    return later


async def cut_off(bench: AgentBench) -> AgentBench:
    """The agent is killed while a hook runs; the next one."""
    bench.prober.hooks_may_run.clear()
    await bench.add_pods(hooked(a_pod()))
    assert bench.runtime_operations()[-1] == "start_container main-web-0"
    return next_agent(bench)


@async_test
async def test_a_hook_that_was_cut_off_runs_again_in_the_same_container() -> None:
    async with AgentBench() as bench:
        later = await cut_off(bench)
    async with later:
        assert later.prober.completed_hooks == ["main-web-0"]
        assert later.phase("web") == "Running"
        assert [operation for operation in later.runtime_operations() if operation.startswith("start")] == [
            "start_container main-web-0"
        ]
        assert later.fake_store.pods["web"].pending_post_start_hooks == {}


@async_test
async def test_a_hook_that_was_cut_off_and_then_fails_ends_its_container() -> None:
    async with AgentBench() as bench:
        later = await cut_off(bench)
    later.prober.failing.add("main")
    async with later:
        assert "stop_container main-web-0" in later.runtime_operations()
        assert later.event_recorder.events[0].reason == "FailedPostStartHook"


@async_test
async def test_a_container_counts_as_started_once_its_hook_has_run() -> None:
    async with AgentBench() as bench:
        bench.prober.hooks_may_run.clear()
        await bench.add_pods(hooked(a_pod()))
        bench.loop.observe(RuntimeRelisted(await bench.runtime.pods(), monotonic_ns(bench.clock)))
        await settle()
        (status,) = bench.record("web").status.container_statuses
        assert status.state.waiting == ContainerStateWaiting("ContainerCreating")
        assert not status.ready
        assert bench.phase("web") == "Pending"
        bench.prober.hooks_may_run.set()
        await bench.clock.advance(1)
        (status,) = bench.record("web").status.container_statuses
        assert status.ready
        assert bench.phase("web") == "Running"


@async_test
async def test_a_hook_that_has_run_does_not_run_again() -> None:
    async with AgentBench() as bench:
        await bench.add_pods(hooked(a_pod()))
        assert bench.fake_store.pods["web"].pending_post_start_hooks == {}
        later = next_agent(bench)
    async with later:
        await later.clock.advance(30)
        assert later.prober.completed_hooks == []


@async_test
async def test_a_container_whose_start_timed_out_but_succeeded_still_runs_its_hook() -> None:
    async with AgentBench() as bench:
        start = bench.runtime.start_container

        async def starts_late(container_id: str) -> None:
            bench.runtime.start_container = start  # type: ignore[method-assign] # only the first one
            await start(container_id)
            raise TimeoutError("no answer within 120 s")

        bench.runtime.start_container = starts_late  # type: ignore[method-assign] # a runtime that answers too late
        await bench.add_pods(hooked(a_pod()))
        assert bench.prober.completed_hooks == []
        await bench.clock.advance(10)
        assert bench.prober.completed_hooks == ["main-web-0"]
        assert bench.phase("web") == "Running"


@async_test
async def test_a_container_that_starts_during_a_cpu_change_is_updated_at_once() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        bench.prober.hooks_may_run.clear()
        await bench.add_pods(hooked(a_pod()))
        assert cpus(bench, "main-web-0") == "0-7"
        await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        assert bench.record("web").has_running_effect
        assert cpus(bench, "main-pinned-0") == "1-2"
        assert cpus(bench, "main-web-0") == "0,3-7"
        order = bench.runtime_operations()
        assert order.index("update_container main-web-0") < order.index("start_container main-pinned-0")
        bench.prober.hooks_may_run.set()
        await settle()
        await bench.remove_pod("pinned")
        assert cpus(bench, "main-web-0") == "0-7"


@async_test
async def test_a_container_created_with_older_settings_is_updated_before_it_starts() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        create, made = bench.runtime.create_container, []

        async def create_slowly(sandbox_id: str, config: object) -> str:
            made.append(config)
            if len(made) == 1:
                await bench.clock.sleep(5)
            return await create(sandbox_id, config)  # type: ignore[arg-type] # as it came

        bench.runtime.create_container = create_slowly  # type: ignore[method-assign] # a slow image
        await bench.add_pods(a_pod())
        await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        await bench.clock.advance(5)
        order = bench.runtime_operations()
        assert order.index("update_container main-web-0") < order.index("start_container main-web-0")
        assert cpus(bench, "main-web-0") == "0,3-7"


@async_test
async def test_an_update_that_fails_during_a_start_is_repeated_later() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        bench.prober.hooks_may_run.clear()
        await bench.set_source_pods(hooked(a_pod()), source=PodSource.WORKLOAD)
        bench.runtime.fail("update_container", "device or resource busy")
        await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"))
        assert cpus(bench, "main-web-0") == "0-7"
        bench.prober.hooks_may_run.set()
        await settle()
        await bench.clock.advance(11)
        assert cpus(bench, "main-web-0") == "0,3-7"
