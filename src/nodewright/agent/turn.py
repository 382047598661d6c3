"""One turn of the agent's loop while it is being thought: the mind as it becomes, and what is to be done."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from nodewright.agent.outcome import Decided, Keeping, Stepped
from nodewright.agent.values import (
    CancelWork,
    Mind,
    Now,
    PodRecord,
    Rules,
    Stage,
    Tell,
    TuneContainer,
    TuneStart,
    Work,
    WriteGroups,
)
from nodewright.core.cgroups.container import containers_settings
from nodewright.core.cgroups.facts import ContainerSettings, MemoryFrom, RunsOn
from nodewright.core.cgroups.files import File, container_files
from nodewright.core.cgroups.plan import Group, Level, Tree, level_groups, pod_groups
from nodewright.core.cgroups.rules import CgroupRules
from nodewright.core.eviction import Eviction
from nodewright.core.lifecycle import Circumstances, Health, Probed, ProbeKind, pod_status
from nodewright.core.requests import qos_class
from nodewright.model.objects import Pod, PodStatus
from nodewright.model.running import ContainerFacts, ContainerPhase
from nodewright.node.actions import AskPlugin
from nodewright.node.cgroups import PlacedPod, cgroup_rules, cgroup_tree, groups_of_pod, places_of
from nodewright.node.config import NodeConfig
from nodewright.node.events import Event, PodGone
from nodewright.node.state import as_counted
from nodewright.node.step import Step, step
from nodewright.values.instant import Instant
from nodewright.world.statuses import REJECTED


class Turn:
    """The mind while it changes; nothing outside sees it before it is done."""

    def __init__(self, mind: Mind, now: Now, rules: Rules) -> None:
        self.before, self.now, self.rules = mind, now, rules
        self.node, self.eviction, self.deferred = mind.node, mind.eviction, mind.deferred
        self.pods = dict(mind.pods)
        self.asked = dict(mind.asked)
        self.leaving, self.evictions = dict(mind.leaving), mind.evictions
        self.works: list[Work] = []
        self.evicted: list[Eviction] = []
        self.stepped: list[Stepped] = []
        self.kept: dict[str, PodRecord | None] = {}
        """Pods of which something that lasts has changed."""
        self.unheard, self.orphans = mind.unheard, dict(mind.orphans)
        self.touched: set[str] = set()
        """The uids of pods of which something was learnt or decided."""
        self.to_tune: set[str] = set()
        """The uids of pods that were started on holdings that may have changed since."""

    def step(self, event: Event) -> Step:
        """The node's own decision on an event."""
        done = step(self.node, event)
        self.node = done.state
        # Before a plugin has answered, nothing has happened.
        if not any(isinstance(action, AskPlugin) for action in done.actions):
            self.stepped.append(Stepped(event, done))
        return done

    def tell(self, uid: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Say something about a pod."""
        self.works.append(Tell(uid=uid, is_warning=warning, reason=reason, message=message))

    def put(self, record: PodRecord) -> PodRecord:
        """The record takes its place, with a status that suits it; what is to outlive us is kept."""
        old = self.pods.get(record.pod.uid)
        record = replace(record, status=self._status(record))
        self.pods[record.pod.uid] = record
        self.touched.add(record.pod.uid)
        if old is None or _lasting(old) != _lasting(record):
            self.kept[record.pod.uid] = record
        return record

    def cancel(self, uid: str) -> None:
        """Stop what is being done for a pod."""
        self.works.append(CancelWork(uid))

    def gone(self, record: PodRecord) -> None:
        """Nothing of a pod runs any more: what it held is free."""
        self.step(PodGone(record.pod.uid))

    def forget(self, uid: str) -> None:
        """There is nothing left of a pod."""
        record = self.pods.pop(uid)
        if record.stage is Stage.REFUSED:
            # It may come again, as if it had never been there; journals say so.
            self.step(PodGone(uid))
        self.kept[uid] = None

    def decided(self) -> Decided:
        """The turn's end: containers learn of shared CPUs that changed, groups of new neighbours, files of holdings."""
        # What nobody holds any more the next decision would collect anyway; here others can have it at once.
        self.node = self.node.collected()
        groups = self.before.groups
        pods_changed = self.node.pods is not self.before.node.pods
        holdings_changed = self.node.held is not self.before.node.held
        if pods_changed or holdings_changed or not groups:
            rules, tree = _arranged(_Same(self.node.config))
            groups = level_groups(tree, rules, tuple(self.node.pods.values()))
            if groups != self.before.groups:
                self.works.insert(0, WriteGroups(groups))
        held, before = self.node.held, self.before.node.held
        places_changed = holdings_changed and (held.cpu != before.cpu or held.memory != before.memory)
        if places_changed or self.to_tune:
            # Whoever may have been given less is told before anybody starts on what became free.
            self.works[0:0] = self._retuned(self.pods if places_changed else self.to_tune)
        mind = replace(
            self.before,
            node=self.node,
            pods=self.pods,
            deferred=self.deferred,
            asked={pod.uid: self.asked[pod.uid] for _, pod in self.deferred if pod.uid in self.asked},
            eviction=self.eviction,
            evictions=self.evictions,
            leaving={uid: until_ns for uid, until_ns in self.leaving.items() if self._is_ending(uid)},
            groups=groups,
            unheard=self.unheard,
            orphans=self.orphans,
        )
        keeping = Keeping(
            node=self.node,
            stepped=tuple(self.stepped),
            pods=self.kept,
            deferred=self.deferred if self.deferred != self.before.deferred else None,
            are_holdings_new=holdings_changed,
        )
        return Decided(mind, keeping, tuple(self.works), tuple(self.evicted))

    def groups_of(self, record: PodRecord) -> tuple[tuple[Group, ...], Mapping[str, ContainerSettings]]:
        """The groups of a pod and its containers, and the settings of the latter."""
        rules, tree = _arranged(_Same(self.node.config))
        pod = as_counted(record.pod, self.node.config)
        groups = groups_of_pod(self.node, PlacedPod(record.pod, record.memory), tree, rules)
        return tuple(groups), containers_settings(pod, rules, places_of(pod, self.node, record.memory))

    def pod_cgroup(self, pod: Pod) -> str:
        """The path of the pod's group; empty where pods have none."""
        return pod_cgroup(pod, self.node.config)

    def _is_ending(self, uid: str) -> bool:
        return uid in self.pods and self.pods[uid].stage is Stage.ENDING

    def _retuned(self, uids: Iterable[str]) -> list[Work]:
        """What containers that run are to be told, because who holds what has changed."""
        works: list[Work] = []
        for uid in tuple(uids):
            record = self.pods.get(uid)
            if record is None or record.stage is not Stage.ACTIVE or uid not in self.node.pods:
                continue
            if record.resizing.is_in_progress and record.is_busy:
                # It is looked at again as soon as the machine was told, or was not.
                continue
            tunes, starts = self.tunes_of(record), self._tunes_of_starts(record)
            told = {**record.told, **{one.container_id: one.files for one in tunes}}
            if record.resizing.is_in_progress:
                # Its group comes before other amounts; CPUs wait for nothing: they may be somebody else's by now.
                tunes = tuple(_moves(tunes, record.told))
                told = {**record.told, **{one.container_id: _after_move(record.told, one) for one in tunes}}
            if tunes or starts:
                starting = {**record.starting, **{one.container: one.files for one in starts}}
                self.pods[uid] = replace(record, told=told, starting=starting)
                works += (*tunes, *starts)
        return works

    def tunes_of(self, record: PodRecord) -> tuple[TuneContainer, ...]:
        """What the containers of a pod that run have not been told yet."""
        files, settings = self._held_to(record)
        works = []
        for facts in record.facts.containers if record.facts is not None else ():
            # Those that are just being started are not known by their ids yet.
            is_known = facts.id in record.told or facts.name not in record.starting
            if facts.phase is not ContainerPhase.RUNNING or facts.name not in files or not is_known:
                continue
            mine = files[facts.name]
            if record.told.get(facts.id) != mine:
                works.append(
                    TuneContainer(
                        uid=record.pod.uid,
                        container_id=facts.id,
                        settings=settings[facts.name],
                        files=mine,
                    )
                )
        return tuple(works)

    def _tunes_of_starts(self, record: PodRecord) -> tuple[TuneStart, ...]:
        """What has changed for the containers of a pod that are just being started."""
        if not record.starting:
            return ()
        files, settings = self._held_to(record)
        return tuple(
            TuneStart(uid=record.pod.uid, container=name, settings=settings[name], files=files[name])
            for name, said in record.starting.items()
            if said != files[name]
        )

    def _held_to(
        self, record: PodRecord
    ) -> tuple[dict[str, tuple[File, ...]], Mapping[str, ContainerSettings]]:
        """By name what the containers of a pod are to be held to: as files, and as amounts."""
        rules, _ = _arranged(_Same(self.node.config))
        pod = as_counted(record.pod, self.node.config)
        settings = containers_settings(pod, rules, places_of(pod, self.node, record.memory))
        return {name: container_files(mine, rules) for name, mine in settings.items()}, settings

    def _status(self, record: PodRecord) -> PodStatus:
        """What the pod says of itself now.

        Follows: v1.36, kubelet/kubelet.go, rejectPod: one that was turned away says nothing of its containers.
        """
        if record.stage is Stage.REFUSED and record.override is not None:
            return PodStatus(
                phase=record.override.phase,
                reason=record.override.reason,
                message=REJECTED + record.override.message,
                qos_class=str(qos_class(record.pod)),
                start_time=record.status.start_time or str(Instant(self.now.wall_ns).whole_second),
            )
        return pod_status(
            record.pod,
            record.facts,
            record.status,
            Circumstances(
                now=Instant(self.now.wall_ns),
                probed=probed(record),
                waiting=record.held_back,
                is_terminal=record.stage is Stage.ENDED,
                is_static=record.source.is_static,
                override=record.override,
                host_ip=self.rules.host_ip,
                resizing=record.resizing,
                unhooked=frozenset(one.id for one in unhooked(record)),
            ),
        )


def pod_cgroup(pod: Pod, config: NodeConfig) -> str:
    """The path of a pod's group at the node; empty where pods have none."""
    rules, tree = _arranged(_Same(config))
    found = pod_groups(as_counted(pod, config), tree, rules, {}, has_exclusive_cpus=False)
    return next((one.path for one in found if one.level is Level.POD), "")


def _moves(tunes: Iterable[TuneContainer], told: Mapping[str, tuple[File, ...]]) -> Iterator[TuneContainer]:
    """Of what containers are to be told, the CPUs and NUMA nodes that they have not been told yet."""
    for one in tunes:
        before = {file.name: file.value for file in told.get(one.container_id, ())}
        places = (file for file in one.files if isinstance(file.because, RunsOn | MemoryFrom))
        files = tuple(file for file in places if file.value != before.get(file.name))
        if files:
            settings = ContainerSettings(cpus=one.settings.cpus, mems=one.settings.mems)
            yield replace(one, settings=settings, files=files)


def _after_move(told: Mapping[str, tuple[File, ...]], move: TuneContainer) -> tuple[File, ...]:
    """What a container has been told in all once it was moved."""
    files = (*told.get(move.container_id, ()), *move.files)
    return tuple({file.name: file for file in files}.values())


class _Same(NamedTuple):
    """A configuration that is itself and equal to no other: it never changes while the agent runs."""

    config: NodeConfig

    def __hash__(self) -> int:
        return id(self.config)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.config is self.config


@lru_cache(maxsize=4)
def _arranged(same: _Same) -> tuple[CgroupRules, Tree]:
    """What values in the node's groups depend on, and how the groups are arranged."""
    return cgroup_rules(same.config), cgroup_tree(same.config)


def probed(record: PodRecord) -> Probed:
    """What the probes of a pod come to, by the container's id."""
    results: dict[ProbeKind, dict[str, Health]] = {kind: {} for kind in ProbeKind}
    for (_, kind), state in record.probes.items():
        if state.result is not None:
            results[kind][state.container_id] = state.result
    return Probed(
        liveness=results[ProbeKind.LIVENESS],
        startup=results[ProbeKind.STARTUP],
        readiness=results[ProbeKind.READINESS],
    )


def unhooked(record: PodRecord) -> tuple[ContainerFacts, ...]:
    """The containers that run and whose postStart hooks are under way, or were cut off when an agent ended.

    Departs: the kubelet takes any container that runs when it begins for one whose hook has run; its documentation
        promises that a hook is delivered at least once, and so it is here.
    """
    if record.facts is None or not record.hooks:
        return ()
    newest = (record.facts.newest(name) for name in record.hooks)
    return tuple(
        one
        for one in newest
        if one is not None
        and one.phase is ContainerPhase.RUNNING
        and one.attempt == record.hooks[one.name]
        and has_hook(record.pod, one.name)
    )


def has_hook(pod: Pod, name: str) -> bool:
    """Whether the container has a hook after its start."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return any(one.name == name and "postStart" in (one.lifecycle or {}) for one in containers)


def _lasting(record: PodRecord) -> object:
    """What of a record is kept in a file: little that changes often."""
    return (
        record.pod,
        record.stage,
        record.status,
        record.override,
        record.grace_period_s,
        record.is_wanted,
        record.waits_for,
        record.makes_way,
        record.back_offs,
        record.has_started,
        record.resizing,
        record.written_as,
        record.hooks,
    )
