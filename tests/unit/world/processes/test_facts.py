"""As whom containers run, and what is said of their end."""

import pwd
from typing import Any

import pytest

from nodewright.core.cgroups.facts import ContainerSettings
from nodewright.model.objects import Container
from nodewright.model.running import ContainerPhase
from nodewright.testing.objects import a_pod
from nodewright.world.errors import WorldError
from nodewright.world.ports import ContainerWish
from nodewright.world.processes.facts import container_record, told
from nodewright.world.processes.identity import Identity, identity
from nodewright.world.processes.records import ContainerId, ContainerRecord, Ended, Started

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
        ({}, {}, Identity(None, None, None)),
        ({}, {"runAsUser": NOBODY.pw_uid}, Identity(NOBODY.pw_uid, NOBODY.pw_gid, ())),
        ({"runAsUser": 1}, {"runAsUser": 4_000_000, "runAsGroup": 3}, Identity(4_000_000, 3, ())),
        ({"runAsUser": 4_000_000}, {}, Identity(4_000_000, 0, ())),
        ({"supplementalGroups": [7, 8], "fsGroup": 7}, {}, Identity(None, None, (7, 8))),
        ({"runAsGroup": 5, "fsGroup": 9}, {"runAsUser": 1}, Identity(1, 5, (9,))),
    ],
)
def test_a_container_runs_as_itself_or_its_pod_says(
    whole: dict[str, object], own: dict[str, object], found: Identity
) -> None:
    pod = a_pod(securityContext=whole)
    assert identity(pod, Container(name="main", security_context=own)) == found


def a_wish(**more: Any) -> ContainerWish:
    return ContainerWish(
        pod=a_pod(),
        container=Container(name="main"),
        attempt=0,
        spec_hash="h",
        command=("true",),
        log_path="main/0.log",
        settings=ContainerSettings(),
        files=(),
        **more,
    )


def kept(wish: ContainerWish) -> ContainerRecord:
    return container_record(wish, "u_0", "/g", "", "")


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
    assert kept(a_wish(stop_signal=name)).stop_signal == number


@pytest.mark.parametrize("name", ["INT", "SIGNONE", "SIG_IGN", "SIGINT+1", "SIGRTMAX+1", "SIGRTMIN-", "9"])
def test_a_signal_that_there_is_not_is_refused(name: str) -> None:
    with pytest.raises(WorldError, match="there is no such signal"):
        kept(a_wish(stop_signal=name))


@pytest.mark.parametrize(
    ("started", "ended", "said"),
    [
        (None, None, (ContainerPhase.CREATED, 0, "", 0)),
        (Started(started_ns=5), None, (ContainerPhase.RUNNING, 0, "", 5)),
        (Started(started_ns=5), Ended(code=0, finished_ns=6), (ContainerPhase.EXITED, 0, "Completed", 5)),
        (Started(started_ns=5), Ended(code=128, finished_ns=6), (ContainerPhase.EXITED, 128, "Error", 5)),
        (
            Started(started_ns=5),
            Ended(code=0, finished_ns=6, oom_killed=1),
            (ContainerPhase.EXITED, 0, "OOMKilled", 5),
        ),
        (
            Started(started_ns=5),
            Ended(code=128, finished_ns=6, error="nonesuch"),
            (ContainerPhase.EXITED, 128, "StartError", 0),
        ),
    ],
)
def test_an_end_has_a_reason(started: Started | None, ended: Ended | None, said: tuple[object, ...]) -> None:
    found = told(ContainerId("u", "app", 0), RECORD, started, ended)
    assert (found.phase, found.exit_code, found.reason, found.started_ns) == said
