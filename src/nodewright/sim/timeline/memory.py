"""The memory of a node over time: containers, pods, all pods, the node; who is at which limit; what is in swap."""

from collections.abc import Iterator

from nodewright.core.eviction import Process, kept_free_bytes
from nodewright.sim.timeline.agenda import Agenda, Emptied, Key, Order, Reached, Watch
from nodewright.sim.timeline.lines import NANO, Line
from nodewright.sim.timeline.setting import ContainerPart, Growth, PodPart, Scope, Setting

SYSTEM: Key = ("", "")


class Memory:
    """What uses how much memory, with all limits watched."""

    def __init__(self, setting: Setting, agenda: Agenda) -> None:
        self.setting = setting
        self._agenda = agenda
        self.parts: dict[Key, ContainerPart] = {}
        self.pods: dict[str, PodPart] = {one.uid: one for one in setting.pods}
        self.lines: dict[Key, Line] = {SYSTEM: Line(setting.system_bytes)}
        self.pod_lines: dict[str, Line] = {}
        self.rates: dict[Key, int] = {}
        """How fast each grows while it runs."""
        self._watches: dict[Line, list[Watch]] = {}
        for pod in setting.pods:
            for part in pod.containers:
                key = (pod.uid, part.name)
                self.parts[key], self.lines[key] = part, Line(part.used_bytes)
            self.pod_lines[pod.uid] = Line(sum(part.used_bytes for part in pod.containers))
        self.alive: set[Key] = set(self.lines)
        in_pods = setting.pods_other_bytes + sum(part.used_bytes for part in self.parts.values())
        self.all_pods, self.node = Line(in_pods), Line(in_pods + setting.system_bytes)
        kept = setting.assumed.kept_free_bytes
        self.ram_bytes = setting.memory_bytes - (
            kept_free_bytes(setting.memory_bytes) if kept is None else kept
        )
        """What processes can have of the node's memory."""
        self._set_limits()

    # ------------------------------------------------------------ what is used

    @property
    def usable_swap_bytes(self) -> int:
        """What the containers that run can have in swap together."""
        if not self.setting.swap_bytes:
            return 0
        allowed = sum(part.swap_bytes for key, part in self.parts.items() if key in self.alive)
        return min(allowed, self.setting.swap_bytes)

    def in_swap_bytes(self, now_ns: int) -> int:
        """What is in swap: what fits neither into memory nor into what all pods may have of it.

        It is no more than pods may have there.
        """
        if not self.setting.swap_bytes:
            return 0
        beyond = self.node.bytes_at(now_ns) - self.ram_bytes
        if self.setting.pods_limit_bytes is not None:
            beyond = max(beyond, self.all_pods.bytes_at(now_ns) - self.setting.pods_limit_bytes)
        return min(max(beyond, 0), self.usable_swap_bytes)

    def pods_capacity_bytes(self) -> int:
        """What all pods together can have."""
        limit = self.setting.pods_limit_bytes
        return self.setting.memory_bytes if limit is None else limit

    # ------------------------------------------------------------ what changes

    def grow(self, now_ns: int, growth: Growth) -> None:
        """From now on it grows like this; what does not run takes it up once it is started again."""
        key = (growth.pod, growth.container)
        self.rates[key] = growth.rate
        if key in self.alive:
            self._set(now_ns, key, rate=growth.rate, to_bytes=growth.to_bytes)

    def emptied(self, now_ns: int, event: Emptied) -> None:
        """Nothing is left of it, unless it has changed since that was foretold."""
        if self.lines[event.key].version == event.version:
            self._set(now_ns, event.key, rate=0, to_bytes=0)

    def end(self, now_ns: int, key: Key) -> int:
        """The container has ended; what that frees.

        Units: bytes.
        """
        if key not in self.alive:
            return 0
        stays = self.setting.system_bytes if key == SYSTEM else 0
        freed = self.lines[key].bytes_at(now_ns) - stays
        self._set(now_ns, key, rate=0, to_bytes=stays)
        if key == SYSTEM:
            # What has grown was one process; the others go on.
            return freed
        self.alive.discard(key)
        if self.setting.swap_bytes:
            self._limit_node(now_ns)
        return freed

    def restart(self, now_ns: int, key: Key) -> None:
        """The container runs again, with nothing at first, and grows as before."""
        self.alive.add(key)
        self._set(now_ns, key, rate=self.rates.get(key, 0), to_bytes=0)
        if self.setting.swap_bytes:
            self._limit_node(now_ns)

    def _set(self, now_ns: int, key: Key, *, rate: int, to_bytes: int | None) -> None:
        own = self.lines[key]
        by_rate = rate - own.rate
        by_nanobytes = 0 if to_bytes is None else to_bytes * NANO - own.nanobytes_at(now_ns)
        for line in self._lines_of(key):
            line.change(now_ns, by_nanobytes=by_nanobytes, by_rate=by_rate)
            for watch in self._watches.get(line, ()):
                self._foretell(now_ns, watch)
        empty_ns = own.empties_ns()
        if empty_ns is not None:
            self._agenda.add(empty_ns, Order.EMPTY, Emptied(key, own.version))

    def _lines_of(self, key: Key) -> tuple[Line, ...]:
        own = self.lines[key]
        if key == SYSTEM:
            return own, self.node
        return own, self.pod_lines[key[0]], self.all_pods, self.node

    # ------------------------------------------------------------ limits

    def watch(self, watch: Watch) -> None:
        """Tell the agenda when the limit is reached."""
        self._watches.setdefault(watch.line, []).append(watch)
        watch.swap_bytes = self.usable_swap_bytes if watch.counts_swap else 0
        self._foretell(0, watch)

    def is_due(self, now_ns: int, event: Reached) -> bool:
        """Whether the limit is reached now, and was not before."""
        watch = event.watch
        if event.version != watch.line.version or watch.is_above:
            return False
        watch.is_above = self.is_over(now_ns, watch)
        return watch.is_above

    @staticmethod
    def is_over(now_ns: int, watch: Watch) -> bool:
        """Whether the line is at its limit or above."""
        return watch.line.nanobytes_at(now_ns) >= watch.limit_bytes * NANO

    def _foretell(self, now_ns: int, watch: Watch) -> None:
        if watch.is_above and not self.is_over(now_ns, watch):
            watch.is_above = False
        at_ns = None if watch.is_above else watch.line.reaches_ns(watch.limit_bytes)
        if at_ns is not None:
            order = Order.LIMIT
            self._agenda.add(max(at_ns, now_ns), order, Reached(watch, watch.line.version))

    def _set_limits(self) -> None:
        setting = self.setting
        for key, part in self.parts.items():
            if part.limit_bytes is not None:
                limit = part.limit_bytes + part.swap_bytes
                self.watch(Watch(self.lines[key], limit, Scope.CONTAINER, key[1], key))
        for pod in setting.pods:
            if pod.limit_bytes is not None:
                limit = pod.limit_bytes + sum(part.swap_bytes for part in pod.containers)
                name = pod.claim.pod.full_name
                self.watch(Watch(self.pod_lines[pod.uid], limit, Scope.POD, name, (pod.uid, "")))
        if setting.pods_limit_bytes is not None:
            limit = setting.pods_limit_bytes
            self.watch(Watch(self.all_pods, limit, Scope.PODS, "all pods", counts_swap=True))
        self.watch(Watch(self.node, self.ram_bytes, Scope.NODE, "the node", counts_swap=True))

    def _limit_node(self, now_ns: int) -> None:
        """Swap that a container could have is no room for others: with who runs, the node's limit changes."""
        for watch in (*self._watches[self.node], *self._watches.get(self.all_pods, ())):
            if watch.counts_swap:
                watch.swap_bytes = self.usable_swap_bytes
                self._foretell(now_ns, watch)

    # ------------------------------------------------------------ who could end

    def processes(self, now_ns: int, watch: Watch) -> list[Process]:
        """Those among whom the kernel chooses when this limit is reached, in the order of pods and containers."""
        found = [self._process(now_ns, key) for key in self._below(watch) if key in self.alive]
        grown = self.lines[SYSTEM].bytes_at(now_ns) - self.setting.system_bytes
        if watch.scope is Scope.NODE and grown > 0 and SYSTEM in self.alive:
            # Of what runs beside the pods only what has grown is known to be one process.
            found.append(Process(pod="", used_bytes=grown))
        return found

    def _process(self, now_ns: int, key: Key) -> Process:
        part = self.parts[key]
        used = max(self.lines[key].bytes_at(now_ns) - part.file_bytes, 0)
        return Process(pod=key[0], container=key[1], oom_score_adj=part.oom_score_adj, used_bytes=used)

    def _below(self, watch: Watch) -> Iterator[Key]:
        if watch.key is None:
            return iter(self.parts)
        uid, name = watch.key
        return (key for key in self.parts if key[0] == uid and name in ("", key[1]))
