"""The parts of an agent that its servers use: state, events, requests to the loop; no access blocks."""

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from nodewright.agent.host.ports import ContainerRuntime, ProcessStreams, StreamingServer
from nodewright.agent.observe.event_recorder import EventRecorder
from nodewright.agent.serving.api_objects import NodeSystemInfo
from nodewright.agent.state.agent_state import PodRecord, PodStage
from nodewright.agent.state.observations import Observation
from nodewright.cluster.tasks.timing import Clock
from nodewright.engine.core.claims.prepared_claims import PreparedClaim
from nodewright.model.kubernetes.cluster_objects import RuntimeClass
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.runtime_status import RuntimeContainerStatus


class AgentInterface(msgspec.Struct, frozen=True, kw_only=True):
    """What the servers of an agent use of it."""

    event_recorder: EventRecorder
    observe: Callable[[Observation], None]
    """Queues a request for the agent's loop, which decides on it."""
    runtime: ContainerRuntime
    streaming_server: StreamingServer | None = None
    """None: the runtime has none."""
    process_streams: ProcessStreams | None = None
    """The streams of a runtime without a streaming server."""
    clock: Clock
    system_info: NodeSystemInfo
    log_root: Path
    """The root of log files; runtimes report paths relative to a pod's directory in it."""
    runtime_classes: Callable[[], Mapping[str, RuntimeClass]] = dict
    """The known RuntimeClasses, by name."""
    storage_error: Callable[[], str] = str
    """Why the agent's state cannot be written at the moment; empty: it can."""
    deletion_error: Callable[[], str] = str
    """Why deletions cannot be stored at the moment, which need no space; empty: they can."""
    claims_of_container: Callable[[Pod, Container], tuple[PreparedClaim, ...]] = lambda _pod, _container: ()
    """The resource claims that a container uses."""
    pod_resources_calls: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """The calls of PodResources by version, and by `requests` or `errors` with the method."""
    metric_sources: list[Callable[[], str]] = msgspec.field(default_factory=list)
    """Further parts of the metrics page, such as those of certificates."""

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self.event_recorder.state.node.config.facts.name

    def pods(self, namespace: str | None = None) -> tuple[PodRecord, ...]:
        """The pods of a namespace, or all, by name; of several with one name the one in its source comes first."""
        records = (
            record
            for record in self.event_recorder.state.pods.values()
            if namespace is None or (record.pod.metadata.namespace or "default") == namespace
        )
        return tuple(sorted(records, key=_order))

    def find_pod(self, namespace: str, name: str) -> PodRecord | None:
        """The pod with this name, or None."""
        return next((record for record in self.pods(namespace) if record.pod.metadata.name == name), None)

    def log_path(self, record: PodRecord, container: RuntimeContainerStatus) -> Path:
        """The log file of a container."""
        meta = record.pod.metadata
        directory = f"{meta.namespace or 'default'}_{meta.name}_{meta.uid}"
        return self.log_root / directory / container.log_path


def _order(record: PodRecord) -> tuple[str, bool, bool, str]:
    return (
        record.pod.full_name,
        not record.is_in_source,
        record.stage in (PodStage.REJECTED, PodStage.TERMINATED),
        record.pod.uid,
    )
