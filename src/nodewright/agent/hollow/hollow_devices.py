"""Dynamic resource allocation on hollow nodes: the ResourceSlices of their drivers, and claims that these prepare."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from nodewright.agent.devices.claim_manager import ClaimManager
from nodewright.agent.devices.dra_plugins import DRAPluginClient, DRAPlugins
from nodewright.agent.devices.protocols import PluginRegistration
from nodewright.cluster.client.cluster_api import ClusterAPI
from nodewright.cluster.objects.node_owned_objects import write_owned_object
from nodewright.cluster.tasks.timing import Clock
from nodewright.documents.formats.manifests import load_workloads
from nodewright.documents.profiles.profile_yaml import object_document
from nodewright.engine.core.claims.prepared_claims import ClaimAnswer, DriverCall, PreparedClaims
from nodewright.model.errors import Fault, HostError, InputError
from nodewright.model.kubernetes.claims import ResourceSlice
from nodewright.model.releases.feature_gates import FeatureGates

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def read_slices(path: Path | None) -> tuple[ResourceSlice, ...]:
    """The ResourceSlices of one node in a file; none without a file.

    Errors: InputError, also for slices that are not of a node.
    """
    if path is None:
        return ()
    claims, source = load_workloads([str(path)]).claims, str(path)
    slices = tuple(claims.slices) if claims is not None else ()
    if not slices:
        rule = "must have ResourceSlices of one node, as of `kubectl get resourceslices -o yaml`"
        raise InputError([Fault(source=source, rule=rule)])
    names = [each.spec.node_name or "" for each in slices]
    if len({*names, ""}) != 2 or "" in names:
        rule = "must be the same node in all slices: each hollow node gets them all"
        raise InputError([Fault(source=source, path="spec.nodeName", value=", ".join(names), rule=rule)])
    return slices


async def write_slices(api: ClusterAPI, slices: tuple[ResourceSlice, ...], node: Mapping[str, Any]) -> None:
    """Publishes the slices as those of a Node; a pool with the name of the node that they are from gets its name.

    Errors: ApiError.
    """
    name = str(node["metadata"]["name"])
    for index, each in enumerate(slices):
        pool = each.spec.pool
        own_pool = name if pool.name == each.spec.node_name else f"{name}/{pool.name}"
        spec = replace(each.spec, node_name=name, pool=replace(pool, name=own_pool))
        document = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{name}-{each.spec.driver}-{index}"},
            "spec": object_document(spec),
        }
        await write_owned_object(api, SLICES, document, node, ("spec",))


class HollowDrivers(DRAPlugins):
    """The drivers of a node's slices."""

    def __init__(self, slices: tuple[ResourceSlice, ...], clock: Clock) -> None:
        super().__init__(_connect, clock)
        self._drivers = frozenset(each.spec.driver for each in slices)

    @property
    def drivers(self) -> frozenset[str]:
        """The names of the drivers."""
        return self._drivers


def _connect(registration: PluginRegistration, _service: str) -> DRAPluginClient:
    raise HostError("connect to", str(registration.socket), "drivers of hollow nodes have no sockets")


class HollowClaims(ClaimManager):
    """The claims of a node's pods; what is allocated counts as prepared.

    Without a directory they are forgotten with the kubelet.
    """

    def __init__(
        self, directory: Path | None, drivers: HollowDrivers, gates: FeatureGates, clock: Clock
    ) -> None:
        super().__init__(directory or Path(), drivers, gates, clock)
        self._is_kept = directory is not None
        if directory is None:
            self._claims = PreparedClaims()

    def _write(self, claims: PreparedClaims) -> None:
        if self._is_kept:
            super()._write(claims)

    async def _called(self, method: str, call: DriverCall) -> Mapping[str, ClaimAnswer]:
        """An answer without devices and errors for each claim: no container runtime asks for names of devices."""
        del method
        return {claim.uid: ClaimAnswer() for claim in call.claims}
