"""What the agent asks of an API server, in few verbs, and what its clients share."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlencode

from nodewright.cluster.client.cluster_api import ApiError
from nodewright.model.errors import HostError

JSON, STRATEGIC_MERGE = "application/json", "application/strategic-merge-patch+json"
_SILENCE_S = 60.0


class ClusterAPI(Protocol):
    """An API server; objects are documents. All operations raise `ApiError`."""

    async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """An object or a list."""

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Creates an object; returns it as stored."""

    async def update(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces an object; returns it as stored."""

    async def patch(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Applies a strategic merge patch; returns the object as stored."""

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Deletes an object."""

    def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch, `{"type": ..., "object": ...}`, until the server ends it."""


def with_query(path: str, query: Mapping[str, str]) -> str:
    """The path with these parameters."""
    return f"{path}?{urlencode(query)}" if query else path


def watch_limit_s(query: Mapping[str, str]) -> float:
    """How long a watch may last before its connection counts as dead: longer than it was asked for."""
    return float(query.get("timeoutSeconds", "0")) + _SILENCE_S


def as_object(value: Any) -> dict[str, Any]:
    """The value, which is an object.

    Errors: TypeError.
    """
    if not isinstance(value, dict):
        raise TypeError(f"it is no object, but a {type(value).__name__}")
    return value


def as_api_error(verb: str, path: str, error: HostError) -> ApiError:
    """The error; one of reading credentials, which may be there again later, as one of the request."""
    return error if isinstance(error, ApiError) else ApiError(verb, path, str(error))
