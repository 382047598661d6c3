"""What runtimes say becomes facts, whatever they leave out."""

import os
from pathlib import Path

import pytest

from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.configs import (
    LOG_DIRECTORY,
    TERMINATION_MESSAGE_PATH,
    TERMINATION_MESSAGE_POLICY,
)
from nodewright.agent.runtimes.cri.status import (
    cgroup_driver,
    cgroup_of,
    container_facts,
    phase_of,
    sandbox_facts,
    sandbox_image,
    usage_of,
)
from nodewright.documents.files.cgroup_files import ContainerUsage
from nodewright.model.kubernetes.runtime_status import ContainerPhase

HERE = "/dev/termination-log"
SANDBOX = cri.PodSandbox(id="s", annotations={LOG_DIRECTORY: "/logs"})


def exited(path: Path, log: Path, *, exit_code: int = 1, message: str = "") -> cri.ContainerStatus:
    return cri.ContainerStatus(
        id="c",
        state=cri.CONTAINER_EXITED,
        exit_code=exit_code,
        message=message,
        annotations={TERMINATION_MESSAGE_PATH: HERE, TERMINATION_MESSAGE_POLICY: "FallbackToLogsOnError"},
        mounts=[
            cri.Mount(container_path="/data", host_path="/"),
            cri.Mount(container_path=HERE, host_path=str(path)),
        ],
        log_path=str(log),
    )


def test_a_container_leaves_its_last_word_or_else_its_log(tmp_path: Path) -> None:
    path, log = tmp_path / "word", tmp_path / "0.log"
    log.write_text(
        "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:00Z stderr F o\n"
    )
    assert container_facts(exited(path, log), SANDBOX, "").message == "one\ntwo\n"
    assert container_facts(exited(path, log, exit_code=0), SANDBOX, "").message == ""
    log.write_bytes("2026-01-01T00:00:00Z stdout F 10 %\r100 %\u2028done\n".encode())
    assert container_facts(exited(path, log), SANDBOX, "").message == "10 %\r100 %\u2028done\n"
    path.write_text("x" * 5000 + "the end")
    container_status = container_facts(exited(path, log, message="OCI says no"), SANDBOX, "")
    assert container_status.message == "OCI says no: " + "x" * 4089 + "the end"
    assert container_status.reason == "Error"


def test_of_a_log_the_last_lines_count(tmp_path: Path) -> None:
    log = tmp_path / "0.log"
    log.write_text("".join(f"2026-01-01T00:00:00Z stdout F {'y' * 60}{number}\n" for number in range(1000)))
    message = container_facts(exited(tmp_path / "none", log), SANDBOX, "").message
    assert len(message) == 2048
    assert message.endswith("y999\n")
    gone = container_facts(exited(tmp_path / "none", tmp_path / "none"), SANDBOX, "")
    assert gone.message.startswith("Error on reading termination message from logs: ")


def test_an_unreadable_termination_message_is_reported(tmp_path: Path) -> None:
    message = container_facts(exited(tmp_path, tmp_path / "0.log"), SANDBOX, "").message
    assert message.startswith(f"Error on reading termination log {tmp_path}: ")


def test_a_fifo_in_place_of_a_termination_message_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    message = container_facts(exited(tmp_path / "log", tmp_path / "0.log"), SANDBOX, "").message
    assert message.endswith("is not a regular file: '" + str(tmp_path / "log") + "'")


@pytest.mark.parametrize("own", ["", "the end"])
def test_a_volume_at_the_path_of_the_termination_log_is_not_read(tmp_path: Path, own: str) -> None:
    secret, log = tmp_path / "secret", tmp_path / "log"
    secret.write_text("of the host")
    log.write_text(own)
    status = exited(log, tmp_path / "0.log", exit_code=0)
    status.mounts.insert(0, cri.Mount(container_path=HERE, host_path=str(secret)))
    assert container_facts(status, SANDBOX, "").message == own


def test_a_running_container_has_no_exit() -> None:
    status = cri.ContainerStatus(
        id="c", state=cri.CONTAINER_RUNNING, exit_code=3, reason="?", message="?", log_path="app/0.log"
    )
    facts = container_facts(status, SANDBOX, "/kubepods/c")
    assert (facts.exit_code, facts.reason, facts.message) == (0, "", "")
    assert (facts.log_path, facts.cgroup) == ("/logs/app/0.log", "/kubepods/c")


@pytest.mark.parametrize(
    ("state", "phase"),
    [(cri.CONTAINER_CREATED, ContainerPhase.CREATED), (cri.CONTAINER_UNKNOWN, ContainerPhase.UNKNOWN)],
)
def test_phases(state: cri.ContainerState, phase: ContainerPhase) -> None:
    assert phase_of(state) is phase


def test_a_sandbox_is_ready_once_it_has_an_address_or_needs_none() -> None:
    listed = cri.PodSandbox(id="s", state=cri.SANDBOX_READY)
    without = cri.PodSandboxStatus()
    on_host = cri.PodSandboxStatus()
    on_host.linux.namespaces.options.network = cri.NODE
    with_one = cri.PodSandboxStatus(network=cri.PodSandboxNetworkStatus(ip="10.0.0.2"))
    assert [
        sandbox_facts(listed, pod_sandbox_status).is_ready
        for pod_sandbox_status in (None, without, on_host, with_one)
    ] == [
        False,
        False,
        True,
        True,
    ]
    dead = cri.PodSandbox(id="s", state=cri.SANDBOX_NOTREADY)
    assert not sandbox_facts(dead, on_host).is_ready


ODD = ["", "null", "[]", "{", '{"runtimeSpec": null}', '{"runtimeSpec": {"linux": {"cgroupsPath": 3}}}']


@pytest.mark.parametrize("text", ODD)
def test_verbose_info_may_have_any_content(text: str) -> None:
    assert cgroup_of({"info": text}, "/kubepods") == ""
    assert cgroup_driver({"config": text}) == sandbox_image({"config": text}) == ""


def test_runtimes_of_both_drivers_have_none_in_common() -> None:
    both = '{"containerd": {"runtimes": {"a": {"options": {"SystemdCgroup": true}}, "b": {"options": null}}}}'
    text = '{"containerd": {"runtimes": {"b": {"options": {"SystemdCgroup": false}}}}}'
    assert (cgroup_driver({"config": both}), cgroup_driver({"config": text})) == ("", "cgroupfs")


def test_an_unreported_amount_is_not_zero() -> None:
    stats = cri.ContainerStats(
        cpu=cri.CpuUsage(timestamp=5, usage_core_nano_seconds=cri.UInt64Value(value=0))
    )
    assert usage_of(stats) == ContainerUsage(at_ns=5, cpu_ns=0)
