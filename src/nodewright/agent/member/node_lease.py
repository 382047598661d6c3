"""The node's lease, whose renewal tells the cluster that the node is alive."""

import random
from collections.abc import Callable, Mapping
from typing import Any

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI
from nodewright.cluster.client.reflector import BackOffDelay
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import Instant, micro_time

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_MAX_UPDATES = 5
_JITTER = 0.04
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
                    self.record_event(
                        RecordEvent(uid="", is_warning=True, reason="LeaseNotRenewed", message=message)
                    )
                is_failing = True
                await self._clock.sleep(min(delay.next_s(), interval_s))
                continue
            is_failing = False
            delay.reset()
            await self._clock.sleep(interval_s * (1 + _JITTER * random.random()))

    async def _renew(self) -> None:
        """Renews the lease, after creating or reading it if needed.

        Errors: ApiError.
        """
        for _ in range(_MAX_UPDATES):
            if self._lease is None:
                self._lease = await self._read()
            if self._lease is None:
                if not self.node_uid():
                    return
                self._lease = await self._api.create(LEASES, self._renewed(None))
                self.on_renewal()
                return
            try:
                self._lease = await self._api.update(f"{LEASES}/{self._name}", self._renewed(self._lease))
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
                self._lease = None
            else:
                self.on_renewal()
                return

    async def _read(self) -> dict[str, Any] | None:
        try:
            return await self._api.read(f"{LEASES}/{self._name}", {})
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
