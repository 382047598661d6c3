"""Paths of API objects: one function builds them, and quotes."""

import re
from pathlib import Path

import pytest

from nodewright.cluster.client.cluster_api import ApiError, api_path
from nodewright.model.errors import InputError
from nodewright.scheduling.verdicts.extender_protocol import decode_binding

SOURCES = Path(__file__).parents[4] / "src" / "nodewright"
_BUILT = re.compile(
    r"""f["'][^"'\n]*(/api/v|/namespaces/|/apis/)[^"'\n]*[{][a-z]|f["'][{][A-Z_.a-z]*(NODES|LEASES|REQUESTS|TOPOLOGIES)[}]/"""
)


@pytest.mark.parametrize("name", ["../secrets/foo", "a/b", "a?b=c", "a#b", "a%2fb", "ü", "a b", "..."])
def test_a_name_is_one_segment(name: str) -> None:
    path = api_path("/api/v1", "namespaces", "shop", "pods", name, "binding")
    assert path.count("/") == 7
    assert re.fullmatch("[-a-zA-Z0-9/%._~]+", path)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_segment_that_leads_elsewhere_is_the_name_of_no_object(name: str) -> None:
    with pytest.raises(ApiError) as caught:
        api_path("/api/v1", "namespaces", name, "pods")
    assert caught.value.status == 404


def test_no_other_code_puts_names_into_paths() -> None:
    for file in (
        *SOURCES.glob("cluster/**/*.py"),
        *SOURCES.glob("agent/member/*.py"),
        *SOURCES.glob("scheduling/**/*.py"),
    ):
        text = file.read_text("utf-8")
        assert not _BUILT.search(text), f"{file}: {_BUILT.search(text)}"


@pytest.mark.parametrize("field", ["PodName", "PodNamespace", "Node"])
def test_names_of_a_bind_call_are_names(field: str) -> None:
    values = {"PodName": "a", "PodNamespace": "b", "PodUID": "u", "Node": "n", field: "../secrets/foo"}
    body = repr(values).replace("'", '"').encode()
    with pytest.raises(InputError, match=field):
        decode_binding(body)
