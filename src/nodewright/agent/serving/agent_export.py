"""The agent's node as an export: computed when a client asks, numbered as the exporter beside a kubelet does."""

import asyncio

from msgspec.structs import replace

from nodewright.agent.serving.agent_interface import ServedAgent
from nodewright.cluster.exports.export_routes import (
    ExportFeed,
    ExportReading,
    ExportRoutes,
    ServedExport,
    SourceReading,
)
from nodewright.cluster.serving.routes import AuthorizedRoute
from nodewright.documents.profiles.node_export import SourceState
from nodewright.engine.node.node_state import NodeState
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.predict.replay.scenario_journal import current_profile


def agent_export_routes(agent: ServedAgent, profile: NodeProfile) -> tuple[AuthorizedRoute, ...]:
    """The routes of an agent's export; ``profile`` is its node without pods."""
    return ExportRoutes(AgentExport(agent, profile)).authorized_routes()


class AgentExport:
    """Fulfils `ExportProvider` with the present state of the agent's node."""

    def __init__(self, agent: ServedAgent, profile: NodeProfile) -> None:
        """``profile`` is the node without pods."""
        self._agent, self._profile = agent, profile
        self._feed = ExportFeed(agent.clock)
        self._node: NodeState | None = None

    @property
    def digest(self) -> str:
        """The digest of the current profile."""
        return self._updated().digest

    @property
    def error(self) -> str:
        """Empty: the agent always knows its node."""
        return self._updated().error

    def current(self) -> ServedExport | None:
        """The export as of now."""
        return self._updated().current()

    async def wait_after(self, generation: int, timeout_s: float) -> bool:
        """Waits until there is an export of a later generation; False at the timeout and when the agent ends."""
        recorder = self._agent.event_recorder
        try:
            async with asyncio.timeout(timeout_s):
                while self._updated().generation <= generation:
                    if recorder.is_closed:
                        return False
                    await recorder.change_signal().wait()
        except TimeoutError:
            return False
        return True

    def _updated(self) -> ExportFeed:
        """The feed with the present state."""
        node = self._agent.event_recorder.state.node
        if node is not self._node:
            self._node = node
            profile, facts = current_profile(self._profile, node), node.config.facts
            spec = replace(profile.spec, labels=dict(facts.labels), taints=facts.taints)
            metadata = replace(profile.metadata, name=facts.name)
            now_s = self._agent.clock.monotonic_s()
            agent = SourceReading(name="agent", state=SourceState.READ, read_s=now_s, is_watched=True)
            self._feed.publish(
                ExportReading(profile=replace(profile, metadata=metadata, spec=spec), sources=(agent,))
            )
        return self._feed
