"""What the kubelet keeps of the claims of its pods: prepared by which drivers, with which devices, for which pods.

Follows: v1.36, pkg/kubelet/cm/dra/manager.go, claiminfo.go.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self, TypeAlias

import msgspec
from msgspec.structs import replace

from nodewright.engine.core.claims.pod_claims import claim_name_of, is_controlled_by, not_owned_text
from nodewright.model.kubernetes.claims import ResourceClaim
from nodewright.model.kubernetes.objects import Container, Pod

ClaimName: TypeAlias = tuple[str, str]
"""Namespace and name."""


class ClaimsError(Exception):
    """Why claims cannot be prepared, given back or passed to a container; the text is the kubelet's."""


class PreparedDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device that a driver has prepared for a claim."""

    pool: str
    device: str
    share_id: str | None = None
    requests: tuple[str, ...] | None = None
    """The requests that it serves; none: all."""
    cdi_devices: tuple[str, ...] | None = None
    """The names under which the container runtime knows it."""


class PreparedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A claim that pods of the node use."""

    uid: str
    name: str
    namespace: str
    pods: frozenset[str] = frozenset()
    """The uids of the pods."""
    drivers: Mapping[str, tuple[PreparedDevice, ...] | None] = {}
    """The devices by driver; None: there are none yet."""
    is_prepared: bool = False
    """Whether all drivers have prepared it since the kubelet started."""

    @property
    def key(self) -> ClaimName:
        """Namespace and name."""
        return self.namespace, self.name


class DriverCall(msgspec.Struct, frozen=True):
    """NodePrepareResources or NodeUnprepareResources of a driver for claims, a claim as often as it is asked for."""

    driver: str
    claims: tuple[PreparedClaim, ...]


class ClaimAnswer(msgspec.Struct, frozen=True):
    """What a driver answers about a claim."""

    devices: tuple[PreparedDevice, ...] = ()
    error: str = ""


