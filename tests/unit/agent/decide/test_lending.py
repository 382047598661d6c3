"""The agent lends what pods do not use to BestEffort pods, and takes it back at once."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, FakeStore
from tests.support.fake_clock import settle
from tests.support.fake_host import run_inline

from nodewright.agent.observe.usage_samples import UsageSampler
from nodewright.agent.pods.cgroup_reconcile import end_loans
from nodewright.agent.runtimes.simulated import FakeCgroups
from nodewright.agent.serving.api_objects import NodeSystemInfo, lending_texts, node_object
from nodewright.agent.serving.node_metrics import GaugeInputs, node_gauges
from nodewright.agent.state.agent_state import AgentState
from nodewright.cli.app import app
from nodewright.documents.output.exposition import family_text
from nodewright.documents.output.kubectl_tables import nodes_table
from nodewright.documents.profiles.scenario_files import journal_header, load_scenario
from nodewright.documents.profiles.usage_history import load_usage_history
from nodewright.engine.core.lending.predictors import PREDICTORS, State, UsageSamples, predictor
from nodewright.model.errors import InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.values.instant import Instant
from nodewright.predict.node import Node
from nodewright.predict.policy_registry import chosen_predictor
from nodewright.predict.replay.scenario_journal import JournalEncoder, action_documents
from nodewright.predict.replay.scenario_run import replay
from nodewright.testing.nodes import a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod

MIB, GIB = 1 << 20, 1 << 30
CLASS = "/kubepods/besteffort"
OWNER, BORROWER = "/kubepods/podowner", f"{CLASS}/podborrower"


def in_a_directory(test: Callable[[Path], Coroutine[None, None, None]]) -> Callable[[Path], None]:
    """The test as a synchronous function of a directory."""

    @wraps(test)
    def run(tmp_path: Path) -> None:
        asyncio.run(test(tmp_path))

    return run


def lending(name: str = "koordinator", **kubelet: Any) -> NodeProfile:
    """8 CPUs and 8 GiB; koordinator lends up to 60 % and 65 % of it, less what is used."""
    profile = a_profile(**kubelet)
    return replace(
        profile, spec=replace(profile.spec, policies=replace(profile.spec.policies, predictor=name))
    )


class LendingBench(AgentBench):
    """An agent that lends, and what its pods use."""

    def __init__(self, directory: Path, profile: NodeProfile | None = None) -> None:
        super().__init__(lending() if profile is None else profile)
        self.sampler = UsageSampler(self.loop, directory)
        self.sampler.run_in_thread = run_inline
        self._cpu_us: dict[str, int] = {}

    def uses(self, path: str, memory: int) -> None:
        """A cgroup has a working set of so much."""
        self.cgroups.groups[path] |= {"memory.current": str(memory), "memory.stat": "inactive_file 0"}

    def pods_use(self, owner: int, borrower: int) -> None:
        """What the pods use of memory, and so their classes."""
        self.uses(OWNER, owner)
        self.uses(BORROWER, borrower)
        self.uses(CLASS, borrower)
        self.uses("/kubepods", owner + borrower)

    async def sample(self, **cpus: float) -> None:
        """10 seconds in which the owner uses so many CPUs."""
        used_us = self._cpu_us[OWNER] = self._cpu_us.get(OWNER, 0) + round(cpus.get("owner", 0) * 10**7)
        self.cgroups.groups[OWNER]["cpu.stat"] = f"usage_usec {used_us}"
        await self.clock.advance(10)
        await self.sampler.sample()
        await settle()

    def file(self, name: str, path: str = CLASS) -> str | None:
        """A file of the class of borrowers."""
        return self.cgroups.groups[path].get(name)

    async def begin(self, owner: int = GIB, borrower: int = 0) -> None:
        """An owner of 6 CPUs and 6 GiB, and a borrower."""
        await self.add_pods(a_guaranteed_pod("owner", "6/6Gi"), a_pod("borrower"))
        self.pods_use(owner, borrower)
        await self.sample()


@in_a_directory
async def test_ceilings_grow_by_a_tenth_of_the_node_a_sample(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin()
        ceilings = []
        for _ in range(6):
            await bench.sample(owner=1)
            ceilings.append((bench.file("cpu.max"), int(bench.file("memory.high") or 0) // MIB))
        # The first sample knows no rate of CPU yet: memory is lent already.
        assert ceilings == [
            ("280000 100000", 2048 + 2 * 819),
            ("360000 100000", 2048 + 3 * 819),
            ("440000 100000", 2048 + 4 * 819),
            ("520000 100000", 2048 + 5 * 819),
            ("580000 100000", 6348),
            ("580000 100000", 6348),
        ]


@in_a_directory
async def test_weights_change_on_pods_alone(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin()
        assert bench.file("cpu.idle", BORROWER) == "1"
        assert bench.file("cpu.idle") is None
        assert bench.file("cpu.idle", OWNER) is None
        assert bench.file("cpu.weight") == "1"
        await bench.add_pods(a_pod("later"))
        assert bench.file("cpu.idle", f"{CLASS}/podlater") == "1"


@in_a_directory
async def test_ceilings_fall_at_once(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin()
        for _ in range(6):
            await bench.sample(owner=1)
        bench.pods_use(owner=6 * GIB, borrower=0)
        await bench.sample(owner=6)
        assert (bench.file("cpu.max"), bench.file("memory.high")) == ("200000 100000", str(2 * GIB))


@in_a_directory
async def test_memory_is_called_back_between_two_samples(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin(borrower=0)
        for _ in range(6):
            await bench.sample()
        bench.pods_use(owner=GIB, borrower=6 * GIB)
        bench.memory_readings.set_readings(memory="8Gi/16Gi")
        await bench.watch_pressure()
        bench.pods_use(owner=3 * GIB, borrower=6 * GIB)
        await bench.clock.advance(10)
        assert bench.file("memory.high") == str(5 * GIB)
        loans = bench.loop.state.node.loans
        assert loans is not None
        assert loans.owed_bytes == GIB
        await bench.clock.advance(0.2)
        bench.pods_use(owner=3 * GIB, borrower=5 * GIB)
        await bench.clock.advance(0.05)
        (event,) = [event for event in bench.event_recorder.events if event.reason == "LoanReturned"]
        assert event.message == "1Gi of lent memory came back in 250 ms"
        last = bench.loop.state.lending.last_return
        assert last is not None
        assert (last.amount_bytes, last.duration_ns) == (GIB, 250 * 10**6)


@in_a_directory
async def test_a_new_pod_has_what_it_requests_before_it_starts(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin()
        for _ in range(9):
            await bench.sample()
        before = bench.loop.state.node.loans
        await bench.add_pods(a_guaranteed_pod("new", "1/1Gi"))
        after = bench.loop.state.node.loans
        assert before is not None
        assert after is not None
        assert (before.cpu_milli - after.cpu_milli, before.memory_bytes - after.memory_bytes) == (1000, GIB)


@in_a_directory
async def test_exclusive_cpus_are_never_lent(tmp_path: Path) -> None:
    profile = lending("usage", cpuManagerPolicy="static", reservedSystemCPUs="0")
    async with LendingBench(tmp_path, a_profile(**profile.spec.kubelet_configuration)) as bench:
        bench.loop.constants = replace(bench.loop.constants, predictor=usage)
        await bench.begin()
        await bench.sample(owner=1)
        loans = bench.loop.state.node.loans
        assert loans is not None
        assert loans.cpu_milli == 1000


@pytest.mark.parametrize("name", ["koordinator", "borg-decay:0"])
@pytest.mark.parametrize("seed", range(2))
def test_a_node_under_spikes_never_lends_what_its_owner_uses(tmp_path: Path, name: str, seed: int) -> None:
    """40 minutes of a trace with spikes, a sample each 10 seconds."""

    async def run() -> None:
        random, lent = Random(seed), 0
        async with LendingBench(tmp_path, lending(name)) as bench:
            await bench.begin()
            for _ in range(240):
                owner = random.choice([1, 1, 1, 1, 1, 1, 1, 2, 6])
                bench.pods_use(owner=owner * GIB - random.randrange(MIB), borrower=0)
                before = bench.loop.state.node.loans
                await bench.sample(owner=owner)
                after = bench.loop.state.node.loans
                if after is None:
                    continue
                assert after.memory_bytes + owner * GIB - MIB <= 8 * GIB
                assert after.cpu_milli + owner * 1000 <= 8000
                assert bench.file("memory.high") == str(after.memory_bytes)
                assert bench.file("cpu.max") == f"{after.cpu_milli * 100} 100000"
                if before is not None:
                    assert after.cpu_milli - before.cpu_milli <= 800
                    assert after.memory_bytes - before.memory_bytes <= 8 * GIB // 10
                lent += after.memory_bytes > 2 * GIB
        assert lent > 50

    asyncio.run(run())


@predictor("usage")
def usage(state: State, samples: UsageSamples) -> tuple[State, list[int]]:
    """What is used."""
    return state, [used or 0 for used in samples.usage]


@predictor("broken")
def broken(state: State, samples: UsageSamples) -> tuple[State, list[int]]:
    """Fails once something is used."""
    return state, [used if used < 2 * GIB else 1 // 0 for used in map(int, filter(None, samples.usage))]


@in_a_directory
async def test_a_predictor_that_fails_lends_nothing(tmp_path: Path) -> None:
    async with LendingBench(tmp_path, a_profile()) as bench:
        bench.loop.constants = replace(bench.loop.constants, predictor=usage)
        await bench.begin()
        await bench.sample()
        bench.loop.constants = replace(bench.loop.constants, predictor=broken)
        bench.pods_use(owner=3 * GIB, borrower=0)
        await bench.sample()
        assert bench.file("memory.high") == str(2 * GIB)
        (event,) = [event for event in bench.event_recorder.events if event.reason == "PredictorFailed"]
        assert "broken" in event.message


def pieces(bench: AgentBench) -> tuple[Mapping[str, Mapping[str, str]], list[str], list[str]]:
    """All that an agent leaves behind: cgroup files, lines of the journal, events."""
    assert isinstance(bench.store, FakeStore)
    encoder = JournalEncoder(a_profile(), journal_header())
    lines = [json.dumps(encoder.event(stepped)) for stepped in bench.store.stepped]
    return bench.cgroups.groups, lines, [str(event) for event in bench.event_recorder.events]


@in_a_directory
async def test_lending_nothing_leaves_what_an_agent_leaves_that_does_not_lend(tmp_path: Path) -> None:
    results = []
    for profile in (a_profile(), lending("request"), lending("borg-decay")):
        async with LendingBench(tmp_path, profile) as bench:
            await bench.begin()
            for _ in range(6):
                await bench.sample(owner=1)
            await bench.remove_pod("borrower")
            results.append(pieces(bench))
    assert results[0] == results[1] == results[2]


@in_a_directory
async def test_the_journal_replays_each_loan_and_return(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin()
        for number in range(8):
            bench.pods_use(owner=GIB + number % 3 * GIB, borrower=GIB)
            await bench.sample(owner=number % 4)
        assert isinstance(bench.store, FakeStore)
        encoder = JournalEncoder(lending(), journal_header())
        head = encoder.header(bench.node)
        events = [dict(encoder.event(stepped)) for stepped in bench.store.stepped]
        for first in (0, 5):
            # A journal that begins later begins with the ceilings of that moment.
            if first:
                head = encoder.header(bench.store.stepped[first - 1].step.state)
            document = {**head, "spec": {**head["spec"], "events": events[first:]}}
            path = tmp_path / f"journal-{first}.json"
            path.write_text(json.dumps(document))
            scenario = load_scenario(str(path)).scenario
            assert scenario.spec.node is not None
            state = Node.from_profile(scenario.spec.node).state
            outcomes = list(replay(state, scenario.spec.events, live=True))
            assert [action_documents(outcome.actions) for outcome in outcomes] == [
                list(event["actions"]) for event in events[first:]
            ]
            assert outcomes[-1].final_state.loans == bench.loop.state.node.loans
        assert sum("lend" in event for event in events) >= 8


@in_a_directory
async def test_the_history_of_pods_that_lend_is_one_that_lend_reads(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin()
        for number in range(20):
            bench.pods_use(owner=GIB + number * MIB, borrower=GIB)
            await bench.sample(owner=2)
        history = load_usage_history([str(tmp_path / "usage.csv")])
        assert list(history.memory) == [("default/owner", "")]
        memory = history.memory["default/owner", ""]
        minutes = [
            (at_ns // 10**9 % 60, amount // MIB)
            for at_ns, amount in zip(memory.times_ns, memory.amounts, strict=True)
        ]
        assert minutes == [(0, 1027), (0, 1033), (0, 1039)]
        assert set(history.cpu["default/owner", ""].amounts) == {2000}
        assert not history.left_out


@pytest.mark.parametrize("name", list(PREDICTORS))
def test_every_predictor_can_be_named(name: str) -> None:
    assert Node.from_profile(lending(name)).config.parts.policies.predictor == PREDICTORS[name]
    widened = Node.from_profile(lending(f"{name}:25")).config.parts.policies.predictor
    assert widened is not None
    assert widened.margin_percent == 25


@in_a_directory
async def test_replay_shows_the_limits(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        await bench.begin()
        await bench.sample(owner=1)
        assert isinstance(bench.store, FakeStore)
        encoder = JournalEncoder(lending(), journal_header())
        head = encoder.header(bench.node)
        events = [dict(encoder.event(stepped)) for stepped in bench.store.stepped]
        (tmp_path / "journal.json").write_text(
            json.dumps({**head, "spec": {**head["spec"], "events": events}})
        )
    result = CliRunner().invoke(app, ["replay", str(tmp_path / "journal.json")])
    assert result.exit_code == 0, result.output
    assert [line.split()[1:4] for line in result.output.splitlines() if " lend " in line] == [
        ["lend", "-", "limit"],
        ["lend", "-", "limit"],
    ]


@in_a_directory
async def test_the_node_shows_what_it_lends_and_to_which_pods(tmp_path: Path) -> None:
    async with LendingBench(tmp_path) as bench:
        assert lending_texts(bench.loop.state) == {}
        await bench.begin()
        bench.pods_use(owner=GIB, borrower=GIB)
        await bench.sample(owner=1)
        state = bench.loop.state
        assert lending_texts(state) == {
            "lent-cpu": "0.8 of 2.8 for BestEffort pods",
            "lent-memory": "1.6Gi of 3.6Gi for BestEffort pods",
            "borrowers": "default/borrower=0/1Gi",
        }
        text = "".join(family_text(family, samples) for family, samples in node_gauges(state, GaugeInputs()))
        assert 'nodewright_lent{resource="cpu"} 0.8\n' in text
        assert 'nodewright_borrowed{resource="memory"} 1.073741824e+09\n' in text
        table = nodes_table(
            [node_object(state, NodeSystemInfo(kubelet_version="v1", started_ns=0))], Instant(0), wide=False
        )
        assert table.splitlines()[1].endswith("0.8/1.6Gi")


def test_limits_of_an_earlier_agent_are_taken_off() -> None:
    for version, files in (
        (2, {"cpu.max": "50000 100000", "memory.high": "4096", "cpu.weight": "1"}),
        (1, {"cpu.cfs_quota_us": "50000", "memory.limit_in_bytes": "4096", "cpu.shares": "2"}),
    ):
        cgroups, state = FakeCgroups(version), AgentState(node=Node.from_profile(a_profile()).state)
        cgroups.groups[CLASS] = dict(files)
        assert end_loans(state, cgroups) == ()
        assert sorted(cgroups.groups[CLASS].values()) in (
            ["1", "max", "max 100000"],
            ["-1", "-1", "2"],
        )


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("nothing", "no predictor of this name"),
        ("borg-decay:x", "must be NAME or NAME:PERCENT"),
        ("borg-decay:1001", "must be NAME or NAME:PERCENT"),
        (f"borg-decay:{'9' * 5000}", "must be NAME or NAME:PERCENT"),
        (":5", "no predictor of this name"),
    ],
)
def test_a_predictor_that_cannot_be_is_refused(text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        chosen_predictor(text, "--lend")
