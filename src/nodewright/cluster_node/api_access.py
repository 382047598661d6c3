"""`ClusterAPI` over the project's client of API servers."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import aiohttp
import msgspec

from nodewright.cluster.api_client import ApiClient, ApiRequest
from nodewright.cluster.api_error import ApiError
from nodewright.cluster.object_watch import lines_of
from nodewright.cluster_node.cluster_api import (
    JSON,
    STRATEGIC_MERGE,
    as_api_error,
    as_object,
    watch_limit_s,
    with_query,
)
from nodewright.errors import JSON_ERRORS, HostError


class ApiAccess:
    """Fulfils `ClusterAPI`; the clients are entered by their owner.

    ``watches``: the client of watches, each of which has a connection of its own as long as it lasts.
    """

    def __init__(self, client: ApiClient, watches: ApiClient | None = None) -> None:
        self._client, self._watches = client, watches or client

    async def read(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """An object or a list.

        Errors: ApiError.
        """
        return await self._answer(ApiRequest(verb="GET", path=with_query(path, query)))

    async def create(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Creates an object; returns it as stored.

        Errors: ApiError.
        """
        return await self._write("POST", path, document, JSON)

    async def update(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Replaces an object; returns it as stored.

        Errors: ApiError.
        """
        return await self._write("PUT", path, document, JSON)

    async def patch(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """Applies a strategic merge patch; returns the object as stored.

        Errors: ApiError.
        """
        return await self._write("PATCH", path, document, STRATEGIC_MERGE)

    async def delete(self, path: str, options: Mapping[str, Any]) -> None:
        """Deletes an object.

        Errors: ApiError.
        """
        document = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        await self._write("DELETE", path, document, JSON)

    async def watch(self, path: str, query: Mapping[str, str]) -> AsyncIterator[dict[str, Any]]:
        """The events of a watch until the server ends it.

        Errors: ApiError.
        """
        request = ApiRequest(verb="GET", path=with_query(path, {**query, "watch": "true"}))
        limit_s = watch_limit_s(query)
        try:
            async with (
                asyncio.timeout(limit_s) as limit,
                self._watches.response(request, limit) as response,
                aclosing(lines_of(response.content.iter_any())) as lines,
            ):
                async for line in lines:
                    yield as_object(msgspec.json.decode(line))
        except EOFError:
            return  # The server ends a watch in the middle of an event now and then: the next one has it.
        except (TimeoutError, aiohttp.ClientError, OSError, TypeError, *JSON_ERRORS) as error:
            raise ApiError("WATCH", path, str(error) or type(error).__name__) from None
        except HostError as error:
            raise as_api_error("WATCH", path, error) from None

    async def _write(
        self, verb: str, path: str, document: Mapping[str, Any], content_type: str
    ) -> dict[str, Any]:
        body = msgspec.json.encode(document)
        return await self._answer(ApiRequest(verb=verb, path=path, body=body, content_type=content_type))

    async def _answer(self, request: ApiRequest) -> dict[str, Any]:
        try:
            return as_object(msgspec.json.decode(await self._client.send(request)))
        except (TypeError, *JSON_ERRORS) as error:
            raise ApiError(request.verb, request.path, f"the answer is not JSON: {error}") from None
        except HostError as error:
            raise as_api_error(request.verb, request.path, error) from None
