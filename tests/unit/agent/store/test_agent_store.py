"""What is kept comes back: pods, holdings and the journal, whatever the agent ended in the middle of."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.agent_bench import AgentBench, async_test
from tests.support.agent_restarts import stored_part
from tests.support.disks import FakeDisk
from tests.unit.agent.pods.test_drain import with_event_recorder

from nodewright.agent.assembly.node_shutdown import drain
from nodewright.agent.decide.iteration import StateChanges
from nodewright.agent.state.agent_state import AgentState, PodRecord, PodSource, PodStage
from nodewright.agent.store import agent_store
from nodewright.agent.store.agent_store import (
    AgentStore,
    OpenedStore,
    SavedState,
    StoreSettings,
    open_store,
    restored_state,
)
from nodewright.agent.store.store_files import (
    HEADER,
    JOURNAL,
    LOG,
    OLD_JOURNALS,
    deferred_file,
    pod_file,
    read_pod_file,
)
from nodewright.documents.files.file_store import FileStore, LocalFileStore
from nodewright.documents.formats.documents import InputFile
from nodewright.documents.profiles.node_profiles import with_release
from nodewright.documents.profiles.scenario_files import journal_header, scenario_from_file, scenario_node
from nodewright.engine.core.memory.memory_state import MemoryState
from nodewright.model.errors import HostError, InputError
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.reasons.kubelet_start import StateFile, StatePolicyDiffers
from nodewright.model.reasons.verdict import Granted, Refused
from nodewright.predict.node import Node
from nodewright.predict.replay.scenario_journal import JournalEncoder, action_documents
from nodewright.predict.replay.scenario_run import replay
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod, a_static_pod

PROFILE = a_profile(**STATIC_CPUS)


def a_setting(profile: NodeProfile, **changes: Any) -> StoreSettings:
    setting = StoreSettings(
        journal_encoder=JournalEncoder(profile, journal_header()),
        boot_id="first",
        path="/root-dir",
    )
    return setting._replace(**changes)


def opened(disk: FileStore, profile: NodeProfile = PROFILE, **changes: Any) -> OpenedStore:
    result = AgentStore.open(disk, Node.from_profile(profile).state, a_setting(profile, **changes))
    assert isinstance(result, Granted)
    return result.value


def after_some_pods(disk: FileStore, profile: NodeProfile = PROFILE, **changes: Any) -> AgentState:
    """What an agent knew when it had taken a pinned pod, one without wishes, and refused a third."""

    async def live() -> AgentState:
        start = opened(disk, profile, **changes)
        bench = AgentBench(profile)
        bench.replace_state(start.state, start.store)
        async with bench:
            await bench.add_pods(a_guaranteed_pod("pinned", "2/64Mi"), a_pod("web"), a_pod("big", "cpu=99"))
            return bench.loop.state

    return asyncio.run(live())


def test_the_next_agent_knows_what_the_last_one_knew() -> None:
    disk = FakeDisk()
    before = after_some_pods(disk)
    after = opened(disk).state
    assert {uid: stored_part(one) for uid, one in after.pods.items()} == {
        uid: stored_part(one) for uid, one in before.pods.items()
    }
    assert after.node.held == before.node.held
    assert after.node.pods == before.node.pods


def test_state_files_are_those_of_a_kubelet() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    assert disk.files["cpu_manager_state"] == (
        b'{"policyName":"static","defaultCpuSet":"0,3-7","entries":{"pinned":{"main":"1-2"}},"checksum":2707814364,'
        rb'"data":"{\"policyName\":\"static\",\"defaultCpuSet\":\"0,3-7\",'
        rb'\"entries\":{\"pinned\":{\"main\":\"1-2\"}}}","dataChecksum":3907615521}'
    )
    assert set(disk.names("device-plugins")) == {f"device-plugins/{StateFile.DEVICES}"}


@pytest.mark.parametrize("most_bytes", [4 << 20, 300])
def test_journals_are_scenarios_that_decide_the_same(most_bytes: int) -> None:
    disk = FakeDisk()
    after_some_pods(disk, max_journal_bytes=most_bytes)
    opened(disk)
    kinds = []
    for name in (*reversed(OLD_JOURNALS), JOURNAL):
        if name not in disk.files:
            continue
        scenario = scenario_from_file(InputFile(name, disk.files[name])).scenario
        node = Node.from_profile(scenario_node(scenario_from_file(InputFile(name, disk.files[name])))).state
        for event_outcome in replay(node, scenario.spec.events, live=scenario.spec.live):
            kinds.append(event_outcome.event.kind)
            assert action_documents(event_outcome.actions) == list(event_outcome.event.actions or ())
    assert kinds == ["add", "add", "add", "started", "started"]


def test_an_interrupted_journal_is_rotated_up_to_its_last_complete_event() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    disk.files[JOURNAL] = disk.files[JOURNAL][:-20]
    opened(disk)
    events = json.loads(disk.files[OLD_JOURNALS[0]])["spec"]["events"]
    assert [*events[-1]] == ["started", "actions"]


def test_what_was_in_the_log_only_is_done_by_the_next_agent() -> None:
    disk = FakeDisk()
    start = opened(disk)
    before = dict(disk.files)
    record = PodRecord(pod=a_pod("web"), source=PodSource.API, stage=PodStage.ACTIVE, memory=MemoryState())
    start.store.write(StateChanges(node=start.state.node, pods={"web": record}))
    disk.files = {**before, LOG: disk.files[LOG].removesuffix(b"=\n")}
    assert set(opened(disk).state.pods) == {"web"}


def test_a_line_of_the_log_that_was_cut_off_counts_for_nothing() -> None:
    disk = FakeDisk()
    start = opened(disk)
    before = dict(disk.files)
    record = PodRecord(pod=a_pod("web"), source=PodSource.API, stage=PodStage.ACTIVE, memory=MemoryState())
    start.store.write(StateChanges(node=start.state.node, pods={"web": record}))
    disk.files = {**before, LOG: disk.files[LOG][:-10]}
    assert opened(disk).state.pods == {}


def test_nothing_is_lost_with_the_power() -> None:
    disk = FakeDisk()
    before = after_some_pods(disk)
    disk.lose_power()
    start = opened(disk, boot_id="second")
    assert start.state.node.held == before.node.held
    assert [event.reason for event in start.events] == ["Rebooted"]


def test_a_state_file_that_people_have_deleted_stays_deleted() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    del disk.files["cpu_manager_state"]
    start = opened(disk, boot_id="second")
    # The kubelet would give it CPUs anew, too.
    assert str(start.state.node.held.cpu.exclusive("pinned", "main")) == "1-2"


def test_another_policy_is_refused_as_the_kubelet_refuses_it() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    other = a_profile(**{**STATIC_CPUS, "cpuManagerPolicy": "none"})
    kept = dict(disk.files)
    result = AgentStore.open(disk, Node.from_profile(other).state, a_setting(other))
    assert isinstance(result, Refused)
    assert isinstance(result.because[0], StatePolicyDiffers)
    assert {name: disk.files[name] for name in kept if name != LOG} == {
        name: content for name, content in kept.items() if name != LOG
    }


def test_pods_that_find_no_room_any_more_end_and_say_why() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    smaller = a_profile(**STATIC_CPUS, maxPods=1)
    result = AgentStore.open(disk, Node.from_profile(smaller).state, a_setting(smaller))
    assert isinstance(result, Granted)
    stages = {uid: one.stage for uid, one in result.value.state.pods.items()}
    assert stages == {"pinned": PodStage.ACTIVE, "web": PodStage.TERMINATING, "big": PodStage.REJECTED}
    assert [(event.uid, event.reason) for event in result.value.events] == [("web", "OutOfpods")]


@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state"])
def test_a_damaged_state_file_is_set_aside_and_its_pods_are_allocated_again(name: str) -> None:
    disk = FakeDisk()
    before = after_some_pods(disk)
    disk.files[name] = torn = disk.files[name][:-20]
    after = opened(disk)
    assert [event.message for event in after.events] == [
        f"/root-dir/{name}: it is damaged; the file is kept as {name}.damaged"
    ]
    assert disk.files[f"{name}.damaged"] == torn
    assert after.state.pods.keys() == before.pods.keys()
    assert after.state.node.held.cpu == before.node.held.cpu
    assert opened(disk).events == ()


def test_a_fifo_in_place_of_a_state_file_is_set_aside_and_not_waited_for(tmp_path: Path) -> None:
    disk = LocalFileStore(tmp_path / "root")
    after_some_pods(disk)
    (tmp_path / "root/cpu_manager_state").unlink()
    os.mkfifo(tmp_path / "root/cpu_manager_state")
    (event,) = opened(disk).events
    assert event.message.endswith("is not a regular file; the file is kept as cpu_manager_state.damaged")
    assert (tmp_path / "root/cpu_manager_state").is_file()
    disk.close()


def test_an_agent_starts_in_its_own_directory_without_a_header() -> None:
    disk = FakeDisk()
    before = after_some_pods(disk)
    del disk.files["agent.json"]
    assert opened(disk).state.pods.keys() == before.pods.keys()


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[:-30], "is damaged, or not written by nodewright"),
        (lambda content: content.replace(b'"checksum":', b'"checksum":1'), "its checksum differs"),
        (lambda _: b"hello", "its containers, if any, are then terminated as orphans"),
        (lambda _: b"[" * 100_000, "is damaged, or not written by nodewright"),
        (lambda _: b"\xff\xfe", "is damaged, or not written by nodewright"),
        (lambda _: b"", "is damaged, or not written by nodewright"),
    ],
)
@pytest.mark.parametrize("name", ["pods/web.json", "agent.json", "deferred.json", "changes.log"])
def test_a_damaged_file_is_set_aside_and_the_rest_is_loaded(name: str, damage: object, said: str) -> None:
    disk = FakeDisk()
    uids = set(after_some_pods(disk).pods)
    assert callable(damage)
    disk.files.setdefault("deferred.json", deferred_file(()))
    content = disk.files[name] or b"11111111 {}"
    # An incomplete last line of the log is no damage.
    disk.files[name] = damaged = damage(content) + (b"\n\n" if name == "changes.log" else b"")
    start = opened(disk)
    assert set(start.state.pods) == uids - ({"web"} if name == "pods/web.json" else set())
    (event,) = [event for event in start.events if event.reason == "RecordSetAside"]
    assert event.message.startswith(f"/root-dir/{name}: ")
    assert event.message.endswith(f"the file is kept as {name}.damaged")
    assert said in event.message or name != "pods/web.json"
    assert disk.files[f"{name}.damaged"] == damaged
    assert not [event for event in opened(disk).events if event.reason == "RecordSetAside"]


def test_a_file_of_a_newer_version_is_refused_with_what_to_do() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    newer = disk.files["pods/web.json"].replace(b'"version":1', b'"version":2')
    disk.files["pods/web.json"] = newer
    with pytest.raises(InputError, match="of version 2, written by a newer nodewright"):
        opened(disk)
    assert disk.files["pods/web.json"] == newer


@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state"])
def test_a_state_file_in_a_format_of_later_releases_is_set_aside(name: str) -> None:
    disk = FakeDisk()
    uids = set(after_some_pods(disk).pods)
    document = json.loads(disk.files[name])
    text = json.dumps({**json.loads(document["data"]), "entriesOfLater": {}})
    disk.files[name] = newer = json.dumps({**document, "data": text}).encode()
    start = opened(disk)
    assert set(start.state.pods) == uids
    (event,) = [event for event in start.events if event.reason == "RecordSetAside"]
    assert event.message == f"/root-dir/{name}: it is damaged; the file is kept as {name}.damaged"
    assert disk.files[f"{name}.damaged"] == newer


def test_a_copy_of_another_pods_file_is_set_aside() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    disk.files["pods/copy.json"] = disk.files["pods/web.json"]
    start = opened(disk)
    assert [event.reason for event in start.events] == ["RecordSetAside"]
    assert "copy" not in start.state.pods


def test_a_record_that_nobody_can_start_with_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FakeDisk()
    uids = set(after_some_pods(disk).pods)

    def restored(parts: Any, saved: SavedState) -> Any:
        if "web" in saved.pods:
            raise KeyError("name")
        return restored_state(parts, saved)

    monkeypatch.setattr(agent_store, "restored_state", restored)
    start = opened(disk)
    assert set(start.state.pods) == uids - {"web"}
    assert ["KeyError" in event.message for event in start.events] == [True]
    assert "pods/web.json.damaged" in disk.files


def test_the_directory_of_a_kubelet_is_not_touched() -> None:
    disk = FakeDisk()
    disk.files["cpu_manager_state"] = b"{}"
    with pytest.raises(InputError, match="is this a kubelet's directory"):
        opened(disk)
    assert disk.files == {"cpu_manager_state": b"{}"}


def test_what_is_kept_is_read_again() -> None:
    disk = FakeDisk()
    (record, *_) = after_some_pods(disk).pods.values()
    record = replace(record, is_preempted=True, grace_period_s=3, waits_for=frozenset("ab"), cgroup="/a/b")
    record = replace(record, pending_post_start_hooks={"main": 2})
    assert read_pod_file(pod_file(record), "") == stored_part(record)


@pytest.mark.slow
def test_a_real_directory_keeps_it_as_well(tmp_path: Path) -> None:
    disk = LocalFileStore(tmp_path / "root")
    before = after_some_pods(disk)
    with pytest.raises(HostError, match=r"process \d+ uses it: two agents cannot share a directory"):
        LocalFileStore(tmp_path / "root")
    disk.close()
    (tmp_path / "root/pods/.web.json.tmp").write_text("half")
    disk = LocalFileStore(tmp_path / "root")
    assert opened(disk).state.node.held == before.node.held
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "root/pods").iterdir()} == {0o600}
    assert not (tmp_path / "root/pods/.web.json.tmp").exists()
    disk.close()


@pytest.mark.slow
def test_an_agent_has_its_directory_for_itself(tmp_path: Path) -> None:
    node, scribe = Node.from_profile(PROFILE).state, JournalEncoder(PROFILE, journal_header())
    store = open_store(tmp_path, node, scribe, {PodSource.FILE})
    assert isinstance(store, Granted)
    assert store.value.state.unready_sources == {PodSource.FILE}
    with pytest.raises(HostError, match="two agents"):
        open_store(tmp_path, node, scribe)


def test_a_directory_error_names_the_failed_operation(tmp_path: Path) -> None:
    disk = LocalFileStore(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match=r"write .*file/name: "):
        disk.write("file/name", b"")
    disk.close()


def test_the_header_is_there_before_anything_else() -> None:
    disk = FakeDisk()
    opened(disk)
    assert HEADER in disk.synced


SOURCES = frozenset((PodSource.FILE, PodSource.WORKLOAD))


async def drained(disk: FakeDisk) -> AgentBench:
    """What an agent leaves that ends its pods: a static one, an ordinary one, and a static one that was turned away."""
    bench = AgentBench(PROFILE)
    start = opened(disk)
    bench.replace_state(start.state, start.store)
    async with bench:
        event_recorder = with_event_recorder(bench)
        await bench.set_source_pods(a_static_pod("web"), a_static_pod("big", "cpu=99"), source=PodSource.FILE)
        await bench.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
        assert [bench.phase(uid) for uid in ("web", "big", "job")] == ["Running", "Failed", "Running"]
        ending = asyncio.create_task(drain(event_recorder, bench.loop.observe, bench.clock))
        await bench.clock.advance(40)
        assert await ending
        assert [bench.phase(uid) for uid in ("web", "job")] == ["Failed", "Failed"]
    return bench


async def follower(disk: FakeDisk, before: AgentBench, boot: str) -> AgentBench:
    bench = AgentBench(PROFILE, clock=before.clock)
    start = opened(disk, unready_sources=SOURCES, boot_id=boot)
    bench.replace_state(start.state, start.store)
    bench.adopt(before.runtime, before.cgroups)
    return bench


@pytest.mark.parametrize("boot", ["first", "second"])
def test_static_pods_start_again_after_a_drain_and_others_have_ended(boot: str) -> None:
    @async_test
    async def check() -> None:
        disk = FakeDisk()
        first = await drained(disk)
        async with await follower(disk, first, boot) as second:
            await second.set_source_pods(a_static_pod("web"), source=PodSource.FILE)
            await second.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
            assert (second.phase("web"), second.phase("job")) == ("Running", "Failed")
            assert second.runtime_operations().count("start_container main-web-1") == 1
            assert second.record("web").status.reason == ""

    check()


@async_test
async def test_a_static_pod_that_no_source_lists_leaves_nothing() -> None:
    disk = FakeDisk()
    first = await drained(disk)
    async with await follower(disk, first, "first") as second:
        assert "pods/big.json" not in disk.files
        await second.set_source_pods(source=PodSource.FILE)
        await second.set_source_pods(a_pod("job"), source=PodSource.WORKLOAD)
        assert list(second.loop.state.pods) == ["job"]
        assert [pod.uid for pod in await second.runtime.pods()] == ["job"]


@async_test
async def test_a_static_pod_that_was_turned_away_is_tried_again() -> None:
    disk = FakeDisk()
    first = await drained(disk)
    async with await follower(disk, first, "first") as second:
        await second.set_source_pods(a_static_pod("big", "cpu=1"), source=PodSource.FILE)
        assert second.phase("big") == "Running"


class FullDisk(FakeDisk):
    """A disk that may be full: names of files can be changed, files can not."""

    is_full = False

    def write(self, name: str, content: bytes) -> None:
        """Writes a file, if there is room."""
        if self.is_full:
            raise HostError("write", name, "No space left on device")
        super().write(name, content)

    def write_at(self, name: str, at: int, content: bytes) -> None:
        """Writes a part of a file, if there is room."""
        if self.is_full:
            raise HostError("write", name, "No space left on device")
        super().write_at(name, at, content)


@async_test
async def test_a_deletion_on_a_full_disk_outlives_the_agent() -> None:
    disk = FullDisk()
    start = opened(disk)
    bench = AgentBench(PROFILE)
    bench.replace_state(start.state, start.store)
    async with bench:
        await bench.add_pods(a_pod("web"), a_pod("other"))
        disk.is_full = True
        await bench.remove_pod("web", 0)
        assert start.store.deletion_error == ""
        assert set(disk.names("pods")) == {"pods/other.json", "pods/web.json.ending"}
        disk.is_full = False
        after = opened(disk)
    web, other = after.state.pods["web"], after.state.pods["other"]
    assert (web.stage, web.is_in_source) == (PodStage.TERMINATING, False)
    assert (other.stage, other.is_in_source) == (PodStage.ACTIVE, True)
    last = AgentBench(PROFILE)
    last.replace_state(after.state, after.store)
    async with last:
        await last.clock.advance(1)
        assert set(last.loop.state.pods) == {"other"}
    assert disk.names("pods") == ("pods/other.json",)


@pytest.mark.parametrize(
    ("before", "after"), [("1.36", "1.37"), ("1.37", "1.36"), ("1.32", "1.37"), ("1.37", "1.32")]
)
def test_an_agent_of_another_release_goes_on_and_writes_the_files_of_its_own(before: str, after: str) -> None:
    disk = FakeDisk()
    held = after_some_pods(disk, with_release(PROFILE, before)).node.held
    start = opened(disk, with_release(PROFILE, after))
    assert start.state.node.held == held
    assert not start.events
    for name in ("cpu_manager_state", "memory_manager_state"):
        assert (b'"dataChecksum":' in disk.files[name]) == (after == "1.37")
    opened(disk, with_release(PROFILE, before))
    assert (b'"dataChecksum":' in disk.files["cpu_manager_state"]) == (before == "1.37")


@pytest.mark.parametrize(("release", "is_set_aside"), [("1.37", True), ("1.36", False)])
@pytest.mark.parametrize("name", ["cpu_manager_state", "memory_manager_state"])
def test_a_wrong_checksum_of_data_is_damage_for_a_release_that_reads_it(
    name: str, release: str, *, is_set_aside: bool
) -> None:
    disk = FakeDisk()
    before = after_some_pods(disk, with_release(PROFILE, "1.37"))
    document = json.loads(disk.files[name])
    disk.files[name] = json.dumps({**document, "dataChecksum": 1}).encode()
    start = opened(disk, with_release(PROFILE, release))
    assert set(start.state.pods) == set(before.pods)
    assert ([event.reason for event in start.events] == ["RecordSetAside"]) is is_set_aside
    assert (f"{name}.damaged" in disk.files) is is_set_aside
    if not is_set_aside:
        assert start.state.node.held == before.node.held
