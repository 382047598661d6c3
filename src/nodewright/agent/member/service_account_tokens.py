"""Service account tokens for the volumes of pods: requested, refreshed before they expire, forgotten with the pod."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from nodewright.agent.rules.value_sources import (
    TokenSpec,
    UnresolvedReference,
    is_refresh_due,
    token_request,
    token_specs,
)
from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.cluster.tasks.timing import Clock, elapsed_s, gather_all
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import INT64_MAX

_LIMIT_S = 10.0
"""How long a pod waits for its tokens."""
_RETRIES_S = (0.1, 0.4, 1.5)
_PERIOD_S = 60.0
_MAX_JITTER_S = 10.0


class _HeldToken(msgspec.Struct, frozen=True):
    """A token as the API server has issued it.

    Units: seconds; expires_s since 1970.
    """

    text: str
    expires_s: float
    lifetime_s: int


class ServiceAccountTokens:
    """The tokens of registered pods.

    Follows: v1.36, pkg/kubelet/token/token_manager.go.
    Departs: tokens are looked at once a minute, where a kubelet looks whenever it syncs a pod's volumes.
    """

    def __init__(self, api: ClusterAPI, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self.on_change: Callable[[str], None] = lambda _uid: None
        """Called with the uid of a pod one of whose tokens was refreshed."""
        self._pods: dict[str, Pod] = {}
        self._tokens: dict[tuple[str, TokenSpec], _HeldToken] = {}
        self._errors: dict[tuple[str, TokenSpec], str] = {}

    def register(self, pod: Pod) -> None:
        """Keeps the pod's tokens fresh from now on."""
        if token_specs(pod):
            self._pods[pod.uid] = pod

    def forget(self, uid: str) -> None:
        """Forgets the pod, which has ended, and its tokens."""
        self._pods.pop(uid, None)
        self._tokens = {key: token for key, token in self._tokens.items() if key[0] != uid}
        self._errors = {key: error for key, error in self._errors.items() if key[0] != uid}

    async def wait_for(self, pod: Pod) -> None:
        """Requests the tokens that the pod has not got yet or that are to be replaced."""
        specs = [spec for spec in sorted(token_specs(pod), key=str) if self._must_request(pod, spec)]
        if specs:
            requests = gather_all(self._request_soon(pod, spec) for spec in specs)
            await elapsed_s(self._clock, requests, _LIMIT_S)

    def of_pod(self, pod: Pod) -> Mapping[TokenSpec, str | UnresolvedReference]:
        """The pod's tokens, or the kubelet's errors."""
        return {spec: self._token(pod.uid, spec) for spec in token_specs(pod)}

    async def run(self) -> None:
        """Refreshes tokens until it is cancelled."""
        while True:
            await self._clock.sleep(_PERIOD_S)
            for pod in tuple(self._pods.values()):
                before = {spec: self._tokens.get((pod.uid, spec)) for spec in token_specs(pod)}
                await self.wait_for(pod)
                if pod.uid in self._pods and any(
                    self._tokens.get((pod.uid, spec)) != held for spec, held in before.items()
                ):
                    self.on_change(pod.uid)

    def _token(self, uid: str, spec: TokenSpec) -> str | UnresolvedReference:
        held, error = self._tokens.get((uid, spec)), self._errors.get((uid, spec), "no answer in time")
        if held is None:
            return UnresolvedReference(f"failed to fetch token: {error}", may_exist=True)
        if self._now_s() > held.expires_s:
            return UnresolvedReference(f"token expired and refresh failed: {error}", may_exist=True)
        return held.text

    def _must_request(self, pod: Pod, spec: TokenSpec) -> bool:
        held = self._tokens.get((pod.uid, spec))
        jitter_s = random.uniform(0, _MAX_JITTER_S)
        return held is None or is_refresh_due(held.expires_s, held.lifetime_s, self._now_s(), jitter_s)

    async def _request_soon(self, pod: Pod, spec: TokenSpec) -> None:
        """Requests a token; a first one more than once: the API server may not know yet that the pod is this node's."""
        await self._request(pod, spec)
        for delay_s in _RETRIES_S if (pod.uid, spec) not in self._tokens else ():
            await self._clock.sleep(delay_s)
            await self._request(pod, spec)
            if (pod.uid, spec) in self._tokens:
                return

    async def _request(self, pod: Pod, spec: TokenSpec) -> None:
        """Requests a token; after an error the one before is used as long as it is valid."""
        account, namespace = pod.spec.service_account_name or "default", pod.metadata.namespace
        key = (pod.uid, spec)
        try:
            path = api_path("/api/v1", "namespaces", namespace, "serviceaccounts", account, "token")
            self._tokens[key] = _issued(await self._api.create(path, token_request(pod, spec)), spec)
        except (ApiError, InstantError, LookupError, TypeError, ValueError, AttributeError) as error:
            self._errors[key] = (
                str(error) if isinstance(error, ApiError) else f"the answer is no token: {error!r}"
            )
        else:
            self._errors.pop(key, None)

    def _now_s(self) -> float:
        return self._clock.now_ns() / 10**9


def _issued(answer: Mapping[str, Any], spec: TokenSpec) -> _HeldToken:
    """The token in the answer to a TokenRequest, with the lifetime that the API server has granted.

    Errors: ValueError for a lifetime that is none; as of wrong types.
    """
    status = answer["status"]
    lifetime_s = int((answer.get("spec") or {}).get("expirationSeconds") or spec.lifetime_s)
    if not 0 < lifetime_s <= INT64_MAX:
        raise ValueError("expirationSeconds is no number of seconds")
    expires = Instant.parse(status["expirationTimestamp"])
    return _HeldToken(str(status["token"]), expires.nanoseconds / 10**9, lifetime_s)
