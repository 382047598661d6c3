"""NodeResourceTopology objects of nodes, as exporters and hollow nodes write them."""

from collections.abc import Mapping
from typing import Any

from nodewright.cluster.client.cluster_api import ApiError, ClusterAPI, api_path

TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"


async def write_topology(api: ClusterAPI, topology: Mapping[str, Any], node: Mapping[str, Any]) -> None:
    """Creates or updates the topology of a Node object, unless it is stored already.

    Errors: ApiError.
    """
    metadata = node["metadata"]
    # With the Node its topology is deleted.
    owner = {"apiVersion": "v1", "kind": "Node", "name": metadata["name"], "uid": metadata["uid"]}
    own_metadata = {"name": metadata["name"], "ownerReferences": [owner]}
    path = api_path(TOPOLOGIES, metadata["name"])
    try:
        stored = await api.read(path, {})
    except ApiError as error:
        if error.status != 404:
            raise
        await api.create(TOPOLOGIES, {**topology, "metadata": own_metadata})
        return
    if any(stored.get(name) != topology.get(name) for name in ("zones", "attributes", "topologyPolicies")):
        # Labels, annotations and finalizers of others stay: the writer may not change them.
        await api.update(path, {**topology, "metadata": {**stored["metadata"], **own_metadata}})
