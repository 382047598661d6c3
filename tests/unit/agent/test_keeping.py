"""What is kept comes back: pods, holdings and the journal, whatever the agent ended in the middle of."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.agent.keeping import (
    HEADER,
    JOURNAL,
    LOG,
    OLD_JOURNALS,
    Keeper,
    Opened,
    Setting,
    open_directory,
)
from nodewright.agent.kept import kept_part, pod_file, read_pod_file
from nodewright.agent.outcome import Keeping
from nodewright.agent.values import Mind, PodRecord, Source, Stage
from nodewright.ask import Node
from nodewright.core.memory.state import MemoryState
from nodewright.model.profile import NodeProfile
from nodewright.model.state_reasons import StateFile, StateFileDamaged, StatePolicyDiffers
from nodewright.model.verdict import Granted, Refused
from nodewright.render.journals import JournalScribe
from nodewright.render.replay import action_documents
from nodewright.render.words import KubeletWords
from nodewright.sim.replay import replay
from nodewright.testing.agents import AgentBench
from nodewright.testing.disks import FakeDisk
from nodewright.testing.nodes import STATIC_CPUS, a_profile
from nodewright.testing.objects import a_guaranteed_pod, a_pod
from nodewright.world.directory import Directory
from nodewright.world.errors import InputError, WorldError
from nodewright.world.files import File
from nodewright.world.ports import Disk
from nodewright.world.scenarios import node_of, scenario_from, this_release

PROFILE = a_profile(**STATIC_CPUS)


def a_setting(profile: NodeProfile, **changes: Any) -> Setting:
    setting = Setting(
        scribe=JournalScribe(profile, this_release()), words=KubeletWords(), boot="first", path="/root-dir"
    )
    return setting._replace(**changes)


def opened(disk: Disk, profile: NodeProfile = PROFILE, **changes: Any) -> Opened:
    found = Keeper.open(disk, Node.of(profile).state, a_setting(profile, **changes))
    assert isinstance(found, Granted)
    return found.value


def after_some_pods(disk: Disk, **changes: Any) -> Mind:
    """What an agent knew when it had taken a pinned pod, one without wishes, and refused a third."""

    async def live() -> Mind:
        start = opened(disk, **changes)
        bench = AgentBench(PROFILE)
        bench.begin(start.mind, start.keeper)
        async with bench:
            await bench.want(a_guaranteed_pod("pinned", "2/64Mi"), a_pod("web"), a_pod("big", "cpu=99"))
            return bench.loop.mind

    return asyncio.run(live())


def test_the_next_agent_knows_what_the_last_one_knew() -> None:
    disk = FakeDisk()
    before = after_some_pods(disk)
    after = opened(disk).mind
    assert {uid: kept_part(one) for uid, one in after.pods.items()} == {
        uid: kept_part(one) for uid, one in before.pods.items()
    }
    assert after.node.held == before.node.held
    assert after.node.pods == before.node.pods


def test_state_files_are_those_of_a_kubelet() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    assert disk.files["cpu_manager_state"] == (
        b'{"policyName":"static","defaultCpuSet":"0,3-7","entries":{"pinned":{"main":"1-2"}},"checksum":'
        + disk.files["cpu_manager_state"].rpartition(b":")[2]
    )
    assert set(disk.names("device-plugins")) == {f"device-plugins/{StateFile.DEVICES}"}


@pytest.mark.parametrize("most_bytes", [4 << 20, 300])
def test_journals_are_scenarios_that_decide_the_same(most_bytes: int) -> None:
    disk = FakeDisk()
    after_some_pods(disk, most_journal_bytes=most_bytes)
    opened(disk)
    kinds = []
    for name in (*reversed(OLD_JOURNALS), JOURNAL):
        if name not in disk.files:
            continue
        scenario = scenario_from(File(name, disk.files[name])).scenario
        node = Node.of(node_of(scenario_from(File(name, disk.files[name])))).state
        for one in replay(node, scenario.spec.events, live=scenario.spec.live):
            kinds.append(one.event.kind)
            assert action_documents(one.actions) == list(one.event.actions or ())
    assert kinds == ["add", "add", "add", "started", "started"]


def test_a_journal_that_was_cut_off_is_put_aside_as_far_as_it_goes() -> None:
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
    record = PodRecord(pod=a_pod("web"), source=Source.API, stage=Stage.ACTIVE, memory=MemoryState())
    start.keeper.keep(Keeping(node=start.mind.node, pods={"web": record}))
    disk.files = {**before, LOG: disk.files[LOG].removesuffix(b"=\n")}
    assert set(opened(disk).mind.pods) == {"web"}


def test_a_line_of_the_log_that_was_cut_off_counts_for_nothing() -> None:
    disk = FakeDisk()
    start = opened(disk)
    before = dict(disk.files)
    record = PodRecord(pod=a_pod("web"), source=Source.API, stage=Stage.ACTIVE, memory=MemoryState())
    start.keeper.keep(Keeping(node=start.mind.node, pods={"web": record}))
    disk.files = {**before, LOG: disk.files[LOG][:-10]}
    assert opened(disk).mind.pods == {}


def test_nothing_is_lost_with_the_power() -> None:
    disk = FakeDisk()
    before = after_some_pods(disk)
    disk.lose_power()
    start = opened(disk, boot="second")
    assert start.mind.node.held == before.node.held
    assert [told.reason for told in start.tells] == ["Rebooted"]


def test_a_state_file_that_people_have_deleted_stays_deleted() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    del disk.files["cpu_manager_state"]
    start = opened(disk, boot="second")
    # The kubelet would give it CPUs anew, too.
    assert str(start.mind.node.held.cpu.exclusive("pinned", "main")) == "1-2"


def test_another_policy_is_refused_as_the_kubelet_refuses_it() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    other = a_profile(**{**STATIC_CPUS, "cpuManagerPolicy": "none"})
    kept = dict(disk.files)
    found = Keeper.open(disk, Node.of(other).state, a_setting(other))
    assert isinstance(found, Refused)
    assert isinstance(found.because[0], StatePolicyDiffers)
    assert {name: disk.files[name] for name in kept if name != LOG} == {
        name: content for name, content in kept.items() if name != LOG
    }


def test_pods_that_find_no_room_any_more_end_and_say_why() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    smaller = a_profile(**STATIC_CPUS, maxPods=1)
    found = Keeper.open(disk, Node.of(smaller).state, a_setting(smaller))
    assert isinstance(found, Granted)
    stages = {uid: one.stage for uid, one in found.value.mind.pods.items()}
    assert stages == {"pinned": Stage.ACTIVE, "web": Stage.ENDING, "big": Stage.REFUSED}
    assert [(told.uid, told.reason) for told in found.value.tells] == [("web", "OutOfpods")]


def test_a_damaged_state_file_is_refused_and_left_alone() -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    disk.files["cpu_manager_state"] = torn = disk.files["cpu_manager_state"][:-20]
    found = Keeper.open(disk, Node.of(PROFILE).state, a_setting(PROFILE))
    assert isinstance(found, Refused)
    assert isinstance(found.because[0], StateFileDamaged)
    assert disk.files["cpu_manager_state"] == torn


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[:-30], "is damaged, or not written by nodewright"),
        (lambda content: content.replace(b"default", b"another"), "its checksum differs"),
        (
            lambda content: content.replace(b'"version":1', b'"version":2'),
            "of version 2, of a newer nodewright",
        ),
        (lambda _: b"hello", "delete the file and start the agent again"),
    ],
)
def test_a_file_of_a_pod_that_is_damaged_is_refused_with_what_to_do(damage: object, said: str) -> None:
    disk = FakeDisk()
    after_some_pods(disk)
    assert callable(damage)
    disk.files["pods/web.json"] = damaged = damage(disk.files["pods/web.json"])
    with pytest.raises(InputError, match=said) as caught:
        opened(disk)
    assert str(caught.value).startswith("/root-dir/pods/web.json: ")
    assert disk.files["pods/web.json"] == damaged


def test_the_directory_of_a_kubelet_is_not_touched() -> None:
    disk = FakeDisk()
    disk.files["cpu_manager_state"] = b"{}"
    with pytest.raises(InputError, match="is this a kubelet's directory"):
        opened(disk)
    assert disk.files == {"cpu_manager_state": b"{}"}


def test_what_is_kept_is_read_again() -> None:
    disk = FakeDisk()
    (record, *_) = after_some_pods(disk).pods.values()
    record = replace(record, makes_way=True, grace_period_s=3, waits_for=frozenset("ab"), cgroup="/a/b")
    record = replace(record, hooks={"main": 2})
    assert read_pod_file(pod_file(record), "") == kept_part(record)


def test_a_real_directory_keeps_it_as_well(tmp_path: Path) -> None:
    disk = Directory(tmp_path / "root")
    before = after_some_pods(disk)
    with pytest.raises(WorldError, match=r"process \d+ has it: two agents cannot share a directory"):
        Directory(tmp_path / "root")
    disk.close()
    (tmp_path / "root/pods/.web.json.tmp").write_text("half")
    disk = Directory(tmp_path / "root")
    assert opened(disk).mind.node.held == before.node.held
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "root/pods").iterdir()} == {0o600}
    assert not (tmp_path / "root/pods/.web.json.tmp").exists()
    disk.close()


def test_an_agent_has_its_directory_for_itself(tmp_path: Path) -> None:
    node, scribe = Node.of(PROFILE).state, JournalScribe(PROFILE, this_release())
    found = open_directory(tmp_path, node, scribe, KubeletWords(), {Source.FILE})
    assert isinstance(found, Granted)
    assert found.value.mind.unheard == {Source.FILE}
    with pytest.raises(WorldError, match="two agents"):
        open_directory(tmp_path, node, scribe, KubeletWords())


def test_a_directory_says_what_it_could_not_do(tmp_path: Path) -> None:
    disk = Directory(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(WorldError, match=r"write .*file/name: "):
        disk.write("file/name", b"")
    disk.close()


def test_the_header_is_there_before_anything_else() -> None:
    disk = FakeDisk()
    opened(disk)
    assert HEADER in disk.safe
