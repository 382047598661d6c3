"""An agent that dies, is started again and loses its API server now and then; what must never be is noted."""

import asyncio

from tests.support.agent_bench import FakeEventRecorder
from tests.support.agent_restarts import AgentRestarts
from tests.support.fake_clock import settle
from tests.support.fault_injection import FaultInjector
from tests.support.memory_cluster import NODES, TERMINAL_PHASES, MemoryCluster

from nodewright.agent.decide.iteration import IterationResult
from nodewright.agent.member.pod_informer import PodInformer
from nodewright.agent.member.pod_status_writer import PodStatusWriter
from nodewright.agent.runtimes.simulated import ContainerScript
from nodewright.agent.state.agent_state import AgentState, PodSource
from nodewright.agent.store.agent_store import StoreSettings
from nodewright.cluster.client.reflector import Reflector
from nodewright.model.kubernetes.node_profile import NodeProfile
from nodewright.model.kubernetes.runtime_status import ContainerPhase


class PublishedState(FakeEventRecorder):
    """Passes the published state on to the writer of statuses."""

    def __init__(self, state: AgentState) -> None:
        super().__init__()
        self.state = state
        self.writer: PodStatusWriter | None = None

    def publish(self, result: IterationResult) -> None:
        """Keeps the state."""
        super().publish(result)
        self.state = result.state
        if self.writer is not None:
            self.writer.publish(result)


class ClusterRestarts(AgentRestarts):
    """One machine in a cluster, and the agents on it, one after the other."""

    def __init__(
        self,
        profile: NodeProfile,
        scripts: dict[str, ContainerScript],
        faults: list[FaultInjector],
        seed: int,
    ) -> None:
        super().__init__(profile, scripts, faults)
        self.cluster = MemoryCluster(self.clock, seed)
        self.cluster.on_end = self._check_end
        self.cluster.put(f"{NODES}/node1", {"metadata": {"name": "node1", "uid": "node"}})
        self.informer: PodInformer | None = None
        self._cluster_tasks: list[asyncio.Task[None]] = []
        self._operations_before = 0
        self._held_uids = set[str]()
        self._gone_uids = set[str]()

    async def stop(self) -> None:
        """No agent runs any more."""
        for task in self._cluster_tasks:
            task.cancel()
        await asyncio.gather(*self._cluster_tasks, return_exceptions=True)
        self._cluster_tasks = []
        await super().stop()

    async def _start(self) -> None:
        self.informer, self._operations_before = None, len(self.runtime.operations)
        await super()._start()
        if self.loop is None:
            return
        recorder = PublishedState(self.loop.state)
        self.loop.subscriber = recorder
        pods = Reflector(self.cluster, "/api/v1/pods", "", self.clock)
        self.informer = informer = PodInformer(pods, self.loop.observe)
        writer = PodStatusWriter(self.cluster, pods, lambda: recorder.state, self.clock)
        writer.is_ready = lambda: informer.has_published
        informer.on_object = writer.reconcile
        recorder.writer = writer
        informer.start()
        self._cluster_tasks = [asyncio.create_task(part.run()) for part in (pods, writer)]
        await settle()

    def _setting(self) -> StoreSettings:
        settings = super()._setting()
        return settings._replace(unready_sources=settings.unready_sources | {PodSource.CLUSTER})

    def running_uids(self) -> set[str]:
        """The pods of which a container runs."""
        return {
            held.config.pod.uid
            for held in self.runtime.containers.values()
            if held.status.phase is ContainerPhase.RUNNING
        }

    def _check_gone(self, ended: set[str]) -> None:
        """A pod that is gone from the cluster and from the machine never has a sandbox again."""
        held = {config.pod.uid for _, config in self.runtime.sandboxes.values()}
        present = {document["metadata"]["uid"] for document in self.cluster.pods().values()} - ended
        self.wrong += [f"{uid} is gone and has a sandbox again" for uid in held & self._gone_uids]
        self._gone_uids |= self._held_uids - held - present
        self._held_uids |= held

    def _check_end(self, uid: str, how: str) -> None:
        """A pod counts as ended only if nothing of it runs, and nothing of a deleted one is left."""
        if uid in self.running_uids():
            self.wrong.append(f"{uid} is {how} in the cluster and runs")
        held = [config.pod.uid for _, config in self.runtime.sandboxes.values()]
        if how == "deleted" and uid in held:
            self.wrong.append(f"{uid} is deleted in the cluster, and its sandbox is left")
        if uid in self.node_holdings():
            self.wrong.append(f"{uid} is {how} in the cluster and holds CPUs")

    def node_holdings(self) -> set[str]:
        """The pods that hold CPUs, as the agent knows."""
        if self.loop is None:
            return set()
        return {uid for uid in self.loop.state.node.held.cpu.assignments if uid in self.loop.state.node.pods}

    def _check(self) -> None:
        super()._check()
        ended = {
            document["metadata"]["uid"]
            for document in self.cluster.pods().values()
            if document["status"].get("phase") in TERMINAL_PHASES
        }
        self.wrong += [
            f"{uid} has ended in the cluster and runs again" for uid in self.running_uids() & ended
        ]
        self._check_gone(ended)
        started = [
            place
            for name, place in self.runtime.operations[self._operations_before :]
            if name in ("run_sandbox", "start_container")
        ]
        if started and not (self.informer is not None and self.informer.has_published):
            self.wrong.append(f"{started} started before the first list")
