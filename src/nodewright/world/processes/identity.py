"""As whom a container runs: users and groups are those of this machine."""

import pwd
from typing import NamedTuple

from nodewright.core.security import setting
from nodewright.model.objects import Container, Pod
from nodewright.model.pod_settings import PodSecurityContext


class Identity(NamedTuple):
    """User, group and the other groups; None: those of the agent."""

    uid: int | None
    gid: int | None
    groups: tuple[int, ...] | None


def identity(pod: Pod, container: Container) -> Identity:
    """As whom to run: what the container says, else the pod, else the agent.

    Departs: a user of this machine has its own group where a container without one would have group 0, and of
             the other groups those alone that the pod names (`supplementalGroupsPolicy: Strict`).
    """
    whole = pod.spec.security_context or PodSecurityContext()
    uid, gid = setting(pod, container, "runAsUser"), setting(pod, container, "runAsGroup")
    more = (
        whole.supplemental_groups if whole.fs_group is None else (*whole.supplemental_groups, whole.fs_group)
    )
    if uid is None and gid is None and not more:
        return Identity(None, None, None)
    if uid is not None and gid is None:
        gid = _group_of(uid)
    return Identity(uid, gid, tuple(dict.fromkeys(more)))


def _group_of(uid: int) -> int:
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return 0
