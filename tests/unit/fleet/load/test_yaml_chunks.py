import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodewright.documents.formats.kubectl_yaml import read_documents
from nodewright.fleet.load.yaml_chunks import NAME_PLACEHOLDER, yaml_chunks
from nodewright.model.errors import InputError

POD = """\
kind: Pod
metadata:
  name: {name}
  labels: {{app: "{name}", prefix: x{name}, suffix: {name}-1}}
spec: {{value: {value}, other: 1.{name}}}
"""

names = st.sampled_from(
    ["web-0", "web-1", "name-0", "true-1", "null", "e-55", "yess", "deadbeef", "n0de", "a"]
)
values = st.sampled_from(["1", "yes", "1.5e3", "~", '"\\name-0"', '"\\\\web-0"', "!!str web-0", "web-0"])


def whole(value: object, name: str) -> object:
    if isinstance(value, dict):
        return {whole(key, name): whole(item, name) for key, item in value.items()}
    return value.replace(NAME_PLACEHOLDER, name) if isinstance(value, str) else value


@given(st.lists(st.tuples(names, values), max_size=6))
def test_chunks_with_restored_names_are_the_documents_of_the_text(pods: list[tuple[str, str]]) -> None:
    text = "---\n".join(POD.format(name=name, value=value) for name, value in pods)
    wanted = read_documents(text, "pods.yaml")
    result = list(yaml_chunks(text, "pods.yaml", 10**6) or ())
    assert [whole(yaml_chunk.value, yaml_chunk.name) for yaml_chunk in result] == [
        yaml_document.value for yaml_document in wanted
    ]


def test_documents_that_differ_only_in_their_names_share_one_value() -> None:
    text = "---\n".join(f"kind: Pod\nmetadata:\n  name: web-{number}\n" for number in range(3))
    result = list(yaml_chunks(text, "pods.yaml", 10**6) or ())
    assert [yaml_chunk.name for yaml_chunk in result] == ["web-0", "web-1", "web-2"]
    assert result[0].value is result[1].value is result[2].value


@pytest.mark.parametrize(
    "text", ["a: 1\n...\nb: 2\n", "%YAML 1.1\n---\na: 1\n", "--- a\n", "a: 1\r\n", NAME_PLACEHOLDER]
)
def test_texts_that_cannot_be_split_at_markers_are_not_chunked(text: str) -> None:
    assert yaml_chunks(text, "x.yaml", 10**6) is None


def test_chunks_have_their_first_line_and_empty_ones_are_skipped() -> None:
    text = "# nodes\n---\na: 1\n--- # next\n\n---\n\nb: 2\n---\n"
    assert [(chunk.line, chunk.value) for chunk in yaml_chunks(text, "x", 10**6) or ()] == [
        (3, {"a": 1}),
        (7, {"b": 2}),
    ]


def test_faults_have_their_location_in_the_whole_text() -> None:
    with pytest.raises(InputError, match=r"x.yaml:4:1: .*the key \"a\" is given twice"):
        list(yaml_chunks("a: 1\n---\na: 1\na: 2\n", "x.yaml", 10**6) or ())
