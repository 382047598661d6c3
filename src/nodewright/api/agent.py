"""What the servers of an agent show and change; nobody is waited for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nodewright.agent.board import Board
from nodewright.agent.values import PodRecord, Seen, Stage
from nodewright.model.objects import RuntimeClass
from nodewright.model.running import ContainerFacts
from nodewright.render.running import NodeSheet
from nodewright.world.ports import Clock, ContainerRuntime


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent as its servers see it."""

    board: Board
    see: Callable[[Seen], None]
    """Takes what somebody asks for; it is decided on in its turn."""
    runtime: ContainerRuntime
    clock: Clock
    sheet: NodeSheet
    log_root: Path
    """Where logs are whose paths a runtime tells relative to their pod's directory."""
    runtimes: Callable[[], Mapping[str, RuntimeClass]] = dict
    """The RuntimeClasses that are known, by name."""

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self.board.mind.node.config.facts.name

    def pods(self, namespace: str | None = None) -> tuple[PodRecord, ...]:
        """The pods of a namespace, or all, by name; of several of one name the one that is to stay comes first."""
        found = (
            one
            for one in self.board.mind.pods.values()
            if namespace is None or (one.pod.metadata.namespace or "default") == namespace
        )
        return tuple(sorted(found, key=_order))

    def find(self, namespace: str, name: str) -> PodRecord | None:
        """The pod of that name; None: there is none."""
        return next((one for one in self.pods(namespace) if one.pod.metadata.name == name), None)

    def log_path(self, record: PodRecord, container: ContainerFacts) -> Path:
        """The file of a container's log."""
        meta = record.pod.metadata
        directory = f"{meta.namespace or 'default'}_{meta.name}_{meta.uid}"
        return self.log_root / directory / container.log_path


def _order(record: PodRecord) -> tuple[str, bool, bool, str]:
    return (
        record.pod.full_name,
        not record.is_wanted,
        record.stage in (Stage.REFUSED, Stage.ENDED),
        record.pod.uid,
    )
