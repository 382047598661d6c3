"""The cluster that a command line names, and which of its objects the command has read."""

import os
from functools import cached_property
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from nodewright.cluster.client.access import ClusterAccess
    from nodewright.cluster.objects.node_sources import ClusterNode
    from nodewright.cluster.objects.object_names import ClusterName
    from nodewright.engine.core.claims.claim_scheduling import ClaimCluster

SESSION_KEY = "nodewright.cluster.client"
"""The key of the session among the data of click's context."""


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a command line that name a cluster, named as its parameters.

    Units: request_timeout in seconds.
    """

    kubeconfig: str | None
    context: str | None
    impersonate: str
    impersonate_groups: tuple[str, ...]
    request_timeout: float
    all_namespaces: bool = False


class ClusterSession:
    """The cluster that a command names; its kubeconfig is read when something is read from the cluster."""

    def __init__(self, options: ClusterOptions, namespace: str | None, selector: str) -> None:
        self.options = options
        self._namespace = namespace
        self.selector = selector
        self.words: set[str] = set()
        """The names that were read from the cluster."""
        self.names: tuple[ClusterName, ...] = ()
        """The objects that were read."""
        self.reads_all_nodes = False
        self.lists_whole = False
        """Whether all objects of the cluster or of a namespace are meant, because none is named."""
        self.judges_scheduling = False
        """Whether the command judges if the scheduler binds pods, so that their volumes and resource claims count."""
        self.reads_claims = False
        self.claims: ClaimCluster | None = None
        """What it has of Dynamic Resource Allocation, once it has been read."""
        """Whether its objects of Dynamic Resource Allocation were asked for."""
        self.has_claims = False
        """Whether all objects of Dynamic Resource Allocation were read."""
        self.nodes: dict[str, ClusterNode] = {}
        """The nodes that were read, by word."""

    @cached_property
    def access(self) -> "ClusterAccess":
        """The access to the cluster.

        Errors: InputError with the faults of the kubeconfig.
        """
        from nodewright.cluster.client.access import AccessOptions  # noqa: PLC0415 - start-up time
        from nodewright.cluster.client.kubeconfig import load_access  # noqa: PLC0415 - as above

        names = AccessOptions.__struct_fields__
        options = AccessOptions(**{name: getattr(self.options, name) for name in names})
        return load_access(options, os.environ)

    @property
    def names_namespace(self) -> bool:
        """Whether the command line names a namespace."""
        return self._namespace is not None

    @property
    def namespace(self) -> str:
        """The namespace of -n, otherwise that of the context."""
        return self._namespace or self.access.namespace

    @property
    def place(self) -> str:
        """The context, or the server of a pod's service account."""
        return f"context {self.access.context}" if self.access.context else self.access.server


def current_session() -> ClusterSession:
    """The session of the command that runs."""
    session = click.get_current_context().meta[SESSION_KEY]
    assert isinstance(session, ClusterSession)
    return session
