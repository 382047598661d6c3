"""As whom containers run, and what is said of their end."""

import pwd
from typing import Any

import pytest
from msgspec.structs import replace

from nodewright.agent.host.ports import ContainerConfig, Mount
from nodewright.agent.runtimes.processes.records import (
    ContainerId,
    ContainerRecord,
    ExitRecord,
    ProcessIdentity,
    StartRecord,
    container_facts,
    container_record,
    process_identity,
    termination_log_path,
)
from nodewright.engine.core.cgroups.cgroup_facts import ContainerSettings
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container
from nodewright.model.kubernetes.runtime_status import ContainerPhase
from nodewright.testing.objects import a_pod

NOBODY = pwd.getpwnam("nobody")
RECORD = ContainerRecord(
    sandbox_id="u_0",
    hash="h",
    argv=("true",),
    env={},
    cwd="",
    log="",
    cgroup="/g",
    oom_score_adj=None,
    uid=None,
    gid=None,
    groups=None,
    termination_log="",
    created_ns=1,
)


@pytest.mark.parametrize(
    ("whole", "own", "found"),
    [
        ({}, {}, ProcessIdentity(None, None, None)),
        ({}, {"runAsUser": NOBODY.pw_uid}, ProcessIdentity(NOBODY.pw_uid, NOBODY.pw_gid, ())),
        ({"runAsUser": 1}, {"runAsUser": 4_000_000, "runAsGroup": 3}, ProcessIdentity(4_000_000, 3, ())),
        ({"runAsUser": 4_000_000}, {}, ProcessIdentity(4_000_000, 0, ())),
        ({"supplementalGroups": [7, 8], "fsGroup": 7}, {}, ProcessIdentity(None, None, (7, 8))),
        ({"runAsGroup": 5, "fsGroup": 9}, {"runAsUser": 1}, ProcessIdentity(1, 5, (9,))),
    ],
)
def test_a_container_runs_with_its_own_or_its_pods_identity(
    whole: dict[str, object], own: dict[str, object], found: ProcessIdentity
) -> None:
    pod = a_pod(securityContext=whole)
    assert process_identity(pod, Container(name="main", security_context=own)) == found


def a_wish(**more: Any) -> ContainerConfig:
    return ContainerConfig(
        pod=a_pod(),
        container=Container(name="main"),
        attempt=0,
        spec_hash="h",
        command=("true",),
        log_path="main/0.log",
        settings=ContainerSettings(),
        cgroup_files=(),
        **more,
    )


def record_of(config: ContainerConfig) -> ContainerRecord:
    return container_record(config, "u_0", "/g", "", "")


def test_a_volume_at_the_path_of_the_termination_log_is_not_read() -> None:
    # The shim reads the file as root, and the pod's status shows it to anyone who may read pods.
    container = Container(name="main", termination_message_path="/etc/shadow")
    volume = Mount(host_path="/etc/shadow", container_path="/etc/shadow")
    own = Mount(host_path="/var/lib/pods/u/containers/main/0", container_path="/etc/shadow")
    config = replace(a_wish(mounts=(volume, own)), container=container)
    assert termination_log_path(config) == own.host_path
    assert termination_log_path(replace(config, mounts=())) == ""


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("", 0),
        ("SIGINT", 2),
        ("SIGUSR1", 10),
        ("SIGCLD", 17),
        ("SIGPOLL", 29),
        ("SIGRTMIN", 34),
        ("SIGRTMIN+15", 49),
        ("SIGRTMAX-14", 50),
        ("SIGRTMAX", 64),
    ],
)
def test_signals_are_known_by_their_names(name: str, number: int) -> None:
    assert record_of(a_wish(stop_signal=name)).stop_signal == number


@pytest.mark.parametrize("name", ["INT", "SIGNONE", "SIG_IGN", "SIGINT+1", "SIGRTMAX+1", "SIGRTMIN-", "9"])
def test_a_signal_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(HostError, match="there is no such signal"):
        record_of(a_wish(stop_signal=name))


@pytest.mark.parametrize(
    ("started", "ended", "said"),
    [
        (None, None, (ContainerPhase.CREATED, 0, "", 0)),
        (StartRecord(started_ns=5), None, (ContainerPhase.RUNNING, 0, "", 5)),
        (
            StartRecord(started_ns=5),
            ExitRecord(code=0, finished_ns=6),
            (ContainerPhase.EXITED, 0, "Completed", 5),
        ),
        (
            StartRecord(started_ns=5),
            ExitRecord(code=128, finished_ns=6),
            (ContainerPhase.EXITED, 128, "Error", 5),
        ),
        (
            StartRecord(started_ns=5),
            ExitRecord(code=0, finished_ns=6, oom_killed=1),
            (ContainerPhase.EXITED, 0, "OOMKilled", 5),
        ),
        (
            StartRecord(started_ns=5),
            ExitRecord(code=128, finished_ns=6, error="nonesuch"),
            (ContainerPhase.EXITED, 128, "StartError", 0),
        ),
    ],
)
def test_an_end_has_a_reason(
    started: StartRecord | None, ended: ExitRecord | None, said: tuple[object, ...]
) -> None:
    container_status = container_facts(ContainerId("u", "app", 0), RECORD, started, ended)
    assert (
        container_status.phase,
        container_status.exit_code,
        container_status.reason,
        container_status.started_ns,
    ) == said
