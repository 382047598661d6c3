"""What the runtime keeps on the disk is there whole or not at all."""

from pathlib import Path

import pytest

from nodewright.world.errors import WorldError
from nodewright.world.processes.records import (
    ContainerId,
    ContainerRecord,
    Ended,
    PodRecord,
    Records,
    Started,
)

ID = ContainerId("u_1", "app", 3)
POD = PodRecord(
    namespace="default", name="web", attempt=0, cgroup="/pods/u", logs="/logs", created_ns=1, boot="b"
)
APP = ContainerRecord(
    sandbox_id="u_1_0",
    hash="h",
    argv=("true",),
    env={},
    cwd="",
    log="/logs/app/3.log",
    cgroup="/pods/u/app-3",
    oom_score_adj=None,
    uid=None,
    gid=None,
    groups=None,
    termination_log="",
    created_ns=2,
)


def test_ids_are_read_as_they_are_written() -> None:
    assert ContainerId.parse(str(ID)) == ID
    assert [ContainerId.parse(text).name for text in ("", "x", "a_b", "_b_1", "a_b_c")] == [""] * 5


def test_what_is_kept_is_found_and_what_is_dropped_is_not(tmp_path: Path) -> None:
    records = Records(tmp_path / "r")
    assert (records.uids(), records.pod("u_1"), records.ids("u_1")) == ([], None, [])
    records.keep_pod("u_1", POD)
    for attempt in (3, 10):
        records.keep_container(ID._replace(attempt=attempt), APP)
    assert (records.uids(), records.pod("u_1"), records.container(ID)) == (["u_1"], POD, APP)
    assert [id_.attempt for id_ in records.ids("u_1")] == [10, 3]
    records.drop_container(ID)
    records.drop_container(ID)
    assert [id_.attempt for id_ in records.ids("u_1")] == [10]
    records.drop_pod("u_1")
    assert records.uids() == []
    records.close()


def test_one_agent_has_it_at_a_time(tmp_path: Path) -> None:
    first = Records(tmp_path)
    with pytest.raises(WorldError, match="another agent has it"):
        Records(tmp_path)
    first.close()
    first.close()
    Records(tmp_path).close()


@pytest.mark.parametrize("uid", ["", "..", "a/b", ".hidden"])
def test_pods_are_kept_below_the_directory_only(tmp_path: Path, uid: str) -> None:
    records = Records(tmp_path)
    with pytest.raises(WorldError, match="cannot have this name"):
        records.keep_pod(uid, POD)
    records.close()


def test_what_was_torn_is_as_if_it_were_not_there_but_a_start_has_happened(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep_container(ID, APP)
    for name in ("started", "exit.json"):
        (records.place(ID) / name).write_text("{")
    assert (records.started(ID), records.ended(ID)) == (Started(), None)
    (records.place(ID) / "created.json").write_text("")
    assert records.container(ID) is None
    records.close()


def test_an_end_is_written_once(tmp_path: Path) -> None:
    records = Records(tmp_path)
    records.keep_container(ID, APP)
    assert records.holder(ID) == 0
    assert records.end_container(ID, Ended(code=1, finished_ns=5))
    assert records.end_container(ID, Ended(code=2, finished_ns=6))
    assert records.ended(ID) == Ended(code=1, finished_ns=5)
    assert not records.tell(ID, "TERM")
    records.close()


def test_what_half_gone_things_leave_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".gone" / "1").mkdir(parents=True)
    Records(tmp_path).close()
    assert sorted(place.name for place in tmp_path.iterdir()) == [".lock"]
