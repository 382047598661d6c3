"""Objects that belong to a Node, such as its NodeResourceTopology, as exporters and hollow nodes write them."""

from collections.abc import Iterable, Mapping
from typing import Any

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


async def write_topology(api: ClusterAPI, topology: Mapping[str, Any], node: Mapping[str, Any]) -> None:
    """Creates or updates the NodeResourceTopology of a Node, unless it is stored already.

    Errors: ApiError.
    """
    document = {**topology, "metadata": {"name": node["metadata"]["name"]}}
    await write_owned_object(api, TOPOLOGIES, document, node, ("zones", "attributes", "topologyPolicies"))


async def write_owned_object(
    api: ClusterAPI,
    collection: str,
    document: Mapping[str, Any],
    node: Mapping[str, Any],
    fields: Iterable[str],
) -> None:
    """Creates an object of a Node, or updates it where one of the fields differs; it is deleted with the Node.

    Errors: ApiError.
    """
    meta = node["metadata"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
    own_metadata = {**document["metadata"], "ownerReferences": [owner]}
    path = api_path(collection, own_metadata["name"])
    try:
        stored = await api.read(path, {})
    except ApiError as error:
        if error.status != 404:
            raise
        await api.create(collection, {**document, "metadata": own_metadata})
        return
    if any(stored.get(name) != document.get(name) for name in fields):
        # Labels, annotations and finalizers of others stay: the writer may not change them.
        await api.update(path, {**document, "metadata": {**stored["metadata"], **own_metadata}})
