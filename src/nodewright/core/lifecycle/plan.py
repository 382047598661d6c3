"""What a pod needs next: which containers start, which end, whether a new sandbox is due."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from nodewright.core.lifecycle.restarts import begins_anew, init_failed, may_start
from nodewright.model.objects import Container, Pod
from nodewright.model.running import ContainerFacts, ContainerPhase, PodFacts
from nodewright.values.fnv import fnv1a_32


class Health(StrEnum):
    """What the probes of a container come to; one that has none has no health."""

    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"


class Probed(msgspec.Struct, frozen=True):
    """The results of probes, by the container's id."""

    liveness: Mapping[str, Health] = {}
    startup: Mapping[str, Health] = {}
    readiness: Mapping[str, Health] = {}


UNPROBED = Probed()


class KillReason(StrEnum):
    """Why a container has to end though its pod goes on."""

    LIVENESS = "liveness"
    STARTUP = "startup"
    CHANGED = "changed"
    UNKNOWN = "unknown"


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    """A container that has to end."""

    container: ContainerFacts
    reason: KillReason
    is_init: bool = False
    restarts: bool = True


class PodPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be done for a pod, in this order."""

    ends: bool = False
    """All that runs in the pod has to end."""
    sandbox_attempt: int | None = None
    """A new sandbox is due, with this number; None: the one that is there serves, or none is wanted."""
    sandbox_id: str = ""
    """The sandbox that is there."""
    kills: tuple[Kill, ...] = ()
    removes: tuple[ContainerFacts, ...] = ()
    """Containers to be ended at once and removed, because the pod begins anew."""
    starts: tuple[str, ...] = ()
    """Names of containers to be started: init containers in order, then the others."""
    is_initialized: bool = False

    @property
    def is_nothing(self) -> bool:
        """Whether all is as it should be."""
        return not (self.ends or self.kills or self.removes or self.starts) and self.sandbox_attempt is None


def plan(pod: Pod, facts: PodFacts | None, probed: Probed = UNPROBED) -> PodPlan:
    """What the pod needs next; nothing is done about back-offs here, they delay starts.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, computePodActions.
    Departs: no ephemeral containers; resizing in place is planned apart.
    """
    facts = facts or PodFacts(uid=pod.uid, namespace=pod.metadata.namespace, name=pod.metadata.name)
    attempt, sandbox_id = _sandbox(facts)
    newest = _newest(pod, facts)
    if begins_anew(pod, newest.values()):
        return PodPlan(sandbox_id=sandbox_id, removes=_all_reset(pod, facts))
    if attempt is not None:
        return _from_the_start(
            pod, newest, PodPlan(ends=True, sandbox_attempt=attempt, sandbox_id=sandbox_id)
        )
    done = _init_containers(pod, newest, probed, PodPlan(sandbox_id=sandbox_id))
    if done.ends or not done.is_initialized:
        return done
    return _main_containers(pod, newest, probed, done)


def spec_hash(container: Container) -> str:
    """Tells whether a container has to be made anew: only another image does that.

    Follows: v1.36, kubelet/container/helpers.go, HashContainer.

    >>> spec_hash(Container(name="app", image="a")) == spec_hash(Container(name="app", image="b"))
    False
    """
    text = f"{container.name}\0{container.image}"
    return f"{fnv1a_32(text):08x}"


def _sandbox(facts: PodFacts) -> tuple[int | None, str]:
    """The number of the sandbox that is due, if one is, and the id of the newest there is.

    Follows: v1.36, kubelet/kuberuntime/util/util.go, PodSandboxChanged.
    Departs: a sandbox without an address is as good as another: whoever gives none says so by its readiness.
    """
    if not facts.sandboxes:
        return 0, ""
    newest = facts.sandboxes[0]
    if not newest.is_ready or sum(one.is_ready for one in facts.sandboxes) > 1:
        return newest.attempt + 1, newest.id
    return None, newest.id


def _newest(pod: Pod, facts: PodFacts) -> dict[str, ContainerFacts]:
    names = (one.name for one in (*pod.spec.init_containers, *pod.spec.containers))
    return {name: found for name in names if (found := facts.newest(name)) is not None}


def _from_the_start(pod: Pod, newest: Mapping[str, ContainerFacts], wanted: PodPlan) -> PodPlan:
    """The pod in a new sandbox, unless it is done."""
    never = pod.spec.restart_policy == "Never"
    if never and wanted.sandbox_attempt and newest:
        return replace(wanted, sandbox_attempt=None)
    starts = tuple(
        one.name
        for one in pod.spec.containers
        if not (_runs_once(one, pod) and _has_succeeded(newest.get(one.name)))
    )
    if not starts and _any_main_created(pod, newest):
        return replace(wanted, sandbox_attempt=None)
    if pod.spec.init_containers:
        starts = (pod.spec.init_containers[0].name,)
    return replace(wanted, starts=starts)


def _runs_once(container: Container, pod: Pod) -> bool:
    return (container.restart_policy or pod.spec.restart_policy) == "OnFailure"


def _has_succeeded(facts: ContainerFacts | None) -> bool:
    return facts is not None and facts.phase is ContainerPhase.EXITED and facts.exit_code == 0


def _any_main_created(pod: Pod, newest: Mapping[str, ContainerFacts]) -> bool:
    known = (newest.get(one.name) for one in pod.spec.containers)
    return any(one is not None and one.phase is not ContainerPhase.UNKNOWN for one in known)


class _InitWalk:
    """Init containers from the last to the first: the first one met decides what comes next.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_container.go, computeInitContainerActions.
    """

    def __init__(self, pod: Pod, newest: Mapping[str, ContainerFacts], probed: Probed) -> None:
        self.pod, self.newest, self.probed = pod, newest, probed
        self.starts: list[int] = []
        self.kills: list[Kill] = []
        self.fails = False
        self.is_done = any(
            (one := newest.get(each.name)) is not None
            and one.phase in (ContainerPhase.CREATED, ContainerPhase.RUNNING)
            for each in pod.spec.containers
        )

    def walk(self) -> None:
        was_done = self.is_done
        for place in reversed(range(len(self.pod.spec.init_containers))):
            container = self.pod.spec.init_containers[place]
            facts = self.newest.get(container.name)
            if facts is None:
                # Its end may have been forgotten; a sidecar has to run all the same.
                if was_done and container.is_sidecar:
                    self.starts.append(place)
                continue
            if was_done and not container.is_sidecar:
                continue
            self._look(place, container, facts, was_done=was_done)
            if self.fails:
                return
            was_done = True
        if not was_done:
            self.starts.append(0)

    def _look(self, place: int, container: Container, facts: ContainerFacts, *, was_done: bool) -> None:
        match facts.phase:
            case ContainerPhase.CREATED:
                self.starts.append(place)
            case ContainerPhase.RUNNING:
                if container.is_sidecar:
                    self._sidecar_runs(place, container, facts, was_done=was_done)
            case ContainerPhase.EXITED:
                self._has_exited(place, container, facts)
            case ContainerPhase.UNKNOWN:
                policy = container.restart_policy or self.pod.spec.restart_policy
                if policy == "Never":
                    self.fails = True
                else:
                    self._again(place, facts, KillReason.UNKNOWN)

    def _sidecar_runs(
        self, place: int, container: Container, facts: ContainerFacts, *, was_done: bool
    ) -> None:
        if container.startup_probe is not None:
            startup = self.probed.startup.get(facts.id)
            if startup is Health.FAILURE:
                self._again(place, facts, KillReason.STARTUP)
            if startup is not Health.SUCCESS:
                return
        self._has_initialized(place, only_first=was_done)
        if facts.spec_hash and facts.spec_hash != spec_hash(container):
            self._again(place, facts, KillReason.CHANGED)
        elif container.liveness_probe and self.probed.liveness.get(facts.id) is Health.FAILURE:
            self._again(place, facts, KillReason.LIVENESS)

    def _has_exited(self, place: int, container: Container, facts: ContainerFacts) -> None:
        if container.is_sidecar:
            self.starts.append(place)
        elif not init_failed(facts):
            self._has_initialized(place, only_first=False)
        elif may_start(self.pod, container, facts):
            self.starts.append(place)
        else:
            self.fails = True

    def _has_initialized(self, place: int, *, only_first: bool) -> None:
        if place == len(self.pod.spec.init_containers) - 1:
            self.is_done = True
        elif not only_first:
            self.starts.append(place + 1)

    def _again(self, place: int, facts: ContainerFacts, reason: KillReason) -> None:
        self.kills.append(Kill(container=facts, reason=reason, is_init=True))
        self.starts.append(place)


def _init_containers(
    pod: Pod, newest: Mapping[str, ContainerFacts], probed: Probed, wanted: PodPlan
) -> PodPlan:
    if not pod.spec.init_containers:
        return replace(wanted, is_initialized=True)
    seen = _InitWalk(pod, newest, probed)
    seen.walk()
    if seen.fails:
        return replace(wanted, ends=True)
    names = tuple(pod.spec.init_containers[place].name for place in reversed(seen.starts))
    return replace(wanted, starts=names, kills=tuple(seen.kills), is_initialized=seen.is_done)


def _main_containers(
    pod: Pod, newest: Mapping[str, ContainerFacts], probed: Probed, wanted: PodPlan
) -> PodPlan:
    keeps, starts, kills = 0, [], []
    for container in pod.spec.containers:
        facts = newest.get(container.name)
        if facts is None or facts.phase is not ContainerPhase.RUNNING:
            if may_start(pod, container, facts):
                starts.append(container.name)
                if facts is not None and facts.phase is ContainerPhase.UNKNOWN:
                    kills.append(Kill(container=facts, reason=KillReason.UNKNOWN))
            continue
        reason = _unfit(container, facts, probed)
        if reason is None:
            keeps += 1
            continue
        policy = container.restart_policy or pod.spec.restart_policy
        restarts = reason is KillReason.CHANGED or policy != "Never"
        if restarts:
            starts.append(container.name)
        kills.append(Kill(container=facts, reason=reason, restarts=restarts))
    if not keeps and not starts:
        # Sidecars alone do not keep a pod alive.
        return replace(wanted, ends=True, starts=(), kills=(*wanted.kills, *kills))
    return replace(wanted, starts=(*wanted.starts, *starts), kills=(*wanted.kills, *kills))


def _unfit(container: Container, facts: ContainerFacts, probed: Probed) -> KillReason | None:
    """Why a container that runs has to end."""
    if facts.spec_hash and facts.spec_hash != spec_hash(container):
        return KillReason.CHANGED
    if probed.liveness.get(facts.id) is Health.FAILURE:
        return KillReason.LIVENESS
    if probed.startup.get(facts.id) is Health.FAILURE:
        return KillReason.STARTUP
    return None


def _all_reset(pod: Pod, facts: PodFacts) -> tuple[ContainerFacts, ...]:
    """All containers that are held, those whose end asked for it last.

    Follows: v1.36, kubelet/kuberuntime/kuberuntime_manager.go, getContainersToReset.
    """
    sources: list[ContainerFacts] = []
    targets: list[ContainerFacts] = []
    for group in (pod.spec.containers, pod.spec.init_containers):
        for container in group:
            for one in facts.containers:
                if one.name == container.name:
                    has_asked = begins_anew(pod, (one,))
                    (sources if has_asked else targets).append(one)
    return (*targets, *sources)
