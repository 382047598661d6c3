"""`-w`: a command about a cluster answers again when what it has read changes, until Ctrl-C."""

import asyncio
import io
import random
import time
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from functools import partial

import click
import msgspec

from nodewright.cli.cluster.cluster_reading import WatchTarget, read_cluster, watch_targets
from nodewright.cli.cluster.cluster_session import ClusterSession, current_session
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.list_watch import metadata_of
from nodewright.cluster.client.reflector import STEADY_S, BackOffDelay
from nodewright.documents.output.terminal import print_message, print_text
from nodewright.model.errors import HostError

_MIN_PAUSE_S, _MAX_SHARE = 1.0, 2.0
"""Between two answers: at least this, and so many times what the last one took."""
_WATCH_S = 300


class Answer(msgspec.Struct, frozen=True):
    """What a command has printed, and its exit code."""

    output: str
    messages: str
    code: int


def watch_command(command: Callable[[], int]) -> int:
    """Runs the command, and again after each change; prints answers that differ. The exit code is the last one.

    Errors: click.UsageError for a command that has read nothing from a cluster; otherwise as of the command.
    """
    last = _captured(command)
    _print(last)
    session = current_session()
    if not watch_targets(session):
        raise click.UsageError("-w is for pods and nodes of a cluster: name one, or use --node nodes")
    with suppress(KeyboardInterrupt):
        delay = BackOffDelay()
        versions = None
        while True:
            try:
                versions = read_cluster(session, partial(_changed_versions, session=session, since=versions))
                started_s = time.monotonic()
                answer = _captured(command)
                pause_s = max(_MIN_PAUSE_S, _MAX_SHARE * (time.monotonic() - started_s))
            except HostError as error:
                print_message(f"warning: {error}; trying again")
                versions = None
                time.sleep(delay.next_s())
                continue
            delay.reset()
            session = current_session()
            has_changed, last = answer.output != last.output, answer
            if has_changed:
                print_message(f"{datetime.now(UTC):%H:%M:%S}: the answer has changed")
                _print(answer)
            time.sleep(pause_s)
    return last.code


def _captured(command: Callable[[], int]) -> Answer:
    output, messages = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(messages):
        code = command()
    return Answer(output.getvalue(), messages.getvalue(), code)


def _print(answer: Answer) -> None:
    print_text(answer.messages, to_stderr=True)
    print_text(answer.output)


Versions = Sequence[str]
"""The version of each target's list."""


async def _changed_versions(
    client: ApiClient, *, session: ClusterSession, since: Versions | None
) -> Versions:
    """The present versions of what the session has read, after any of it has changed; at once if ``since`` is None.

    Errors: ApiError if the API server does not answer.
    """
    targets = watch_targets(session)
    if since is not None and len(since) == len(targets):
        changes = [
            asyncio.ensure_future(_next_change(client, target, version))
            for target, version in zip(targets, since, strict=True)
        ]
        try:
            ended, _ = await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            for change in ended:
                change.result()
        finally:
            for change in changes:
                change.cancel()
            await asyncio.gather(*changes, return_exceptions=True)
    return await asyncio.gather(*(_list_version(client, target) for target in targets))


async def _list_version(client: ApiClient, target: WatchTarget) -> str:
    pages = client.list_pages(
        target.path, label_selector=target.labels, field_selector=target.fields, page_size=1
    )
    async for page in pages:
        return page.resource_version
    return ""


async def _next_change(client: ApiClient, target: WatchTarget, version: str) -> None:
    """Returns after a change of the target, and when its version is too old to know whether there was one."""
    delay = BackOffDelay()
    while True:
        started_s, timeout_s = time.monotonic(), round(_WATCH_S * random.uniform(1.0, 2.0))
        try:
            async for event in client.watch_events(
                target.path,
                resource_version=version,
                label_selector=target.labels,
                field_selector=target.fields,
                timeout_s=timeout_s,
            ):
                if event.kind != "BOOKMARK":
                    return
                version = metadata_of(event.object).resource_version or version
        except msgspec.DecodeError:
            return  # The next list has the version.
        except ApiError as error:
            if error.is_expired:
                return
            raise
        if time.monotonic() - started_s < STEADY_S:
            await asyncio.sleep(delay.next_s())
