"""Family dra-kubelet: the kubelet's manager of claims, with its drivers, through a sequence."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodewright.documents.formats.claim_versions import decode_claim_object
from nodewright.documents.formats.decode import decode
from nodewright.documents.profiles.state_files.claim_checkpoint import (
    ClaimFileError,
    claim_state_file,
    read_claim_state,
)
from nodewright.engine.core.claims.prepared_claims import (
    ClaimAnswer,
    ClaimName,
    ClaimsError,
    DriverCall,
    PreparedClaim,
    PreparedClaims,
    PreparedDevice,
    checked_claims,
    names_to_unprepare,
    not_registered_text,
    unprepare_error,
)
from nodewright.model.kubernetes.claims import ResourceClaim
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.releases.release_rules import ReleaseTable

_UNKNOWN = "uid-unknown"


def answer(question: dict[str, Any], _machines: Mapping[str, Any], _release: ReleaseTable) -> Any:
    """What each step gives."""
    kubelet = _Kubelet(question)
    return {"steps": [kubelet.step(step) for step in question["steps"]]}


class _CallError(Exception):
    """What a call of a driver ends with."""


class _Kubelet:
    """The manager, its file, the API server and the drivers."""

    def __init__(self, question: dict[str, Any]) -> None:
        self._names: list[str] = question["drivers"]
        pods = (decode(each, Pod) for each in question["pods"])
        self._pods = {pod.metadata.name: pod for pod in pods}
        self._set_claims(question["claims"])
        self._registered: list[str] = []
        self._claims = PreparedClaims()
        self._file = claim_state_file(None)
        self._shown = b""
        self._calls: list[dict[str, Any]] = []

    def _set_claims(self, documents: Iterable[dict[str, Any]]) -> None:
        claims = (decode_claim_object(each, ResourceClaim) for each in documents)
        self._stored: dict[ClaimName, ResourceClaim] = {
            (each.metadata.namespace, each.metadata.name): each for each in claims
        }

    def step(self, step: dict[str, Any]) -> dict[str, Any]:
        """What the step gives, and the file where it changed."""
        self._calls = []
        steps: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "register": self._register,
            "deregister": self._deregister,
            "prepare": self._prepare,
            "unprepare": self._unprepare,
            "resources": self._resources,
            "mightUnprepare": self._might_unprepare,
            "reconcile": self._reconcile,
            "restart": self._restart,
            "claims": self._replace_claims,
            "stateFile": self._overwrite,
        }
        given = steps[step["op"]](step)
        if self._calls:
            given["calls"] = sorted(self._calls, key=lambda call: str(call["driver"]))
        if self._file != self._shown and not (step["op"] == "stateFile" and "error" in given):
            given["state"] = self._file.decode()
        self._shown = self._file
        return given

    def _register(self, step: dict[str, Any]) -> dict[str, Any]:
        driver = step["driver"]
        if driver in self._registered:
            place = f"DIR/{self._names.index(driver)}.sock"
            return {"error": f"endpoint {place} already registered for DRA driver plugin {driver}"}
        self._registered.append(driver)
        return {}

    def _deregister(self, step: dict[str, Any]) -> dict[str, Any]:
        self._registered = [each for each in self._registered if each != step["driver"]]
        return {}

    def _restart(self, _step: dict[str, Any]) -> dict[str, Any]:
        try:
            self._claims = read_claim_state(self._file)
        except ClaimFileError as error:
            return {"error": str(error)}
        return {}

    def _replace_claims(self, step: dict[str, Any]) -> dict[str, Any]:
        self._set_claims(step["claims"])
        return self._restart(step)

    def _overwrite(self, step: dict[str, Any]) -> dict[str, Any]:
        self._file = step["bytes"].encode()
        return self._restart(step)

    def _prepare(self, step: dict[str, Any]) -> dict[str, Any]:
        try:
            self._prepare_pod(self._pods[step["pod"]], step)
        except (ClaimsError, _CallError) as error:
            return {"error": f"prepare dynamic resources: {error}"}
        return {}

    def _prepare_pod(self, pod: Pod, step: dict[str, Any]) -> None:
        claims = checked_claims(pod, self._stored, self._registered)
        before = self._claims
        self._claims, calls, error = self._claims.with_references(pod, claims)
        if self._claims.claims != before.claims or (claims and not error):
            self._write()
        if error:
            raise ClaimsError(error)
        for call in calls:
            answers = self._called("NodePrepareResources", call, step)
            self._claims, error = self._claims.with_devices(call, answers)
            if error:
                raise ClaimsError(error)
        self._claims = self._claims.prepared(calls)
        self._write()

    def _unprepare(self, step: dict[str, Any]) -> dict[str, Any]:
        pod = self._pods[step["pod"]]
        try:
            self._give_back(pod.uid, pod.metadata.namespace, names_to_unprepare(pod), step)
        except (ClaimsError, _CallError) as error:
            return {"error": f"unprepare dynamic resources: {error}"}
        return {}

    def _give_back(self, uid: str, namespace: str, names: Iterable[str], step: dict[str, Any]) -> None:
        self._claims, calls, unused = self._claims.without_references(uid, namespace, names)
        for call in calls:
            if call.driver not in self._registered:
                raise _CallError(not_registered_text(call.driver))
            if error := unprepare_error(call, self._called("NodeUnprepareResources", call, step)):
                raise _CallError(error)
        self._claims = self._claims.without(unused)
        self._write()

    def _reconcile(self, step: dict[str, Any]) -> dict[str, Any]:
        active = [self._pods[name].uid for name in step.get("active") or ()]
        for uid, (namespace, names) in self._claims.of_inactive_pods(active).items():
            try:
                self._give_back(uid, namespace, names, step)
            except (ClaimsError, _CallError):
                continue  # The kubelet logs it, and tries again.
        return {}

    def _resources(self, step: dict[str, Any]) -> dict[str, Any]:
        pod = self._pods[step["pod"]]
        container = next(each for each in pod.spec.containers if each.name == step["container"])
        resources = [_shown_claim(each) for each in self._claims.of_container(pod, container)]
        return {**self._cdi_devices(pod, container), "podResources": resources}

    def _cdi_devices(self, pod: Pod, container: Container) -> dict[str, Any]:
        try:
            return {"cdiDevices": sorted(self._claims.cdi_devices(pod, container))}
        except ClaimsError as error:
            return {"error": str(error)}

    def _might_unprepare(self, step: dict[str, Any]) -> dict[str, Any]:
        return {"answer": self._claims.has_pod(self._pods[step["pod"]].uid)}

    def _write(self) -> None:
        self._file = claim_state_file(self._claims)

    def _called(self, method: str, call: DriverCall, step: dict[str, Any]) -> dict[str, ClaimAnswer]:
        """What the driver answers, by uid of the claim."""
        names = sorted(f"{each.namespace}/{each.name}/{each.uid}" for each in call.claims)
        self._calls.append({"call": method, "claims": names, "driver": call.driver})
        if error := (step.get("rpcError") or {}).get(call.driver):
            raise _CallError(f"{method}: rpc error: code = Unknown desc = {error}")
        by_claim = (step.get("answers") or {}).get(call.driver) or {}
        answers: dict[str, ClaimAnswer] = {}
        for claim in call.claims:
            given = by_claim.get(claim.name) or {}
            if not given.get("skip"):
                answers[_UNKNOWN if given.get("unknown") else claim.uid] = _answer(given)
        return answers


def _answer(given: dict[str, Any]) -> ClaimAnswer:
    devices = (
        PreparedDevice(
            pool=each.get("pool", ""),
            device=each.get("device", ""),
            share_id=each.get("shareID"),
            requests=tuple(each["requests"]) if each.get("requests") else None,
            cdi_devices=tuple(each["cdi"]) if each.get("cdi") else None,
        )
        for each in given.get("devices") or ()
    )
    return ClaimAnswer(tuple(devices), given.get("error", ""))


def _shown_claim(claim: PreparedClaim) -> dict[str, Any]:
    resources: list[dict[str, Any]] = []
    for driver in sorted(claim.drivers):
        names: list[str] = []
        for device in claim.drivers[driver] or ():
            names = [*names, *(device.cdi_devices or ())]
            shown: dict[str, Any] = {"driver": driver, "pool": device.pool, "device": device.device}
            shown |= {"cdi": names} if names else {}
            resources.append(shown | ({"shareID": device.share_id} if device.share_id is not None else {}))
    return {"claim": f"{claim.namespace}/{claim.name}", "resources": resources}
