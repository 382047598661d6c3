"""What the runtime keeps on the disk is there whole or not at all."""

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from nodewright.agent.runtimes.processes.records import (
    ContainerId,
    ContainerRecord,
    ExitRecord,
    RecordDirectory,
    SandboxRecord,
    StartRecord,
)
from nodewright.model.errors import HostError

ID = ContainerId("u_1", "app", 3)
POD = SandboxRecord(
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
    records = RecordDirectory(tmp_path / "r")
    assert (records.pod_uids(), records.sandbox_record("u_1"), records.container_ids("u_1")) == ([], None, [])
    records.save_sandbox("u_1", POD)
    for attempt in (3, 10):
        records.save_container(ID._replace(attempt=attempt), APP)
    assert (records.pod_uids(), records.sandbox_record("u_1"), records.container_record(ID)) == (
        ["u_1"],
        POD,
        APP,
    )
    assert [id_.attempt for id_ in records.container_ids("u_1")] == [10, 3]
    records.delete_container(ID)
    records.delete_container(ID)
    assert [id_.attempt for id_ in records.container_ids("u_1")] == [10]
    records.delete_sandbox("u_1")
    assert records.pod_uids() == []
    records.close()


@pytest.mark.parametrize("content", [None, b"", b"\0" * 100, b"junk", b"[]"])
def test_what_is_left_of_a_pod_without_a_record_is_removed(tmp_path: Path, content: bytes | None) -> None:
    records = RecordDirectory(tmp_path)
    for uid in ("u_1", "known", "other"):
        records.save_sandbox(uid, POD)
        records.save_container(ID._replace(uid=uid), APP)
    (tmp_path / "u_1" / "pod.json").unlink()
    if content is not None:
        (tmp_path / "u_1" / "pod.json").write_bytes(content)
    records.remove_remains({"known"})
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["known", "other"]
    records.close()


def test_what_is_left_of_a_pod_stays_while_a_shim_runs(tmp_path: Path) -> None:
    records = RecordDirectory(tmp_path)
    records.save_sandbox("u_1", POD)
    records.save_container(ID, APP)
    (tmp_path / "u_1" / "pod.json").write_bytes(b"junk")
    lock = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
    arguments = [sys.executable, "-c", lock, str(records.container_directory(ID) / "lock")]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as shim:
        assert shim.stdout is not None
        shim.stdout.readline()
        records.remove_remains(())
        assert records.container_record(ID) == APP
        shim.communicate()
    records.remove_remains(())
    assert not (tmp_path / "u_1").exists()
    records.close()


@pytest.mark.slow
def test_one_agent_has_it_at_a_time(tmp_path: Path) -> None:
    first = RecordDirectory(tmp_path)
    with pytest.raises(HostError, match="another agent uses it"):
        RecordDirectory(tmp_path)
    first.close()
    first.close()
    RecordDirectory(tmp_path).close()


@pytest.mark.parametrize("uid", ["", "..", "a/b", ".hidden"])
def test_pods_are_kept_below_the_directory_only(tmp_path: Path, uid: str) -> None:
    records = RecordDirectory(tmp_path)
    with pytest.raises(HostError, match=r"cannot have this name|is not the name of a file"):
        records.save_sandbox(uid, POD)
    records.close()


def test_what_was_torn_is_as_if_it_were_not_there_but_a_start_has_happened(tmp_path: Path) -> None:
    records = RecordDirectory(tmp_path)
    records.save_container(ID, APP)
    for name in ("started", "exit.json"):
        (records.container_directory(ID) / name).write_text("{")
    assert (records.start_record(ID), records.exit_record(ID)) == (StartRecord(), None)
    (records.container_directory(ID) / "created.json").write_text("")
    assert records.container_record(ID) is None
    records.close()


def test_an_end_is_written_once(tmp_path: Path) -> None:
    records = RecordDirectory(tmp_path)
    records.save_container(ID, APP)
    assert records.shim_pid(ID) == 0
    assert records.record_exit(ID, ExitRecord(code=1, finished_ns=5))
    assert records.record_exit(ID, ExitRecord(code=2, finished_ns=6))
    assert records.exit_record(ID) == ExitRecord(code=1, finished_ns=5)
    assert not records.send_command(ID, "TERM")
    records.close()


def test_an_interrupted_removal_leaves_nothing_that_looks_like_a_pod_or_a_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_path: Path) -> None:
        raise KeyboardInterrupt

    records = RecordDirectory(tmp_path)
    records.save_sandbox("u_1", POD)
    records.save_container(ID, APP)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", interrupted)
        for remove in (partial(records.delete_container, ID), partial(records.delete_sandbox, "u_1")):
            with pytest.raises(KeyboardInterrupt):
                remove()
    assert (records.container_ids("u_1"), records.pod_uids()) == ([], [])
    records.close()
    RecordDirectory(tmp_path).close()
    assert sorted(str(place.relative_to(tmp_path)) for place in tmp_path.rglob("*")) == [".gone", ".lock"]
