"""Kubeconfigs and clients for tests of the cluster."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import FakeApiServer, kubeconfig_text

from nodewright.cluster.client.access import AccessOptions, ClusterAccess
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.kubeconfig import load_access
from nodewright.cluster.client.list_watch import collected_pages

T = TypeVar("T")
NODES = "/api/v1/nodes"


def kubeconfig(
    name: str = "a",
    cluster: dict[str, Any] | None = None,
    user: dict[str, Any] | None = None,
    context: dict[str, Any] | None = None,
    *,
    current: str | None = None,
    **members: Any,
) -> dict[str, Any]:
    """A kubeconfig whose cluster, user and context have the name."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name if current is None else current,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443"} | (cluster or {})}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name} | (context or {})}],
    } | members


def write(path: Path, document: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), "utf-8")
    return str(path)


def access(path: str, environment: dict[str, str] | None = None, **options: Any) -> ClusterAccess:
    return load_access(AccessOptions(kubeconfig=path, **options), environment or {})


def call(access: ClusterAccess, procedure: Callable[[ApiClient], Awaitable[T]]) -> T:
    """The result of the procedure with a client."""

    async def run() -> T:
        async with ApiClient(access) as client:
            return await procedure(client)

    return asyncio.run(run())


def access_to(server: FakeApiServer, **fields: Any) -> ClusterAccess:
    return ClusterAccess(server=server.url, **fields)


def error(access: ClusterAccess, path: str = NODES) -> ApiError:
    with pytest.raises(ApiError) as caught:
        call(access, lambda client: collected_pages(client.list_pages(path)))
    assert "\n" not in str(caught.value)
    return caught.value


def secure_access(tmp_path: Path, server: FakeApiServer, authority: Authority, **user: Any) -> ClusterAccess:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig_text(server, authority.certificate, **user), "utf-8")
    return load_access(AccessOptions(kubeconfig=str(path)), {})