class PreparedClaims(msgspec.Struct, frozen=True):
    """All claims that the kubelet knows, by namespace and name."""

    claims: Mapping[ClaimName, PreparedClaim] = {}

    def restarted(self) -> Self:
        """As the next kubelet finds them in its file: none counts as prepared."""
        return replace(
            self, claims={key: replace(claim, is_prepared=False) for key, claim in self.claims.items()}
        )

    def has_pod(self, uid: str) -> bool:
        """Whether a claim has to be given back before the pod is gone."""
        return any(uid in claim.pods for claim in self.claims.values())

    def in_use(self) -> Mapping[str, int]:
        """The number of claims that are prepared, by driver, and of all under ``<any>``.

        Follows: v1.36, pkg/kubelet/cm/dra/claiminfo.go, claimsInUse.
        """
        prepared = [claim.drivers for claim in self.claims.values() if claim.is_prepared]
        return {"<any>": len(prepared), **Counter(driver for drivers in prepared for driver in drivers)}

    # ------------------------------------------------------------ prepare

    def with_references(
        self, pod: Pod, claims: Iterable[ResourceClaim]
    ) -> tuple[Self, tuple[DriverCall, ...], str]:
        """The claims with references to the pod, the calls that prepare them, and why they cannot be prepared.

        What was referenced before an error stays. The file is written before a driver is called.
        """
        known = dict(self.claims)
        batches: dict[str, list[PreparedClaim]] = {}
        for claim in claims:
            new = _new_claim(claim)
            current = known.get(new.key, new)
            if current.uid != new.uid:
                text = f"old ResourceClaim with same name {new.name} and different UID {current.uid} still exists (previous pod force-deleted?!)"
                return replace(self, claims=known), (), text
            known[new.key] = current = replace(current, pods=current.pods | {pod.uid})
            for driver in current.drivers if not current.is_prepared else ():
                batches.setdefault(driver, []).append(current)
        calls = tuple(DriverCall(driver, tuple(batch)) for driver, batch in batches.items())
        return replace(self, claims=known), calls, ""

    def with_devices(self, call: DriverCall, answers: Mapping[str, ClaimAnswer]) -> tuple[Self, str]:
        """The claims with the devices of a driver's answer, by uid of the claim; and what is wrong with the answer.

        The devices before an error are kept, and added to those of earlier answers.
        """
        known = dict(self.claims)
        error = ""
        for uid, answer in answers.items():
            error = _answer_error("NodePrepareResources", call, uid, answer)
            if error:
                break
            claim = known[next(each.key for each in call.claims if each.uid == uid)]
            if answer.devices:
                devices = (*(claim.drivers.get(call.driver) or ()), *answer.devices)
                known[claim.key] = replace(claim, drivers={**claim.drivers, call.driver: devices})
        return replace(self, claims=known), error or _skipped("NodePrepareResources", call, answers)

    def prepared(self, calls: Iterable[DriverCall]) -> Self:
        """The claims once all drivers have prepared those of the calls."""
        keys = {claim.key for call in calls for claim in call.claims}
        prepared = {key: replace(self.claims[key], is_prepared=True) for key in keys}
        return replace(self, claims={**self.claims, **prepared})

    # ------------------------------------------------------------ unprepare

    def without_references(
        self, pod_uid: str, namespace: str, names: Iterable[str]
    ) -> tuple[Self, tuple[DriverCall, ...], tuple[ClaimName, ...]]:
        """The claims without references to the pod, the calls that give back those that no other pod uses, and their names."""
        known = dict(self.claims)
        batches: dict[str, list[PreparedClaim]] = {}
        unused: dict[ClaimName, None] = {}
        for name in names:
            claim = known.get((namespace, name))
            if claim is None:
                continue
            if len(claim.pods) > 1:
                known[claim.key] = replace(claim, pods=claim.pods - {pod_uid})
                continue
            unused[claim.key] = None
            for driver in claim.drivers:
                batches.setdefault(driver, []).append(claim)
        calls = tuple(DriverCall(driver, tuple(batch)) for driver, batch in batches.items())
        return replace(self, claims=known), calls, tuple(unused)

    def without(self, keys: Iterable[ClaimName]) -> Self:
        """The claims without those that were given back."""
        gone = set(keys)
        return replace(self, claims={key: claim for key, claim in self.claims.items() if key not in gone})

    def of_inactive_pods(self, active: Iterable[str]) -> Mapping[str, tuple[str, tuple[str, ...]]]:
        """The namespace and the names of the claims of each pod that is not active, by the pod's uid."""
        uids = frozenset(active)
        of_pods: dict[str, tuple[str, tuple[str, ...]]] = {}
        for claim in self.claims.values():
            for uid in claim.pods - uids:
                namespace, names = of_pods.get(uid, (claim.namespace, ()))
                of_pods[uid] = namespace, (*names, claim.name)
        return of_pods

    # ------------------------------------------------------------ containers

    def cdi_devices(self, pod: Pod, container: Container, *, extended: bool = True) -> tuple[str, ...]:
        """The CDI devices of the container; ``extended``: also those of the pod's extended resources.

        Errors:  ClaimsError.
        Follows: v1.36, manager.go, GetResources.
        """
        devices: list[str] = []
        for name, requests in _requests_of_container(pod, container, extended=extended).items():
            claim = self.claims.get((pod.metadata.namespace, name))
            if claim is None:
                raise ClaimsError(
                    f"internal error: unable to get claim info for ResourceClaim {name} in namespace {pod.metadata.namespace}"
                )
            for request in requests:
                devices += (
                    name
                    for own in claim.drivers.values()
                    for device in own or ()
                    if not request or not device.requests or request in device.requests
                    for name in device.cdi_devices or ()
                )
        return tuple(devices)

    def of_container(
        self, pod: Pod, container: Container, *, extended: bool = True
    ) -> tuple[PreparedClaim, ...]:
        """The claims that the container uses, for PodResources; empty if one is not known.

        Follows: v1.36, manager.go, GetContainerClaimInfos; cm/container_manager_linux.go, GetDynamicResources.
        """
        used = {str(each.get("name", "")) for each in container.resources.claims}
        names: list[str] = []
        try:
            for entry in pod.spec.resource_claims:
                name = claim_name_of(pod, entry) if str(entry.get("name", "")) in used else None
                names += [name] if name is not None else []
        except ValueError:
            return ()
        special = pod.status.extended_resource_claim_status
        mappings = special.request_mappings if extended and special is not None else ()
        if special is not None and any(each.container_name == container.name for each in mappings):
            names.append(special.resource_claim_name)
        claims = [self.claims.get((pod.metadata.namespace, name)) for name in names]
        return tuple(each for each in claims if each is not None) if all(claims) else ()


def checked_claims(
    pod: Pod,
    stored: Mapping[ClaimName, ResourceClaim],
    drivers: Iterable[str],
    *,
    extended: bool = True,
) -> tuple[ResourceClaim, ...]:
    """The claims that have to be prepared for the pod, in order; ``stored``: those of the API server.

    ``drivers``: those that are registered. ``extended``: whether the pod's extended resources may have a claim.
    Errors: ClaimsError, before anything is changed.
    """
    registered = frozenset(drivers)
    return tuple(
        _checked(pod, stored, registered, name, is_created=is_created)
        for name, is_created in _names_to_prepare(pod, extended=extended)
    )


