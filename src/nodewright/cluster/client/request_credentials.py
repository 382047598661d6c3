"""What identifies the user in each request: tokens, files that change, and plugins that print credentials."""

import asyncio
import base64
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from nodewright.cluster.client.access import MAX_CREDENTIAL_BYTES, ExecPlugin, Impersonation, UserCredentials
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.documents.files.commands import CommandLimits, run_command_beside
from nodewright.documents.files.regular_files import read_bounded
from nodewright.model.errors import JSON_ERRORS, HostError
from nodewright.model.values.instant import Instant, InstantError

_TOKEN_FILE_PERIOD_S = 50.0
"""client-go reads a token file after a minute less ten seconds."""
_MIN_PLUGIN_TIMEOUT_S = 60.0
_MAX_PLUGIN_BYTES = 1 << 20
_RUN_PLUGIN = "run the credential plugin"
_MAX_RETRIES = 10
_HEADER_NAME_CHARACTERS = "!#$&'*+-.^_`|~"
_NANOSECONDS = 1_000_000_000


class PluginCredentials(NamedTuple):
    """What a plugin printed."""

    token: str = ""
    certificate: bytes = b""
    key: bytes = b""
    expiry_s: float | None = None
    """Seconds since 1970; None: they do not expire."""


class RequestCredentials:
    """The credentials of requests, read again when they expire; one object per client."""

    def __init__(
        self, credentials: UserCredentials, *, plugin_timeout_s: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._credentials, self._clock = credentials, clock
        self._plugin_timeout_s = max(plugin_timeout_s, _MIN_PLUGIN_TIMEOUT_S)
        self._file_token, self._file_read_s = "", float("-inf")
        self._from_plugin: PluginCredentials | None = None
        self._lock = asyncio.Lock()

    async def headers(self) -> list[tuple[str, str]]:
        """The headers of a request: authorization and impersonation.

        Errors:  HostError for a token file or a plugin that fails.
        Follows: v1.36, client-go/transport/round_trippers.go, HTTPWrappersForConfig.
        """
        headers = impersonation_headers(self._credentials.impersonation)
        token = await self._token()
        if token:
            headers.append(("Authorization", f"Bearer {token}"))
        elif self._credentials.username:
            pair = f"{self._credentials.username}:{self._credentials.password}"
            headers.append(("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"))
        return headers

    async def client_certificate(self) -> tuple[bytes, bytes] | None:
        """The certificate and the key that a plugin printed, in PEM; None without."""
        if self._credentials.exec_plugin is None:
            return None
        printed = await self._plugin_credentials(self._credentials.exec_plugin)
        return (printed.certificate, printed.key) if printed.certificate else None

    def expire(self) -> bool:
        """Makes the next request read the credentials again; False where they cannot change."""
        self._file_read_s = float("-inf")
        self._from_plugin = None
        return bool(self._credentials.token_file or self._credentials.exec_plugin)

    async def _token(self) -> str:
        if self._credentials.token_file:
            return self._token_of_file(self._credentials.token_file)
        if self._credentials.exec_plugin is not None:
            return (await self._plugin_credentials(self._credentials.exec_plugin)).token
        return self._credentials.token

    def _token_of_file(self, path: str) -> str:
        if self._clock() - self._file_read_s < _TOKEN_FILE_PERIOD_S:
            return self._file_token
        try:
            with Path(path).open("rb") as file:
                self._file_token = read_bounded(file, MAX_CREDENTIAL_BYTES, path).decode().strip()
            self._file_read_s = self._clock()
        except (OSError, UnicodeDecodeError) as error:
            # As client-go: the last token serves on while its file cannot be read.
            self._file_token = self._file_token or self._credentials.token
            if not self._file_token:
                text = getattr(error, "strerror", None) or str(error)
                raise HostError("read the token file", path, text) from None
        if not self._file_token:
            raise HostError("read the token file", path, "the file is empty")
        return self._file_token

    async def _plugin_credentials(self, plugin: ExecPlugin) -> PluginCredentials:
        async with self._lock:  # An interactive plugin must not run twice at a time.
            current = self._from_plugin
            if current is None or (current.expiry_s is not None and self._clock() > current.expiry_s):
                self._from_plugin = current = await run_plugin(plugin, self._plugin_timeout_s)
            return current


class RepeatedRequest:
    """When a request that the server refuses is sent again: the rule of all clients of API servers.

    After 401 once, with credentials read again; after 429 and 5xx as often as the server's Retry-After allows within
    the limit, which is the caller's.

    Follows: v1.36, client-go/rest/with_retry.go, withRetry.IsNextRetry and checkWait.
    Departs: a request that the server refuses with 401 is repeated, which kubectl leaves to the user.
    """

    def __init__(
        self,
        credentials: RequestCredentials,
        expire_certificates: Callable[[], bool],
        limit: asyncio.Timeout,
        timeout_s: float,
    ) -> None:
        self._credentials, self._expire_certificates = credentials, expire_certificates
        self._limit, self._timeout_s = limit, timeout_s
        self._is_refreshed = False
        self._attempts = 0

    async def wait(self, error: ApiError) -> None:
        """Waits until the request may be sent again.

        Errors: the error itself where it may not; HostError for credentials that cannot be read.
        """
        attempt, self._attempts = self._attempts, self._attempts + 1
        if error.status == 401 and not self._is_refreshed and self._expire():
            self._is_refreshed = True
            await self._renew_credentials()
            return
        delay_s = error.retry_after_s
        may_repeat = (error.status == 429 or error.status >= 500) and attempt < _MAX_RETRIES
        if delay_s is None or not may_repeat or self._ends_within(delay_s):
            raise error
        await asyncio.sleep(delay_s)

    def _expire(self) -> bool:
        has_file = self._expire_certificates()
        return self._credentials.expire() or has_file

    async def _renew_credentials(self) -> None:
        # A plugin that asks the user has its own time.
        end_s = self._limit.when()
        self._limit.reschedule(None)
        await self._credentials.headers()
        now_s = asyncio.get_running_loop().time()
        self._limit.reschedule(None if end_s is None else max(end_s, now_s + self._timeout_s))

    def _ends_within(self, delay_s: float) -> bool:
        end_s = self._limit.when()
        return end_s is not None and asyncio.get_running_loop().time() + delay_s >= end_s


def impersonation_headers(impersonation: Impersonation) -> list[tuple[str, str]]:
    """The headers that name another user.

    Follows: v1.36, client-go/transport/round_trippers.go, impersonatingRoundTripper and headerKeyEscape.
    """
    if not impersonation.user:
        return []
    headers = [("Impersonate-User", impersonation.user)]
    headers += [("Impersonate-Uid", impersonation.uid)] if impersonation.uid else []
    headers += [("Impersonate-Group", group) for group in impersonation.groups]
    return headers + [
        (f"Impersonate-Extra-{quote(name, safe=_HEADER_NAME_CHARACTERS)}", value)
        for name, values in impersonation.extra
        for value in values
    ]


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _ExecStatus | None = None


async def run_plugin(plugin: ExecPlugin, timeout_s: float) -> PluginCredentials:
    """The credentials that the plugin prints; its stderr is ours.

    Units:   timeout_s in seconds, for a plugin that may not ask the user.
    Errors:  HostError with the plugin's command.
    Follows: v1.36, client-go/plugin/pkg/client/auth/exec/exec.go, refreshCredsLocked.
    Departs: a plugin that may not ask the user has a time-out, and so has the output of any after its end; the output is
             bounded.
    """
    is_terminal = sys.stdin is not None and sys.stdin.isatty()
    if plugin.interactive_mode == "Always" and not is_terminal:
        raise _plugin_error(plugin, "asks the user, but standard input is not a terminal")
    is_interactive = is_terminal and plugin.interactive_mode != "Never"
    output = await _plugin_output(plugin, timeout_s, is_interactive=is_interactive)
    try:
        credential = msgspec.json.decode(output, type=_ExecCredential)
    except JSON_ERRORS as error:
        raise _plugin_error(plugin, f"printed no ExecCredential: {error}") from None
    if credential.kind != "ExecCredential" or credential.api_version != plugin.api_version:
        printed = f"{credential.api_version or 'no apiVersion'} {credential.kind or 'without a kind'}"
        raise _plugin_error(plugin, f"printed {printed} instead of {plugin.api_version} ExecCredential")
    return _credentials_of(plugin, credential.status)


async def _plugin_output(plugin: ExecPlugin, timeout_s: float, *, is_interactive: bool) -> bytes:
    information = {
        "kind": "ExecCredential",
        "apiVersion": plugin.api_version,
        "spec": {"interactive": is_interactive}
        | ({"cluster": msgspec.Raw(plugin.cluster_info)} if plugin.cluster_info else {}),
    }
    environment = os.environ | dict(plugin.environment)
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(information).decode()
    limits = CommandLimits(timeout_s, _MAX_PLUGIN_BYTES, is_interactive=is_interactive)
    command, place = (plugin.command, *plugin.arguments), (_RUN_PLUGIN, plugin.command)
    try:
        result = await run_command_beside(command, limits, place, environment=environment, shows_errors=True)
    except (OSError, ValueError) as error:
        text = getattr(error, "strerror", None) or str(error)
        hint = " ".join(plugin.install_hint.split())
        raise _plugin_error(plugin, f"{text}{f' ({hint})' if hint else ''}") from None
    if result.exit_code:
        raise _plugin_error(plugin, f"failed with exit code {result.exit_code}")
    return result.output


def _credentials_of(plugin: ExecPlugin, status: _ExecStatus | None) -> PluginCredentials:
    if status is None:
        raise _plugin_error(plugin, "printed an ExecCredential without status")
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise _plugin_error(plugin, "printed a certificate or a key, but not both")
    if not status.token and not status.client_certificate_data:
        raise _plugin_error(plugin, "printed neither a token nor a certificate with its key")
    expiry_s = None
    if status.expiration_timestamp is not None:
        try:
            expiry_s = Instant.parse(status.expiration_timestamp).nanoseconds / _NANOSECONDS
        except InstantError as error:
            raise _plugin_error(plugin, f"printed an invalid status.expirationTimestamp: {error}") from None
    certificate, key = status.client_certificate_data.encode(), status.client_key_data.encode()
    return PluginCredentials(status.token, certificate, key, expiry_s)


def _plugin_error(plugin: ExecPlugin, text: str) -> HostError:
    return HostError(_RUN_PLUGIN, plugin.command, text)
