"""Client of a cluster's API server: kubeconfig, requests, lists and watches."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nodewright.cluster.client.access import AccessOptions
    from nodewright.cluster.client.api_client import ApiClient


def cluster_client(options: "AccessOptions", environment: Mapping[str, str]) -> "ApiClient":
    """The client of the cluster that options, environment and kubeconfig name; nothing is sent yet.

    Errors: InputError with the faults of the kubeconfig.
    """
    from nodewright.cluster.client.api_client import ApiClient  # noqa: PLC0415 - needs the extra `cluster`
    from nodewright.cluster.client.kubeconfig import load_access  # noqa: PLC0415 - after the check for the extra

    return ApiClient(load_access(options, environment))