def _names_to_prepare(pod: Pod, *, extended: bool) -> Iterator[tuple[str, bool]]:
    """The names of the pod's claims, each with whether it was created for the pod."""
    for entry in pod.spec.resource_claims:
        name = _name(pod, entry)
        if name is not None:
            yield name, entry.get("resourceClaimName") is None
    special = pod.status.extended_resource_claim_status
    if extended and special is not None:
        yield special.resource_claim_name, False


def names_to_unprepare(pod: Pod, *, extended: bool = True) -> tuple[str, ...]:
    """The names of the pod's claims.

    Errors: ClaimsError.
    """
    return tuple(name for name, _ in _names_to_prepare(pod, extended=extended))


def _name(pod: Pod, entry: Mapping[str, Any]) -> str | None:
    try:
        return claim_name_of(pod, entry)
    except ValueError as error:
        raise ClaimsError(str(error)) from None


def _checked(
    pod: Pod,
    stored: Mapping[ClaimName, ResourceClaim],
    registered: frozenset[str],
    name: str,
    *,
    is_created: bool,
) -> ResourceClaim:
    claim = stored.get((pod.metadata.namespace, name))
    if claim is None:
        raise ClaimsError(f'fetch ResourceClaim {name}: resourceclaims.resource.k8s.io "{name}" not found')
    if is_created and not is_controlled_by(claim, pod):
        raise ClaimsError(not_owned_text(claim, pod))
    if not any(each.uid == pod.uid for each in claim.status.reserved_for):
        raise ClaimsError(
            f"pod {pod.metadata.name} ({pod.uid}) is not allowed to use ResourceClaim {name} ({claim.metadata.uid})"
        )
    if claim.status.allocation is None:
        raise ClaimsError(f"ResourceClaim {name}: not allocated")
    for driver in _new_claim(claim).drivers:
        if driver not in registered:
            raise ClaimsError(not_registered_text(driver))
    return claim


def not_registered_text(driver: str) -> str:
    """Why a driver cannot be called.

    Follows: v1.36, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, GetPlugin.
    """
    return f"DRA driver {driver} is not registered"


def unprepare_error(call: DriverCall, answers: Mapping[str, ClaimAnswer]) -> str:
    """What is wrong with a driver's answer to NodeUnprepareResources, by uid of the claim; empty: nothing."""
    errors = (_answer_error("NodeUnprepareResources", call, uid, answer) for uid, answer in answers.items())
    return next(filter(None, errors), "") or _skipped("NodeUnprepareResources", call, answers)


def _new_claim(claim: ResourceClaim) -> PreparedClaim:
    """The claim as the kubelet takes it up: with the drivers of its allocation."""
    allocation, meta = claim.status.allocation, claim.metadata
    results = allocation.devices.results if allocation is not None else ()
    drivers = {result.driver: None for result in results}
    return PreparedClaim(uid=meta.uid, name=meta.name, namespace=meta.namespace, drivers=drivers)


def _answer_error(method: str, call: DriverCall, uid: str, answer: ClaimAnswer) -> str:
    name = next((each.name for each in call.claims if each.uid == uid), None)
    if name is None:
        return f"{method} returned result for unknown claim UID {uid}"
    return f"{method} failed for ResourceClaim {name}: {answer.error}" if answer.error else ""


def _skipped(method: str, call: DriverCall, answers: Mapping[str, ClaimAnswer]) -> str:
    missing = len(call.claims) - len(answers)
    return f"{method} skipped {missing} ResourceClaims" if missing else ""


def _requests_of_container(pod: Pod, container: Container, *, extended: bool) -> dict[str, list[str]]:
    """The requests that the container names of each claim; an empty name stands for all."""
    named: dict[str, list[str]] = {}
    for each in container.resources.claims:
        named.setdefault(str(each.get("name", "")), []).append(str(each.get("request") or ""))
    requests: dict[str, list[str]] = {}
    for entry in pod.spec.resource_claims:
        own = named.get(str(entry.get("name", "")))
        name = None if own is None else _name(pod, entry)
        if own is not None and name is not None:
            requests.setdefault(name, []).extend(own)
    special = pod.status.extended_resource_claim_status
    if extended and special is not None:
        requested = {name for name, amount in container.resources.requests.items() if amount.sign()}
        for mapping in special.request_mappings:
            if mapping.container_name == container.name and mapping.resource_name in requested:
                requests.setdefault(special.resource_claim_name, []).append(mapping.request_name)
    return requests
