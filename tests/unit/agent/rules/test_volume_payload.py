"""Files of volumes that are made of objects."""

from typing import Any

import pytest

from nodewright.agent.rules.value_sources import ReferenceSources, TokenSpec, UnresolvedReference
from nodewright.agent.rules.volume_payload import FileContent, volume_payload
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret
from nodewright.testing.objects import a_pod, amounts

AROUND = ReferenceSources(
    allocatable=amounts("cpu=8"),
    config_maps={"conf": ConfigMap(data={"b": "two", "a": "one"}, binary_data={"c": b"\0\xff"})},
    secrets={"key": Secret(data={"token": b"s3cret"})},
)
POD = a_pod("web", "cpu=500m", metadata={"labels": {"a": "b"}})


def files(**volume: Any) -> object:
    return volume_payload({"name": "v", **volume}, POD, AROUND)


def test_all_keys_of_a_config_map_are_files() -> None:
    assert files(configMap={"name": "conf"}) == {
        "a": FileContent(b"one"),
        "b": FileContent(b"two"),
        "c": FileContent(b"\0\xff"),
    }


def test_keys_can_be_chosen_with_paths_and_modes() -> None:
    document = {
        "name": "conf",
        "defaultMode": 0o400,
        "items": [{"key": "a", "path": "x/a"}, {"key": "c", "path": "c", "mode": 0o755}],
    }
    assert files(configMap=document) == {
        "x/a": FileContent(b"one", 0o400),
        "c": FileContent(b"\0\xff", 0o755),
    }
    assert files(secret={"secretName": "key", "defaultMode": 0}) == {"token": FileContent(b"s3cret", 0)}


def test_the_pod_tells_of_itself() -> None:
    document = {
        "items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {
                "path": "./cpu",
                "resourceFieldRef": {"containerName": "main", "resource": "requests.cpu", "divisor": "1m"},
            },
            {"path": "most", "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}},
            {"path": "nothing"},
        ]
    }
    assert files(downwardAPI=document) == {
        "labels": FileContent(b'a="b"'),
        "cpu": FileContent(b"500"),
        "most": FileContent(b"8"),
        "nothing": FileContent(b""),
    }


def test_sources_are_put_together_and_later_ones_win() -> None:
    sources = [
        {"configMap": {"name": "conf", "items": [{"key": "a", "path": "x"}]}},
        {"secret": {"name": "key", "items": [{"key": "token", "path": "x"}]}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    expected = {"x": FileContent(b"s3cret", 0o440), "name": FileContent(b"web", 0o440)}
    assert files(projected={"sources": sources, "defaultMode": 0o440}) == expected
    assert files(projected={}) == {}


LACKING: tuple[tuple[dict[str, Any], str], ...] = (
    ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
    ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
    (
        {"configMap": {"name": "conf", "items": [{"key": "x", "path": "x"}]}},
        "configmap references non-existent config key: x",
    ),
    (
        {"secret": {"secretName": "key", "items": [{"key": "x", "path": "x"}]}},
        "references non-existent secret key: x",
    ),
    (
        {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "status.podIP"}}]}},
        "unsupported fieldPath: status.podIP",
    ),
    (
        {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name['x']"}}]}},
        "fieldPath \"metadata.name['x']\" does not support subscript",
    ),
    (
        {"projected": {"sources": [{"configMap": {"name": "x"}}, {"secret": {"name": "y"}}]}},
        '[configmap "x" not found, secret "y" not found]',
    ),
    (
        {"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
        "serviceAccountToken needs an API server, and there is none",
    ),
    ({"projected": {"sources": [{}]}}, "nothing is not supported"),
)


@pytest.mark.parametrize(("volume", "message"), LACKING)
def test_what_lacks_is_told(volume: dict[str, Any], message: str) -> None:
    assert files(**volume) == UnresolvedReference(message)


def test_what_may_lack_is_left_out() -> None:
    assert files(configMap={"name": "none", "optional": True}) == {}
    assert files(secret={"secretName": "none", "optional": True, "items": [{"key": "x", "path": "x"}]}) == {}


PATHS = {
    "": 'invalid path: must not be empty: ""',
    "/etc/passwd": "invalid path: must be relative path: /etc/passwd",
    "a/../../b": "invalid path: must not contain '..': a/../../b",
    "..data": "invalid path: must not start with '..': ..data",
    "a" * 256: "invalid path: filenames must be less than or equal to 255 characters",
    "a/" * 2050: "invalid path: must be less than or equal to 4096 characters",
}


@pytest.mark.parametrize("path", PATHS)
def test_no_file_leaves_its_volume(path: str) -> None:
    document = {"name": "conf", "items": [{"key": "a", "path": path}]}
    assert files(configMap=document) == UnresolvedReference(PATHS[path])


TOKEN = {"serviceAccountToken": {"path": "token", "expirationSeconds": 600, "audience": "vault"}}


@pytest.mark.parametrize(
    ("spec", "content"),
    [
        ({}, FileContent(b"abc", 0o440)),
        ({"securityContext": {"fsGroup": 1000}}, FileContent(b"abc", 0o600)),
        ({"securityContext": {"runAsUser": 7}}, FileContent(b"abc", 0o600, 7)),
    ],
)
def test_a_token_is_readable_for_the_pods_user_and_group(spec: dict[str, Any], content: FileContent) -> None:
    pod = a_pod("web", "cpu=1", **spec)
    volume = {"name": "v", "projected": {"defaultMode": 0o440, "sources": [TOKEN]}}
    sources = ReferenceSources(tokens={TokenSpec("vault", 600): "abc"})
    assert volume_payload(volume, pod, sources) == {"token": content}


def test_a_token_that_was_not_issued_is_told() -> None:
    error = UnresolvedReference("failed to fetch token: forbidden", may_exist=True)
    sources = ReferenceSources(tokens={TokenSpec("vault", 600): error})
    volume = {"name": "v", "projected": {"sources": [TOKEN]}}
    answer = volume_payload(volume, POD, sources)
    assert isinstance(answer, UnresolvedReference)
    assert answer.message == error.message


@pytest.mark.parametrize(
    "volume",
    [{"configMap": {"name": "x", "optional": True}}, {"secret": {"secretName": "x", "optional": True}}],
)
def test_an_optional_object_is_left_out_only_if_it_does_not_exist(volume: dict[str, Any]) -> None:
    error = UnresolvedReference("failed to sync", may_exist=True)
    sources = ReferenceSources(config_maps={"x": error}, secrets={"x": error})
    assert volume_payload({"name": "v", **volume}, POD, ReferenceSources()) == {}
    assert volume_payload({"name": "v", **volume}, POD, sources) == error
