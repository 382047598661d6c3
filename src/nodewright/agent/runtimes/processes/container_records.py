"""Converts container configs to records, and records to container status; chooses the user of a container."""

import pwd
import signal
import time
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from nodewright.agent.host.cgroupfs import CgroupFS
from nodewright.agent.host.ports import ContainerConfig
from nodewright.agent.rules.container_security import container_privileges, effective_setting
from nodewright.agent.runtimes.processes.records import ContainerId, ContainerRecord, ExitRecord, StartRecord
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_spec_fields import PodSecurityContext
from nodewright.model.kubernetes.runtime_status import (
    COMPLETED,
    ERROR,
    OOM_KILLED,
    ContainerPhase,
    RuntimeContainerStatus,
)


class ProcessIdentity(NamedTuple):
    """User, primary group and supplementary groups; None: the agent's own."""

    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None


def process_identity(pod: Pod, container: Container) -> ProcessIdentity:
    """The identity that a container runs as: from the container, else the pod, else the agent.

    Departs: a user of this machine gets its own group where a container without runAsGroup would get group 0, and only
             the supplementary groups that the pod names (`supplementalGroupsPolicy: Strict`).
    """
    pod_context = pod.spec.security_context or PodSecurityContext()
    uid, gid = effective_setting(pod, container, "runAsUser"), effective_setting(pod, container, "runAsGroup")
    supplemental_groups = (
        pod_context.supplemental_groups
        if pod_context.fs_group is None
        else (*pod_context.supplemental_groups, pod_context.fs_group)
    )
    if uid is None and gid is None and not supplemental_groups:
        return ProcessIdentity(None, None, None)
    if uid is not None and gid is None:
        gid = _primary_group(uid)
    return ProcessIdentity(uid, gid, tuple(dict.fromkeys(supplemental_groups)))


def _primary_group(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return 0


START_ERROR = "StartError"

_NOT_RUN = 128
_TERMINATION_LOG = "/dev/termination-log"
_CAP_SYS_RESOURCE = 1 << 24


def container_record(
    config: ContainerConfig, sandbox_id: str, cgroup: str, log_path: str, termination_log: str
) -> ContainerRecord:
    """The record of a new container.

    Errors: HostError where it has no command.
    """
    if not config.command and not config.args:
        raise HostError(
            "create container",
            config.container.name,
            "no command specified, and a plain process has no image",
        )
    score, identity, privileges = (
        config.settings.oom_score,
        process_identity(config.pod, config.container),
        container_privileges(config.container),
    )
    return ContainerRecord(
        sandbox_id=sandbox_id,
        hash=config.spec_hash,
        argv=(*config.command, *config.args),
        env=dict(config.env),
        cwd=config.working_dir,
        log=log_path,
        cgroup=cgroup,
        oom_score_adj=None if score is None else score.adj,
        uid=identity.uid,
        gid=identity.gid,
        groups=identity.groups,
        termination_log=termination_log,
        created_ns=time.time_ns(),
        capabilities=None if privileges.capabilities is None else tuple(sorted(privileges.capabilities)),
        no_new_privs=privileges.no_new_privs,
        stop_signal=_signal_number(config.stop_signal) if config.stop_signal else 0,
    )


def _signal_number(name: str) -> int:
    """The number of a signal, in Kubernetes' notation: `SIGINT`, `SIGRTMIN+3`, `SIGRTMAX-1`.

    Errors: HostError.
    """
    base, sign, supplemental_groups = name.partition("+") if "+" in name else name.partition("-")
    base_number = getattr(signal, base, None) if base.startswith("SIG") and base[3:].isalnum() else None
    if base_number is None or (
        sign and not (base in ("SIGRTMIN", "SIGRTMAX") and supplemental_groups.isdecimal())
    ):
        raise HostError("stop by", name, "there is no such signal")
    number = int(base_number) + int(f"{sign}{supplemental_groups}" if sign else 0)
    if not 0 < number <= signal.SIGRTMAX:
        raise HostError("stop by", name, "there is no such signal")
    return number


def termination_log_path(config: ContainerConfig) -> str:
    """The host file that is mounted as the container's termination log; empty: none.

    It is the last mount there: one before it is a volume of the pod, which may be a file that its user cannot read.
    """
    path = config.container.termination_message_path or _TERMINATION_LOG
    return next((mount.host_path for mount in reversed(config.mounts) if mount.container_path == path), "")


def container_facts(
    id_: ContainerId,
    record: ContainerRecord,
    start_record: StartRecord | None,
    exit_record: ExitRecord | None,
) -> RuntimeContainerStatus:
    """The status of a container."""
    status = RuntimeContainerStatus(
        id=str(id_),
        name=id_.name,
        attempt=id_.attempt,
        phase=ContainerPhase.CREATED if start_record is None else ContainerPhase.RUNNING,
        sandbox_id=record.sandbox_id,
        spec_hash=record.hash,
        created_ns=record.created_ns,
        started_ns=start_record.started_ns if start_record is not None else 0,
        log_path=record.log,
        cgroup=record.cgroup,
    )
    if exit_record is None:
        return status
    has_not_run = exit_record.code == _NOT_RUN and bool(exit_record.error)
    reason = OOM_KILLED if exit_record.oom_killed else ERROR if exit_record.code else COMPLETED
    return replace(
        status,
        phase=ContainerPhase.EXITED,
        started_ns=0 if has_not_run else status.started_ns,
        finished_ns=exit_record.finished_ns,
        exit_code=exit_record.code,
        reason=START_ERROR if has_not_run else reason,
        message=exit_record.message or exit_record.error,
    )


def shim_spec(record: ContainerRecord, cgroups: CgroupFS) -> dict[str, Any]:
    """The input of a container's shim."""
    procs_files = cgroups.procs_files(record.cgroup)
    directories = [door.rpartition("/")[0] for door in procs_files]
    names = ("memory.events", "memory.oom_control")
    return {
        "argv": list(record.argv),
        "env": dict(record.env),
        "cwd": record.cwd,
        "uid": record.uid,
        "gid": record.gid,
        "groups": None if record.groups is None else list(record.groups),
        "capabilities": None if record.capabilities is None else list(record.capabilities),
        "no_new_privs": record.no_new_privs,
        "log": record.log,
        "procs_files": list(procs_files),
        "directories": directories,
        "oom_files": [f"{directory}/{name}" for directory in directories for name in names],
        "oom_score_adj": record.oom_score_adj,
        "termination_log": record.termination_log,
    }


def can_lower_oom_scores() -> bool:
    """Whether the agent may lower the oom_score_adj of processes."""
    for line in Path("/proc/self/status").read_text("ascii").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) & _CAP_SYS_RESOURCE)
    return False
