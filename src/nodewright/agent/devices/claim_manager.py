"""Prepares the resource claims of pods before their containers are created, and gives them back when the pods have ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path

from nodewright.agent.devices.dra_plugins import DRAPlugins
from nodewright.agent.devices.plugin_endpoints import rpc_within
from nodewright.agent.host.host_errors import run_host_operation
from nodewright.agent.state.agent_state import AgentState, PodStage
from nodewright.agent.state.observations import ClaimHealthObserved
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.files.file_store import write_atomically
from nodewright.documents.profiles.state_files.claim_checkpoint import (
    CLAIM_STATE_FILE,
    ClaimFileError,
    claim_state_file,
    read_claim_state,
)
from nodewright.engine.core.claims.device_health import (
    DeviceHealth,
    DriverHealth,
    ResourceStatus,
    resource_statuses,
    with_report,
)
from nodewright.engine.core.claims.prepared_claims import (
    ClaimAnswer,
    ClaimName,
    ClaimsError,
    DriverCall,
    PreparedClaim,
    PreparedClaims,
    checked_claims,
    names_to_unprepare,
    not_registered_text,
    unprepare_error,
)
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.claims import ResourceClaim
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.releases.feature_gates import FeatureGates

CALL_TIMEOUT_S = 45.0
"""Of a call of a driver.

Follows: v1.36, pkg/kubelet/cm/dra/plugin/dra_plugin.go, defaultClientCallTimeout.
"""
RECONCILE_PERIOD_S = 60.0
"""How often claims of pods that are gone are given back.

