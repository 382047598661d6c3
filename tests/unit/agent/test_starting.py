"""Containers start on what is right at that moment, and their hooks have run before they count as started."""

from msgspec.structs import replace

from nodewright.agent.kept import kept_part
from nodewright.agent.timing import steady_ns
from nodewright.agent.values import RuntimeSeen, Source
from nodewright.model.objects import Container, Pod, Waiting
from nodewright.testing.agents import AgentBench, running
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod
from nodewright.testing.runtime import settle

HOOK = {"postStart": {"exec": {"command": ["greet"]}}}


def hooked(pod: Pod, *before: Container) -> Pod:
    """The pod, its container with a hook after its start."""
    (main,) = pod.spec.containers
    spec = replace(pod.spec, containers=(replace(main, lifecycle=HOOK),), init_containers=before)
    return replace(pod, spec=spec)


def cpus(bench: AgentBench, container_id: str) -> str:
    files = bench.runtime.containers[container_id].files
    return next(file.value for file in files if file.name == "cpuset.cpus")


def next_agent(bench: AgentBench) -> AgentBench:
    """The agent that comes when this one was killed, on what it kept and what runs."""
    later = AgentBench(clock=bench.clock)
    later.use(bench.runtime, bench.cgroups)
    kept = {uid: kept_part(record) for uid, record in bench.memory.pods.items()}
    later.begin(replace(later.loop.mind, pods=kept, node=bench.loop.mind.node), later.memory)
    return later


async def cut_off(bench: AgentBench) -> AgentBench:
    """The agent is killed while a hook runs; the next one."""
    bench.asker.lets_hooks_run.clear()
    await bench.want(hooked(a_pod()))
    assert bench.operations()[-1] == "start_container main-web-0"
    return next_agent(bench)


@running
async def test_a_hook_that_was_cut_off_runs_again_in_the_same_container() -> None:
    async with AgentBench() as bench:
        later = await cut_off(bench)
    async with later:
        assert later.asker.hooked == ["main-web-0"]
        assert later.phase("web") == "Running"
        assert [one for one in later.operations() if one.startswith("start")] == [
            "start_container main-web-0"
        ]
        assert later.memory.pods["web"].hooks == {}


@running
async def test_a_hook_that_was_cut_off_and_then_fails_ends_its_container() -> None:
    async with AgentBench() as bench:
        later = await cut_off(bench)
    later.asker.bad.add("main")
    async with later:
        assert "stop_container main-web-0" in later.operations()
        assert later.ears.told[0].reason == "FailedPostStartHook"


@running
async def test_a_container_counts_as_started_once_its_hook_has_run() -> None:
    async with AgentBench() as bench:
        bench.asker.lets_hooks_run.clear()
        await bench.want(hooked(a_pod()))
        bench.loop.see(RuntimeSeen(await bench.runtime.pods(), steady_ns(bench.clock)))
        await settle()
        (status,) = bench.record("web").status.container_statuses
        assert status.state.waiting == Waiting("ContainerCreating")
        assert not status.ready
        assert bench.phase("web") == "Pending"
        bench.asker.lets_hooks_run.set()
        await bench.clock.advance(1)
        (status,) = bench.record("web").status.container_statuses
        assert status.ready
        assert bench.phase("web") == "Running"


@running
async def test_a_hook_that_has_run_does_not_run_again() -> None:
    async with AgentBench() as bench:
        await bench.want(hooked(a_pod()))
        assert bench.memory.pods["web"].hooks == {}
        later = next_agent(bench)
    async with later:
        await later.clock.advance(30)
        assert later.asker.hooked == []


@running
async def test_a_container_whose_start_was_given_up_but_came_about_still_gets_its_hook() -> None:
    async with AgentBench() as bench:
        start = bench.runtime.start_container

        async def starts_late(container_id: str) -> None:
            bench.runtime.start_container = start  # type: ignore[method-assign] # only the first one
            await start(container_id)
            raise TimeoutError("no answer within 120 s")

        bench.runtime.start_container = starts_late  # type: ignore[method-assign] # a runtime that answers too late
        await bench.want(hooked(a_pod()))
        assert bench.asker.hooked == []
        await bench.clock.advance(10)
        assert bench.asker.hooked == ["main-web-0"]
        assert bench.phase("web") == "Running"


@running
async def test_a_container_that_starts_while_cpus_change_hands_is_told_at_once() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        bench.asker.lets_hooks_run.clear()
        await bench.want(hooked(a_pod()))
        assert cpus(bench, "main-web-0") == "0-7"
        await bench.want(a_guaranteed_pod("pinned", "2/64Mi"))
        assert bench.record("web").is_busy
        assert cpus(bench, "main-pinned-0") == "1-2"
        assert cpus(bench, "main-web-0") == "0,3-7"
        order = bench.operations()
        assert order.index("update_container main-web-0") < order.index("start_container main-pinned-0")
        bench.asker.lets_hooks_run.set()
        await settle()
        await bench.drop("pinned")
        assert cpus(bench, "main-web-0") == "0-7"


@running
async def test_a_container_that_is_made_of_older_settings_is_told_before_it_starts() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        create, made = bench.runtime.create_container, []

        async def create_slowly(sandbox_id: str, wish: object) -> str:
            made.append(wish)
            if len(made) == 1:
                await bench.clock.sleep(5)
            return await create(sandbox_id, wish)  # type: ignore[arg-type] # as it came

        bench.runtime.create_container = create_slowly  # type: ignore[method-assign] # a slow image
        await bench.want(a_pod())
        await bench.want(a_guaranteed_pod("pinned", "2/64Mi"))
        await bench.clock.advance(5)
        order = bench.operations()
        assert order.index("update_container main-web-0") < order.index("start_container main-web-0")
        assert cpus(bench, "main-web-0") == "0,3-7"


@running
async def test_a_container_that_could_not_be_told_while_it_started_is_told_later() -> None:
    async with AgentBench(a_profile(**STATIC_CPUS)) as bench:
        bench.asker.lets_hooks_run.clear()
        await bench.have(hooked(a_pod()), source=Source.WORKLOAD)
        bench.runtime.fail("update_container", "device or resource busy")
        await bench.want(a_guaranteed_pod("pinned", "2/64Mi"))
        assert cpus(bench, "main-web-0") == "0-7"
        bench.asker.lets_hooks_run.set()
        await settle()
        await bench.clock.advance(11)
        assert cpus(bench, "main-web-0") == "0,3-7"
