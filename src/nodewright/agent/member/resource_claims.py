"""The resource claims of the cluster that pods of this node use."""

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path
from nodewright.documents.formats.claim_objects import decode_claim_object
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
            version = root.removeprefix("/apis/")
            return decode_claim_object(
                {**document, "apiVersion": version, "kind": "ResourceClaim"}, ResourceClaim
            )
    return None
