"""What the agent asks of an API server, in few verbs."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

JSON, STRATEGIC_MERGE = "application/json", "application/strategic-merge-patch+json"


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
