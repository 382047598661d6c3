"""Registers the node with an API server, keeps its status there, and renews its lease."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from nodewright.agent.member.node_object import (
    NodeIdentity,
    NodeReadings,
    has_status_changed,
    initial_node,
    node_patch,
    node_status,
    reconciled_node,
    reported_annotations,
)
from nodewright.agent.observe.metric_names import GaugeMetric
from nodewright.agent.state.agent_state import AgentState
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.client.reflector import BackOffDelay, ObjectView, newest_object
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import ZERO_TIME, Instant, micro_time

NODES = "/api/v1/nodes"
_MAX_UPDATES = 5
_JITTER = 0.04
_RETRY_S = 0.5
"""How soon a node that is not ready yet is looked at again after its start."""
_STARTUP_S = 120.0
"""For how long."""


class ReportTimes(msgspec.Struct, frozen=True, kw_only=True):
    """When the status is computed, and when it is sent although nothing has changed.

    Units: seconds.
    """

    update_s: float = 10.0
    report_s: float = 300.0


class NodeRegistration:
    """Keeps the Node object of the agent.

    ``reflector`` follows that object. ``readings`` are read for each status.

    Follows: v1.36, kubelet/kubelet_node_status.go. A Node object that is deleted while the agent runs is not created
        again until its next start.
    """

    def __init__(self, api: ClusterAPI, identity: NodeIdentity, reflector: ObjectView, clock: Clock) -> None:
        self._api, self.identity, self._reflector, self._clock = api, identity, reflector, clock
        self.state: Callable[[], AgentState]
        self.readings: Callable[[], Awaitable[NodeReadings]]
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.times = ReportTimes()
        self.must_register = True
        self.is_new_machine = False
        """Whether no agent has been this node on the machine before."""
        self.registered = asyncio.Event()
        """Set once the object is there and has been seen."""
        self._unchanged: tuple[dict[str, Any], AgentState, NodeReadings] | None = None
        """What a status was made from that did not have to be sent."""
        self._reported_at_s: float | None = None
        self._extra_s = 0.0
        self._last_error = ""
        self._has_reported_reboot = False
        self.booted_ns = 0
        """When the machine was booted, since 1970; 0: unknown."""
        self.on_startup: Callable[[GaugeMetric, float], None] = lambda _part, _duration_s: None
        """Gets how long the parts of the startup of a new Node took, in seconds."""
        self._registered_ns: int | None = None
        """When a new Node was registered; None: it is not new, or was ready."""

    @property
    def node(self) -> dict[str, Any] | None:
        """The Node object as last seen; None: there is none."""
        return next(iter(self._reflector.objects.values()), None)

    @property
    def path(self) -> str:
        """The path of the object."""
        return api_path(NODES, self.identity.name)

    async def run(self) -> None:
        """Registers the node and reports its status until it is cancelled."""
        started_s = self._clock.monotonic_s()
        await self._register()
        while True:
            is_ready = await self._sync()
            is_starting = self._clock.monotonic_s() - started_s < _STARTUP_S
            if is_ready or not is_starting:
                spread = 1 + _JITTER * random.random()
                await self._clock.sleep(self.times.update_s * spread)
            else:
                await self._clock.sleep(_RETRY_S)

    async def _register(self) -> None:
        delay, attempted_ns = BackOffDelay(0.2, 7.0), self._clock.now_ns()
        while True:
            try:
                node = await self._registered_node(attempted_ns)
            except ApiError as error:
                self._report_error("NodeNotRegistered", error)
                await self._clock.sleep(delay.next_s())
                continue
            uid = node["metadata"]["uid"]
            self._reflector.objects = {
                uid: newest_object(self._reflector.objects.get(uid), node),
            }
            self._reflector.on_change(uid)
            self.registered.set()
            return

    async def _registered_node(self, attempted_ns: int) -> dict[str, Any]:
        """The object: created, or an existing one after the agent's changes; ``attempted_ns``: the first attempt.

        Errors: ApiError.
        """
        if not self.must_register:
            return await self._api.read(self.path, {})
        initial = initial_node(self.identity, self.state(), await self.readings())
        try:
            node = await self._api.create(NODES, initial)
        except ApiError as error:
            if error.status not in (403, 409):
                raise
            try:
                existing = await self._api.read(self.path, {})
            except ApiError:
                # Why the node may not be created says more than that it does not exist.
                raise error from None
            patch = node_patch(
                existing, reconciled_node(existing, initial, is_new_machine=self.is_new_machine)
            )
            node = await self._api.patch(f"{self.path}/status", patch) if patch else existing
            self._report("RegisteredNode", f"Node {self.identity.name} was previously registered")
        else:
            self._reported_at_s = self._clock.monotonic_s()
            self._note_registration(attempted_ns)
            if _ready_status(node) == "True":
                self._note_ready()
        return node

    def _note_registration(self, attempted_ns: int) -> None:
        """Reports how long the registration of a new Node took.

        Follows: v1.36, kubelet/util/node_startup_latency_tracker.go.
        """
        started_ns, self._registered_ns = self.identity.system_info.started_ns, self._clock.now_ns()
        if self.booted_ns:
            self.on_startup(GaugeMetric.STARTUP_BEFORE_AGENT, (started_ns - self.booted_ns) / 10**9)
        self.on_startup(GaugeMetric.STARTUP_BEFORE_REGISTRATION, (attempted_ns - started_ns) / 10**9)
        self.on_startup(GaugeMetric.STARTUP_REGISTRATION, (self._registered_ns - attempted_ns) / 10**9)

    def _note_ready(self) -> None:
        """Reports how long a new Node took until it was ready, once."""
        if self._registered_ns is None:
            return
        now_ns = self._clock.now_ns()
        self.on_startup(GaugeMetric.STARTUP_AFTER_REGISTRATION, (now_ns - self._registered_ns) / 10**9)
        if self.booted_ns:
            self.on_startup(GaugeMetric.STARTUP, (now_ns - self.booted_ns) / 10**9)
        self._registered_ns = None

    async def _sync(self) -> bool:
        """Reports the status if it has changed or its time has come; whether the node is ready."""
        status: dict[str, Any] = {}
        for attempt in range(_MAX_UPDATES):
            try:
                node = self.node if attempt == 0 else None
                if node is None:
                    node = await self._api.read(self.path, {})
                status = await self._synced_status(node)
            except ApiError as error:
                self._report_error("NodeStatusNotReported", error)
                await self._clock.sleep(0.2)
            else:
                self._last_error = ""
                break
        return _ready_status({"status": status}) == "True"

    async def _synced_status(self, node: dict[str, Any]) -> dict[str, Any]:
        """The status that the object has then.

        Errors: ApiError.
        """
        state, readings = self.state(), await self.readings()
        timeless, before = replace(readings, now=ZERO_TIME), node.get("status") or {}
        if self._unchanged is not None and not self._is_due(self._clock.monotonic_s()):
            known_node, known_state, known_readings = self._unchanged
            if known_node is node and known_state is state and known_readings == timeless:
                return before
        status = node_status(self.identity, state, readings, before)
        is_sent = await self._report_status(node, status)
        self._unchanged = None if is_sent else (node, state, timeless)
        return status

    async def _report_status(self, node: dict[str, Any], status: dict[str, Any]) -> bool:
        """Sends the status if it must be sent; whether it was."""
        labels = dict((node.get("metadata") or {}).get("labels") or {})
        required = {"kubernetes.io/os": "linux", "kubernetes.io/arch": self.identity.architecture}
        annotations = reported_annotations(self.identity, node["metadata"].get("annotations") or {})
        metadata = {**node["metadata"], "labels": {**labels, **required}, "annotations": annotations}
        has_changed = has_status_changed(node.get("status") or {}, status) or metadata["labels"] != labels
        now_s = self._clock.monotonic_s()
        if not has_changed and not self._is_due(now_s):
            return False
        is_first = self._reported_at_s is None
        spread = random.uniform(-0.5, 0.5)
        extra_s = self.times.report_s * spread if has_changed or is_first else 0.0
        self._report_reboot(node)
        patch = node_patch(node, {**node, "metadata": metadata, "status": status})
        updated = await self._api.patch(f"{self.path}/status", patch)
        self._reported_at_s, self._extra_s = now_s, extra_s
        self._report_transition(node, updated)
        if _ready_status(updated) == "True":
            self._note_ready()
        self._reflector.put(updated)
        return True

    def _is_due(self, now_s: float) -> bool:
        reported_at_s = self._reported_at_s
        return reported_at_s is None or now_s - reported_at_s >= self.times.report_s + self._extra_s

    def _report_reboot(self, node: dict[str, Any]) -> None:
        """Reports once that the machine has been started again since the status of the object.

        Follows: v1.36, kubelet/nodestatus/setters.go, MachineInfo.
        """
        before = ((node.get("status") or {}).get("nodeInfo") or {}).get("bootID")
        boot_id = self.identity.boot_id
        if before and boot_id and before != boot_id and not self._has_reported_reboot:
            self._has_reported_reboot = True
            message = f"Node {self.identity.name} has been rebooted, boot id: {boot_id}"
            self.record_event(RecordEvent.warning("Rebooted", message))

    def _report_transition(self, before: dict[str, Any], after: dict[str, Any]) -> None:
        states = [_ready_status(node) for node in (before, after)]
        if states[0] != states[1] and states[0] is not None:
            reason = "NodeReady" if states[1] == "True" else "NodeNotReady"
            self._report(reason, f"Node {self.identity.name} status is now: {reason}")

    def _report(self, reason: str, message: str) -> None:
        self.record_event(RecordEvent.normal(reason, message))

    def _report_error(self, reason: str, error: ApiError) -> None:
        """Reports an error once, until another one follows."""
        text = f"{error}{_remedy(error)}"
        if text != self._last_error:
            self._last_error = text
            self.record_event(RecordEvent.warning(reason, text))


def _ready_status(node: dict[str, Any]) -> str | None:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition["status"] for condition in conditions if condition["type"] == "Ready"), None)


def _remedy(error: ApiError) -> str:
    """What to grant where the agent lacks rights."""
    if error.status != 403:
        return ""
    return ": the agent needs the user system:node:NAME in the group system:nodes, or the ClusterRole system:node"


# ---------------------------------------------------------------- lease


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_MAX_LEASE_UPDATES = 5
_RENEWAL_JITTER = 0.04
_NS_PER_US = 1_000


class NodeLease:
    """Renews the lease of a node, on a connection of its own.

    Units:   duration_s in seconds; renewed at a quarter of it.
    Follows: v1.36, component-helpers/apimachinery/lease/controller.go.
    """

    def __init__(self, api: ClusterAPI, node_name: str, duration_s: int, clock: Clock) -> None:
        self._api, self._name, self._duration_s, self._clock = api, node_name, duration_s, clock
        self.node_uid: Callable[[], str] = lambda: ""
        """The uid of the Node object, which owns the lease; empty: unknown, and no lease is created."""
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.on_renewal: Callable[[], None] = lambda: None
        self._lease: dict[str, Any] | None = None

    async def run(self) -> None:
        """Renews the lease until it is cancelled."""
        interval_s = self._duration_s / 4
        delay, is_failing = BackOffDelay(0.2, 7.0), False
        while True:
            try:
                await self._renew()
            except ApiError as error:
                # The stored lease may be outdated.
                self._lease = None
                if not is_failing:
                    message = f"{error}: the node counts as lost after {self._duration_s} s"
                    self.record_event(RecordEvent.warning("LeaseNotRenewed", message))
                is_failing = True
                await self._clock.sleep(min(delay.next_s(), interval_s))
                continue
            is_failing = False
            delay.reset()
            await self._clock.sleep(interval_s * (1 + _RENEWAL_JITTER * random.random()))

    async def _renew(self) -> None:
        """Renews the lease, after creating or reading it if needed.

        Errors: ApiError.
        """
        for _ in range(_MAX_LEASE_UPDATES):
            if self._lease is None:
                self._lease = await self._read()
            if self._lease is None:
                if not self.node_uid():
                    return
                self._lease = await self._api.create(LEASES, self._renewed(None))
                self.on_renewal()
                return
            try:
                self._lease = await self._api.update(api_path(LEASES, self._name), self._renewed(self._lease))
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
                self._lease = None
            else:
                self.on_renewal()
                return

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._api.read(api_path(LEASES, self._name), {})
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def _renewed(self, lease: Mapping[str, Any] | None) -> dict[str, Any]:
        now = Instant(self._clock.now_ns() // _NS_PER_US * _NS_PER_US)
        document: dict[str, Any] = dict(
            lease
            or {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._name}}
        )
        metadata = dict(document["metadata"])
        uid = self.node_uid()
        if uid and not metadata.get("ownerReferences"):
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": uid}
            ]
        metadata.setdefault("namespace", "kube-node-lease")
        spec = {
            **(document.get("spec") or {}),
            "holderIdentity": self._name,
            "leaseDurationSeconds": self._duration_s,
            "renewTime": micro_time(now),
        }
        return {**document, "metadata": metadata, "spec": spec}
