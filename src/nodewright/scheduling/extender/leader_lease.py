"""Leader election by a Lease: of several extenders one answers, so that reservations are in one place."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.values.instant import Instant, micro_time

LEASE_S, RENEW_S, RETRY_S = 15, 10.0, 2.0
_NS_PER_US = 1_000


_Int32 = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _LeaseSpec(msgspec.Struct):
    """What is read of a Lease."""

    holder: str | None = msgspec.field(name="holderIdentity", default=None)
    duration_s: _Int32 | None = msgspec.field(name="leaseDurationSeconds", default=None)
    transitions: _Int32 | None = msgspec.field(name="leaseTransitions", default=None)


class LeaderLease:
    """Acquires and renews a Lease.

    Units:   seconds.
    Follows: v1.36, client-go/tools/leaderelection/leaderelection.go, tryAcquireOrRenew: a lease of another holder is
        taken when it has not changed for its duration, by the clock of the observer.
    """

    def __init__(self, api: ClusterAPI, path: str, identity: str, clock: Clock) -> None:
        self._api, self._clock, self._identity = api, clock, identity
        self._collection, _, self._name = path.rpartition("/")
        self.on_change: Callable[[bool], None] = lambda _is_leader: None
        self.log: Callable[[str], None] = lambda _text: None
        self._renewed_s = float("-inf")
        self._seen: tuple[str, float] = ("", float("-inf"))
        """The version of the lease of another holder, and since when it has been seen."""
        self._was_leader = False

    @property
    def is_leader(self) -> bool:
        """Whether the lease is this process's for some time to come, so that no other can have taken it."""
        return self._clock.monotonic_s() - self._renewed_s < RENEW_S

    async def run(self) -> None:
        """Acquires and renews the lease until it is cancelled."""
        while True:
            started_s = self._clock.monotonic_s()
            try:
                if await self._acquire():
                    self._renewed_s = started_s
            except (ApiError, msgspec.ValidationError) as error:
                self.log(f"the lease {self._name} is not renewed: {error}")
            if self.is_leader != self._was_leader:
                self._was_leader = self.is_leader
                self.log(f"{self._identity} {'leads' if self._was_leader else 'does not lead any longer'}")
                self.on_change(self._was_leader)
            await self._clock.sleep(RETRY_S)

    async def _acquire(self) -> bool:
        """Whether the lease is this process's now.

        Errors: ApiError.
        """
        path = api_path(self._collection, self._name)
        try:
            lease = await self._api.read(path, {})
        except ApiError as error:
            if error.status != 404:
                raise
            await self._api.create(self._collection, self._document({}))
            return True
        held = msgspec.convert(lease.get("spec") or {}, _LeaseSpec)
        version = str(lease["metadata"].get("resourceVersion"))
        holder, now_s = held.holder, self._clock.monotonic_s()
        if holder and holder != self._identity:
            if self._seen[0] != version:
                self._seen = (version, now_s)
            if now_s - self._seen[1] < (held.duration_s or LEASE_S):
                return False
        try:
            await self._api.update(path, self._document(lease))
        except ApiError as error:
            if error.status == 409:
                return False
            raise
        return True

    def _document(self, lease: Mapping[str, Any]) -> dict[str, Any]:
        now = micro_time(Instant(self._clock.now_ns() // _NS_PER_US * _NS_PER_US))
        spec = dict(lease.get("spec") or {})
        held = msgspec.convert(spec, _LeaseSpec)
        if held.holder != self._identity:
            transitions = (held.transitions or 0) + bool(held.holder)
            spec |= {"acquireTime": now, "leaseTransitions": transitions}
        spec |= {"holderIdentity": self._identity, "leaseDurationSeconds": LEASE_S, "renewTime": now}
        metadata = lease.get("metadata") or {"name": self._name}
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**metadata, "name": self._name},
            "spec": spec,
        }
