"""What the client relies on: the fake API server and, where there is one, a real one pass the same tests."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
import pytest
from tests.support.fake_api_certificates import Authority
from tests.support.fake_api_server import fake_api_server
from tests.support.real_api_server import needs_real, real_api_server

from nodewright.cluster.client.access import (
    ClusterAccess,
    Impersonation,
    PEMSource,
    TLSSettings,
    UserCredentials,
)
from nodewright.cluster.client.api_client import ApiClient
from nodewright.cluster.client.cluster_api import ApiError
from nodewright.cluster.client.list_watch import WatchEvent, collected_pages
from nodewright.cluster.client.writes import WriteKind, delete_options

T = TypeVar("T")
TOKEN = "admin"  # noqa: S105 - of servers that only this test reaches
NUMBERS = itertools.count()


class ContractServer(NamedTuple):
    """A server, and what makes its versions too old."""

    access: ClusterAccess
    compact: Callable[[], None]


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        pytest.param(
            "real",
            marks=[
                pytest.mark.live,
                pytest.mark.slow,
                needs_real(),
            ],
        ),
    ],
)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ContractServer]:
    folder = tmp_path_factory.mktemp("server")
    if request.param == "fake":
        authority = Authority(folder)
        with fake_api_server(authority.pair("kubernetes")) as fake:
            fake.users = {f"Bearer {TOKEN}": "admin"}
            fake.forbidden_users = {"bob"}
            yield ContractServer(access(fake.url, authority.certificate), fake.compact)
    else:
        with real_api_server(folder, checks_rights=True) as real:
            certificate = folder / "certificates" / "apiserver.crt"
            yield ContractServer(access(f"https://127.0.0.1:{real.port}", certificate), real.compact)


def access(url: str, authority: Path) -> ClusterAccess:
    return ClusterAccess(
        server=url,
        credentials=UserCredentials(token=TOKEN),
        tls=TLSSettings(authority=PEMSource(str(authority)), server_name="kubernetes"),
    )


def run(server: ContractServer, procedure: Callable[[ApiClient, str], Awaitable[T]], **fields: Any) -> T:
    """The result of the procedure with a client and the path of the ConfigMaps of a new namespace."""

    async def with_client() -> T:
        async with ApiClient(msgspec.structs.replace(server.access, **fields)) as client:
            namespace = f"contract-{next(NUMBERS)}"
            if not fields:
                document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                await client.write(WriteKind.CREATE, "/api/v1/namespaces", document)
            return await procedure(client, f"/api/v1/namespaces/{namespace}/configmaps")

    return asyncio.run(with_client())


def config_map(name: str, **data: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"name": name}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def create(client: ApiClient, path: str, *names: str) -> list[dict[str, Any]]:
    return [decoded(await client.write(WriteKind.CREATE, path, config_map(name))) for name in names]


def decoded(content: msgspec.Raw | bytes) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(content)
    return document


async def refusal(answer: Awaitable[Any]) -> ApiError:
    with pytest.raises(ApiError) as caught:
        await answer
    return caught.value


def test_a_list_has_pages_with_whole_objects(server: ContractServer) -> None:
    async def pages(client: ApiClient, path: str) -> list[Any]:
        await create(client, path, *"abcde")
        return [page async for page in client.list_pages(path, page_size=2, label_selector="name!=kube")]

    answers = run(server, pages)
    items = [
        decoded(item) for page in answers for item in page.items if b"kube-root-ca.crt" not in bytes(item)
    ]
    assert [item["metadata"]["name"] for item in items] == list("abcde")
    assert {(item["kind"], item["apiVersion"]) for item in items} == {("ConfigMap", "v1")}
    assert {page.resource_version for page in answers} == {answers[0].resource_version}
    assert answers[-1].remaining is None


def test_selectors_choose_objects(server: ContractServer) -> None:
    async def names(client: ApiClient, path: str) -> list[str]:
        await create(client, path, *"abc")
        pages = client.list_pages(path, label_selector="name in (a,b)", field_selector="metadata.name!=a")
        return [decoded(item)["metadata"]["name"] for item in (await collected_pages(pages)).items]

    assert run(server, names) == ["b"]


def test_an_object_that_does_not_exist_is_not_found(server: ContractServer) -> None:
    async def missing(client: ApiClient, path: str) -> ApiError:
        return await refusal(client.get(f"{path}/none"))

    error = run(server, missing)
    assert (error.status, error.reason) == (404, "NotFound")
    assert str(error) == f'GET {error.path}: 404 Not Found: configmaps "none" not found'


def test_a_name_exists_once(server: ContractServer) -> None:
    async def second(client: ApiClient, path: str) -> ApiError:
        await create(client, path, "a")
        return await refusal(create(client, path, "a"))

    error = run(server, second)
    assert (error.status, error.reason, error.verb) == (409, "AlreadyExists", "POST")


def test_an_object_is_replaced_if_its_version_is_current(server: ContractServer) -> None:
    async def replace(client: ApiClient, path: str) -> tuple[dict[str, Any], ApiError]:
        (first,) = await create(client, path, "a")
        changed = first | {"data": {"key": "value"}}
        second = decoded(await client.write(WriteKind.REPLACE, f"{path}/a", changed))
        return second, await refusal(client.write(WriteKind.REPLACE, f"{path}/a", changed))

    second, error = run(server, replace)
    assert second["data"] == {"key": "value"}
    assert (error.status, error.reason) == (409, "Conflict")


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        (WriteKind.MERGE_PATCH, {"data": {"a": None, "b": "2"}}),
        (WriteKind.STRATEGIC_PATCH, {"data": {"a": None, "b": "2"}}),
        (
            WriteKind.JSON_PATCH,
            [{"op": "remove", "path": "/data/a"}, {"op": "add", "path": "/data/b", "value": "2"}],
        ),
    ],
)
def test_a_patch_changes_members(server: ContractServer, kind: WriteKind, patch: Any) -> None:
    async def apply_patch(client: ApiClient, path: str) -> dict[str, Any]:
        await client.write(WriteKind.CREATE, path, config_map("a", a="1", c="3"))
        return decoded(await client.write(kind, f"{path}/a", patch))

    assert run(server, apply_patch)["data"] == {"b": "2", "c": "3"}


def test_a_patch_of_an_old_version_is_a_conflict(server: ContractServer) -> None:
    async def apply_twice(client: ApiClient, path: str) -> ApiError:
        (first,) = await create(client, path, "a")
        patch = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"a": "1"}}
        await client.write(WriteKind.MERGE_PATCH, f"{path}/a", patch)
        return await refusal(client.write(WriteKind.MERGE_PATCH, f"{path}/a", patch | {"data": {"a": "2"}}))

    error = run(server, apply_twice)
    assert (error.status, error.reason) == (409, "Conflict")


def test_a_strategic_patch_merges_conditions_by_type(server: ContractServer) -> None:
    async def patch_status(client: ApiClient, _: str) -> list[Any]:
        name = f"node-{next(NUMBERS)}"
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        await client.write(WriteKind.CREATE, "/api/v1/nodes", node)
        path = f"/api/v1/nodes/{name}/status"
        answer: dict[str, Any] = {}
        for kind, status in (("Ready", "False"), ("MemoryPressure", "False"), ("Ready", "True")):
            patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
            answer = decoded(await client.write(WriteKind.STRATEGIC_PATCH, path, patch))
        return sorted((each["type"], each["status"]) for each in answer["status"]["conditions"])

    assert run(server, patch_status) == [("MemoryPressure", "False"), ("Ready", "True")]


def test_an_object_is_deleted_only_if_it_is_the_one_that_is_meant(server: ContractServer) -> None:
    async def delete(client: ApiClient, path: str) -> list[ApiError]:
        (document,) = await create(client, path, "a")
        metadata = document["metadata"]
        errors = [
            await refusal(client.write(WriteKind.DELETE, f"{path}/a", delete_options(uid="other"))),
            await refusal(client.write(WriteKind.DELETE, f"{path}/a", delete_options(resource_version="1"))),
        ]
        options = delete_options(
            uid=metadata["uid"], resource_version=metadata["resourceVersion"], grace_period_s=0
        )
        await client.write(WriteKind.DELETE, f"{path}/a", options)
        return [*errors, await refusal(client.get(f"{path}/a"))]

    assert [error.status for error in run(server, delete)] == [409, 409, 404]


def test_a_watch_has_what_happens_after_its_version(server: ContractServer) -> None:
    async def changes(client: ApiClient, path: str) -> list[tuple[str, str]]:
        await create(client, path, "before")
        version = (await collected_pages(client.list_pages(path))).resource_version
        await create(client, path, "a", "other")
        await client.write(WriteKind.MERGE_PATCH, f"{path}/a", {"data": {"a": "1"}})
        await client.write(WriteKind.DELETE, f"{path}/a", delete_options())
        events: list[WatchEvent] = []
        watch = client.watch(path, resource_version=version, label_selector="name!=other", timeout_s=60)
        async with aclosing(watch) as stream:
            async for event in stream:
                if event.kind != "BOOKMARK" and b"kube-root-ca.crt" not in bytes(event.object):
                    events.append(event)
                if len(events) == 3:
                    break
        return [(event.kind, decoded(event.object)["metadata"]["name"]) for event in events]

    assert run(server, changes) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


@pytest.mark.slow
def test_a_watch_ends_when_its_time_is_over(server: ContractServer) -> None:
    async def events(client: ApiClient, path: str) -> list[WatchEvent]:
        version = (await collected_pages(client.list_pages(path))).resource_version
        watch = client.watch(path, resource_version=version, field_selector="metadata.name=a", timeout_s=1)
        return [event async for event in watch if event.kind != "BOOKMARK"]

    assert run(server, events) == []


def secrets(path: str) -> str:
    """The path of the Secrets, which the real server reads from its storage, not from a cache."""
    return path.replace("configmaps", "secrets")


async def create_secrets(client: ApiClient, path: str, *names: str) -> None:
    for name in names:
        document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        await client.write(WriteKind.CREATE, secrets(path), document)


def test_a_version_that_is_too_old_has_expired(server: ContractServer) -> None:
    async def watch_old_version(client: ApiClient, path: str) -> ApiError:
        version = (await collected_pages(client.list_pages(secrets(path)))).resource_version
        await create_secrets(client, path, "a", "b")
        server.compact()
        return await refusal(anext(client.watch(secrets(path), resource_version=version, timeout_s=60)))

    error = run(server, watch_old_version)
    assert error.is_expired
    assert error.reason == "Expired"


def test_a_list_that_expires_between_two_pages_begins_again(server: ContractServer) -> None:
    async def pages(client: ApiClient, path: str) -> list[tuple[bool, list[str]]]:
        await create_secrets(client, path, *"abc")
        answers = []
        async for page in client.list_pages(secrets(path), page_size=2):
            names = [decoded(item)["metadata"]["name"] for item in page.items]
            answers.append((page.is_restart, names))
            if len(answers) == 1:
                await create_secrets(client, path, "d", "e")
                server.compact()
        return answers

    assert run(server, pages) == [(False, ["a", "b"]), (True, list("abcde"))]


def test_credentials_that_are_not_known_are_refused(server: ContractServer) -> None:
    async def get(client: ApiClient, path: str) -> ApiError:
        return await refusal(client.get(path))

    error = run(server, get, credentials=UserCredentials(token="other"))  # noqa: S106 - unknown
    assert (error.status, error.reason) == (401, "Unauthorized")
    assert str(error).endswith(
        "401 Unauthorized: Unauthorized: the credentials of the kubeconfig are not accepted or have expired"
    )


def test_a_user_without_permission_learns_verb_and_resource(server: ContractServer) -> None:
    async def list_nodes(client: ApiClient, _: str) -> ApiError:
        return await refusal(collected_pages(client.list_pages("/api/v1/nodes")))

    credentials = UserCredentials(token=TOKEN, impersonation=Impersonation(user="bob", groups=("dev",)))
    error = run(server, list_nodes, credentials=credentials)
    assert (error.status, error.reason) == (403, "Forbidden")
    assert str(error) == (
        'GET /api/v1/nodes?limit=500: 403 Forbidden: nodes is forbidden: User "bob" cannot list resource "nodes" in API '
        'group "" at the cluster scope'
    )
