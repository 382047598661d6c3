"""`dra_manager_state`: the claims that the kubelet has prepared, or was about to prepare, for its pods."""

import zlib
from typing import Any

from nodewright.documents.formats.go_checkpoint import CORRUPTED, marshal
from nodewright.documents.formats.go_json import (
    STRING,
    Field,
    IntegerType,
    MapOf,
    Pointer,
    SliceOf,
    StringType,
    Struct,
    unmarshal,
    zero_value,
)
from nodewright.engine.core.claims.prepared_claims import PreparedClaim, PreparedClaims, PreparedDevice

CLAIM_STATE_FILE = "dra_manager_state"
_KIND, _VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"
_TEXTS = SliceOf("[]string", STRING)
_DEVICE = Struct(
    "state.Device",
    (
        Field("PoolName", "PoolName", STRING),
        Field("DeviceName", "DeviceName", STRING),
        Field("ShareID", "ShareID", Pointer(StringType("types.UID"))),
        Field("RequestNames", "RequestNames", _TEXTS),
        Field("CDIDeviceIDs", "CDIDeviceIDs", _TEXTS),
    ),
)
_DRIVER = Struct("state.DriverState", (Field("Devices", "Devices", SliceOf("[]state.Device", _DEVICE)),))
_CLAIM = Struct(
    "state.ClaimInfoState",
    (
        Field("ClaimUID", "ClaimUID", StringType("types.UID")),
        Field("ClaimName", "ClaimName", STRING),
        Field("Namespace", "Namespace", STRING),
        Field("PodUIDs", "PodUIDs", MapOf("sets.Set[string]", STRING, Struct("sets.Empty", ()))),
        Field("DriverState", "DriverState", MapOf("map[string]state.DriverState", STRING, _DRIVER)),
    ),
)
_DATA = Struct(
    "state.CheckpointData",
    (
        Field("Kind", "kind", STRING, omits_empty=True),
        Field("APIVersion", "apiVersion", STRING, omits_empty=True),
        Field("ClaimInfoStateList", "ClaimInfoStateList", SliceOf("state.ClaimInfoStateList", _CLAIM)),
    ),
)
_FILE = Struct(
    "state.Checkpoint",
    (Field("Data", "Data", STRING), Field("Checksum", "Checksum", IntegerType("uint32", 0, 2**32 - 1))),
)


class ClaimFileError(Exception):
    """Why the kubelet does not start with this file; the text is its own."""


def claim_state_file(claims: PreparedClaims | None) -> bytes:
    """The file with these claims, by namespace and name; None: the one that a kubelet without a file creates.

    Follows: v1.36, pkg/kubelet/cm/dra/state/checkpoint.go, NewCheckpoint.
    Departs: Kubernetes writes the claims in random order.
    """
    entries = None if claims is None else [_entry(claims.claims[key]) for key in sorted(claims.claims)]
    content = {"Kind": _KIND, "APIVersion": _VERSION, "ClaimInfoStateList": entries}
    data = marshal(content, _DATA)
    return marshal({"Data": data, "Checksum": zlib.crc32(data.encode())}, _FILE).encode()


def read_claim_state(content: bytes) -> PreparedClaims:
    """The claims of the file, none of which counts as prepared.

    Errors:  ClaimFileError.
    Follows: v1.36, pkg/kubelet/cm/dra/claiminfo.go, newClaimInfoCache; state/checkpointer.go, GetOrCreate.
    """
    file = zero_value(_FILE)
    unmarshal(claim_state_file(None), _FILE, file)
    error = unmarshal(content, _FILE, file)
    if error is None and zlib.crc32(file["Data"].encode()) != file["Checksum"]:
        error = CORRUPTED
    if error is not None:
        raise ClaimFileError(
            f"create ResourceClaim cache: GetOrCreate() on checkpoint state: failed to get checkpoint {CLAIM_STATE_FILE}: {error}"
        )
    data = zero_value(_DATA)
    error = unmarshal(file["Data"].encode(), _DATA, data)
    if error is not None:
        raise ClaimFileError(f"create ResourceClaim cache: GetEntries() on checkpoint: {error}")
    claims = map(_claim, data["ClaimInfoStateList"] or ())
    return PreparedClaims({claim.key: claim for claim in claims})


def _entry(claim: PreparedClaim) -> dict[str, Any]:
    return {
        "ClaimUID": claim.uid,
        "ClaimName": claim.name,
        "Namespace": claim.namespace,
        "PodUIDs": {uid: {} for uid in claim.pods},
        "DriverState": {
            driver: {"Devices": None if devices is None else list(map(_device_entry, devices))}
            for driver, devices in claim.drivers.items()
        },
    }


def _device_entry(device: PreparedDevice) -> dict[str, Any]:
    return {
        "PoolName": device.pool,
        "DeviceName": device.device,
        "ShareID": device.share_id,
        "RequestNames": device.requests,
        "CDIDeviceIDs": device.cdi_devices,
    }


def _claim(entry: dict[str, Any]) -> PreparedClaim:
    drivers = {
        driver: None if state["Devices"] is None else tuple(map(_device, state["Devices"]))
        for driver, state in (entry["DriverState"] or {}).items()
    }
    return PreparedClaim(
        uid=entry["ClaimUID"],
        name=entry["ClaimName"],
        namespace=entry["Namespace"],
        pods=frozenset(entry["PodUIDs"] or ()),
        drivers=drivers,
    )


def _device(entry: dict[str, Any]) -> PreparedDevice:
    return PreparedDevice(
        pool=entry["PoolName"],
        device=entry["DeviceName"],
        share_id=entry["ShareID"],
        requests=None if entry["RequestNames"] is None else tuple(entry["RequestNames"]),
        cdi_devices=None if entry["CDIDeviceIDs"] is None else tuple(entry["CDIDeviceIDs"]),
    )
