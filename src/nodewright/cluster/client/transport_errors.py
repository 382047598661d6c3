"""Errors of one line from connections to API servers, as the HTTP client reports them."""

import ssl

import aiohttp

from nodewright.cluster.client.access import ClusterAccess, proxy_address
from nodewright.cluster.client.cluster_api import (
    MAX_TEXT_LENGTH,
    ApiError,
    certificate_text,
    connection_text,
    system_text,
    tls_text,
)


def transport_error(verb: str, path: str, access: ClusterAccess, error: Exception) -> ApiError:
    """The error of a request without a complete answer."""
    return ApiError(verb, path, _transport_text(access, error), server=access.server)


def _transport_text(access: ClusterAccess, error: Exception) -> str:
    through = f" through the proxy {proxy_address(access.proxy)}" if access.proxy else ""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            return certificate_text(error.certificate_error)
        case aiohttp.ClientConnectorSSLError():
            return tls_text(error.os_error)
        case aiohttp.ClientHttpProxyError():
            return f"the proxy {proxy_address(access.proxy)} answers {error.status} {error.message}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect{through}: {system_text(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return f"the server closed the connection without an answer{through}"
        case aiohttp.ClientPayloadError():
            return f"the connection ended in the middle of the answer{through}"
        case aiohttp.ClientResponseError():
            return f"the answer is not HTTP: {' '.join(error.message.split())[:MAX_TEXT_LENGTH]}"
        case _:
            is_system = isinstance(error, OSError) and not isinstance(error, ssl.SSLError)
            return connection_text(error) + (through if is_system else "")