Follows: v1.36, pkg/kubelet/cm/dra/manager.go, defaultReconcilePeriod.
"""
_ENDED = (PodStage.TERMINATED, PodStage.REJECTED)
ReadClaim = Callable[[str, str], Awaitable[ResourceClaim | None]]
"""Reads a claim of the API server by namespace and name; None: there is none. Errors: HostError."""


class ClaimManager:
    """The claims that pods of this node use, and the calls that prepare them, one pod at a time.

    What is prepared is in `dra_manager_state` before a driver is called, so that nothing is forgotten whenever the agent ends.
    """

    def __init__(self, directory: Path, plugins: DRAPlugins, gates: FeatureGates, clock: Clock) -> None:
        self.plugins = plugins
        self._path, self._clock = directory / CLAIM_STATE_FILE, clock
        self.is_on = gates["DynamicResourceAllocation"]
        self._extended = gates["DRAExtendedResource"]
        self._claims: PreparedClaims | None = None
        self._lock = asyncio.Lock()
        self.read_claim: ReadClaim | None = None
        """None: the agent has joined no cluster, and there are no claims."""
        self._health: dict[str, DriverHealth] = {}
        self._reported: dict[str, Mapping[str, tuple[ResourceStatus, ...]]] = {}
        self._with_messages = gates["ResourceHealthStatusMessage"]
        self.state: Callable[[], AgentState] | None = None
        self.observe: Callable[[ClaimHealthObserved], None] = lambda _observation: None
        if self.is_on and gates["ResourceHealthStatus"]:
            plugins.report_health = self._take_report

    def _known(self) -> PreparedClaims:
        """The claims; read from the file when they are first asked for.

        Errors: HostError for a file that the kubelet would not start with.
        """
        if self._claims is None:
            try:
                content = self._path.read_bytes()
            except FileNotFoundError:
                self._claims = PreparedClaims()
            except OSError as error:
                raise HostError("read", str(self._path), error.strerror or str(error)) from None
            else:
                try:
                    self._claims = read_claim_state(content)
                except ClaimFileError as error:
                    raise HostError("read", str(self._path), str(error)) from None
        return self._claims

    def _write(self, claims: PreparedClaims) -> None:
        content = claim_state_file(claims)
        run_host_operation("write", self._path, lambda: write_atomically(self._path, content))

    def _has_claims(self, pod: Pod) -> bool:
        has_special = self._extended and pod.status.extended_resource_claim_status is not None
        return self.is_on and (bool(pod.spec.resource_claims) or has_special)

    # ------------------------------------------------------------ prepare and unprepare

    async def prepare(self, pod: Pod) -> None:
        """Has the claims of the pod prepared; nothing is done for those that are prepared already.

        Errors: HostError, with the kubelet's text in `error`.
        """
        if not self._has_claims(pod):
            return
        async with self._lock:
            try:
                await self._prepare(pod)
            except ClaimsError as error:
                raise HostError("prepare", pod.full_name, f"prepare dynamic resources: {error}") from None

    async def _prepare(self, pod: Pod) -> None:
        """Errors: ClaimsError; HostError."""
        stored = await self._stored(pod)
        checked = checked_claims(pod, stored, self.plugins.drivers, extended=self._extended)
        claims, calls, error = self._known().with_references(pod, checked)
        if checked:
            self._write(claims)
        self._claims = claims
        if error:
            raise ClaimsError(error)
        for call in calls:
            answers = await self._called("NodePrepareResources", call)
            self._claims, error = self._claims.with_devices(call, answers)
            if error:
                raise ClaimsError(error)
        claims = self._claims.prepared(calls)
        self._write(claims)
        self._claims = claims
        self._report_health()

    async def unprepare(self, pod: Pod) -> None:
        """Gives back the claims of a pod whose containers have ended; nothing is done for those that other pods use.

        Errors: HostError, with the kubelet's text in `error`.
        """
        if not self._has_claims(pod):
            return
        async with self._lock:
            try:
                names = names_to_unprepare(pod, extended=self._extended)
                await self._give_back(pod.uid, pod.metadata.namespace, names)
            except ClaimsError as error:
                raise HostError("unprepare", pod.full_name, f"unprepare dynamic resources: {error}") from None

    async def _give_back(self, uid: str, namespace: str, names: Iterable[str]) -> None:
        """Errors: ClaimsError; HostError."""
        known = self._known()
        claims, calls, unused = known.without_references(uid, namespace, names)
        for call in calls:
            answers = await self._called("NodeUnprepareResources", call)
            if error := unprepare_error(call, answers):
                raise ClaimsError(error)
        claims = claims.without(unused)
        if claims != known:
            self._write(claims)
            self._claims = claims

    async def run(self, on_error: Callable[[str], None]) -> None:
        """Gives back the claims of pods that are gone, until cancelled; ``on_error`` gets what fails, each text once.

        Also reports the devices whose drivers have said nothing for too long.
        """
        reported: tuple[str, ...] = ()
        while True:
            await self._clock.sleep(RECONCILE_PERIOD_S)
            self._report_health()
            assert self.state is not None
            now = self.state()
            if not self.is_on or now.unready_sources:
                continue
            active = (uid for uid, record in now.pods.items() if record.stage not in _ENDED)
            try:
                errors = await self.reconcile(active)
            except HostError as error:
                errors = (str(error),)
            for text in errors:
                if text not in reported:
                    on_error(text)
            reported = errors

    async def reconcile(self, active_uids: Iterable[str]) -> tuple[str, ...]:
        """Gives back what pods that are gone had; what could not be given back yet, a text for each pod."""
        errors = []
        async with self._lock:
            for uid, (namespace, names) in self._known().of_inactive_pods(active_uids).items():
                try:
                    await self._give_back(uid, namespace, names)
                except (ClaimsError, HostError) as error:
                    text = error.error if isinstance(error, HostError) else str(error)
                    errors.append(f"claims of pod {uid} ({namespace}): {text}")
        return tuple(errors)

    async def _called(self, method: str, call: DriverCall) -> Mapping[str, ClaimAnswer]:
        """The driver's answers by uid of the claim.

        Errors: ClaimsError.
        """
        if call.driver not in self.plugins.drivers:
            raise ClaimsError(not_registered_text(call.driver))
        client = self.plugins.client(call.driver)
        answer = client.prepare(call) if method == "NodePrepareResources" else client.unprepare(call)
        try:
            return await rpc_within(self._clock, method, call.driver, answer, CALL_TIMEOUT_S)
        except HostError as error:
            raise ClaimsError(f"{method}: {error.error}") from None

    async def _stored(self, pod: Pod) -> dict[ClaimName, ResourceClaim]:
        """The claims of the API server that the pod names.

        Errors: ClaimsError.
        """
        namespace = pod.metadata.namespace
        claims = {}
        for name in dict.fromkeys(names_to_unprepare(pod, extended=self._extended)):
            try:
                claim = None if self.read_claim is None else await self.read_claim(namespace, name)
            except HostError as error:
                raise ClaimsError(f"fetch ResourceClaim {name}: {error}") from None
            if claim is not None:
                claims[namespace, name] = claim
        return claims

    # ------------------------------------------------------------ health

    def _take_report(self, driver: str, devices: tuple[DeviceHealth, ...] | None) -> None:
        """Keeps what a driver reports of its devices.

        Follows: v1.36, pkg/kubelet/cm/dra/manager.go, HandleWatchResourcesStream.
        Departs: nothing of it outlives the agent: until drivers report again, the health of their devices is unknown.
        """
        known = self._health.pop(driver, {})
        if devices is not None:
            self._health[driver] = with_report(known, devices, self._clock.monotonic_s())
        self._report_health()

    def _report_health(self) -> None:
        """Has the loop observe the health of the devices of pods where it has changed."""
        if self.state is None or self.plugins.report_health is None or self._claims is None:
            return
        used = {uid for claim in self._claims.claims.values() for uid in claim.pods}
        records = self.state().pods
        statuses = {uid: self._statuses(records[uid].pod) for uid in sorted(used & records.keys())}
        changed = {uid: each for uid, each in statuses.items() if each != self._reported.get(uid, {})}
        self._reported = statuses
        if changed:
            self.observe(ClaimHealthObserved(changed))

    def _statuses(self, pod: Pod) -> Mapping[str, tuple[ResourceStatus, ...]]:
        assert self._claims is not None
        now_s, messages = self._clock.monotonic_s(), self._with_messages
        statuses = {
            container.name: resource_statuses(
                pod, container, self._claims, self._health, now_s, with_messages=messages
            )
            for container in pod.spec.containers
        }
        return {name: each for name, each in statuses.items() if each}

    # ------------------------------------------------------------ containers

    def cdi_devices(self, pod: Pod, container: Container) -> tuple[str, ...]:
        """The CDI devices of a container whose pod has been prepared.

        Errors: HostError, with the kubelet's text in `error`.
        """
        if not self._has_claims(pod):
            return ()
        try:
            return self._known().cdi_devices(pod, container, extended=self._extended)
        except ClaimsError as error:
            raise HostError("prepare", pod.full_name, str(error)) from None

    def in_use(self) -> Mapping[str, int]:
        """The number of prepared claims by driver, and of all; empty without dynamic resource allocation."""
        return (self._claims or PreparedClaims()).in_use() if self.is_on else {}

    def of_container(self, pod: Pod, container: Container) -> tuple[PreparedClaim, ...]:
        """The claims of a container, for PodResources."""
        if self._claims is None or not self._has_claims(pod):
            return ()
        return self._claims.of_container(pod, container, extended=self._extended)
