"""The resource claims that pods of this node use, and the ResourceSlices of its drivers."""

import msgspec

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path, json_error, with_query
from nodewright.documents.formats.claim_versions import decode_claim_object
from nodewright.model.kubernetes.claims import ResourceClaim

_NOT_FOUND = 404
_APIS = ("/apis/resource.k8s.io/v1", "/apis/resource.k8s.io/v1beta1")
"""The first one that the API server serves is used."""


async def read_resource_claim(api: ClusterAPI, namespace: str, name: str) -> ResourceClaim | None:
    """The claim; None: there is none.

    Errors: ApiError.
    """
    for root in _APIS:
        try:
            document = await api.read(api_path(root, "namespaces", namespace, "resourceclaims", name), {})
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
        else:
            typed = {**document, "apiVersion": root.removeprefix("/apis/"), "kind": "ResourceClaim"}
            try:
                return decode_claim_object(typed, ResourceClaim)
            except (
                msgspec.ValidationError,
                TypeError,
                AttributeError,
            ) as error:  # beta fields are converted first
                raise json_error("GET", name, "", error) from None
    return None


async def remove_resource_slices(api: ClusterAPI, node: str, driver: str) -> None:
    """Removes the ResourceSlices of a driver on a node; an empty name: of all drivers.

    Errors:  ApiError.
    Follows: v1.36, pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go, wipeResourceSlices.
    """
    selector = f"spec.nodeName={node}" + (f",spec.driver={driver}" if driver else "")
    for root in _APIS:
        try:
            path = with_query(api_path(root, "resourceslices"), {"fieldSelector": selector})
            return await api.delete(path, {})
        except ApiError as error:
            if error.status != _NOT_FOUND:
                raise
    return None
