"""Documents that are parsed once for all of their form are those that are parsed one by one."""

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from nodewright.documents.formats.kubectl_yaml import YAMLDocument, read_alike_documents, read_documents
from nodewright.model.errors import InputError

TEXTS = st.sampled_from(
    [
        "web",
        "web-1",
        "shop/web:1",
        "a.b",
        "true",
        "on",
        "null",
        "1e3",
        "0x1f",
        "12:30",
        "zZ",
        "~",
        "a b",
        "x:",
        "e5",
    ]
)
LINES = st.sampled_from(
    [
        "name: {}",
        "  name: {}",
        "- name: {}",
        "  - image: {}",
        "    image: {}",
        "args: [{}, a]",
        "args: [b,",
        "  {}]",
        "labels: {{app: {}}}",
        "labels: {{",
        "  app: {} }}",
        "text: |",
        "text: >-",
        'text: "a',
        '  {}"',
        "# name: {}",
        "kind: {} # no",
        "spec:",
        "{}: a",
        "? name: {}",
        "a: &x {}",
        "b: *x",
        "c: !!str {}",
        "<<: {{name: {}}}",
        "",
        "...",
        "\tname: {}",
        "name: {}  ",
    ]
)
DOCUMENTS = st.lists(LINES, max_size=6).flatmap(
    lambda lines: st.lists(TEXTS, min_size=len(lines), max_size=len(lines)).map(
        lambda texts: "".join(f"{line.format(text)}\n" for line, text in zip(lines, texts, strict=True))
    )
)
ALIKE = st.tuples(
    st.lists(LINES, min_size=1, max_size=6), st.lists(st.lists(TEXTS, min_size=6, max_size=6))
).map(
    lambda form: [
        "".join(f"{line.format(text)}\n" for line, text in zip(form[0], texts, strict=False))
        for texts in form[1]
    ]
)
MARKS = st.sampled_from(["---\n", "---\n", "---\n", "--- \n", "--- a\n", "----\n"])


def outcome(read: Any, text: str) -> list[YAMLDocument] | list[str]:
    try:
        documents: list[YAMLDocument] = read(text, "file")
    except InputError as error:
        return [str(fault) for fault in error.faults]
    return documents


@given(st.one_of(st.lists(DOCUMENTS), ALIKE), MARKS, st.booleans())
@example(["kind: Pod\nname: web\n", "kind: Pod\nname: shop\n", "kind: Pod\nname: on\n"] * 2, "---\n", False)
@example(["text: |\n  name: a\n"] * 2 + ["text: |\n  name: b\n"], "---\n", True)
@example(["args: {\n  image: a:1}\n"] * 2 + ["args: {\n  image: b}\n"], "---\n", False)
def test_alike_documents_are_read_as_all_others(parts: list[str], mark: str, begins_with_mark: bool) -> None:
    text = (mark if begins_with_mark else "") + mark.join(parts)
    assert outcome(read_alike_documents, text) == outcome(read_documents, text)


def test_what_is_read_of_a_form_is_not_shared() -> None:
    text = "---\n".join(f"name: web-{number}\nlabels: {{a: b}}\n" for number in range(5))
    values = [document.value for document in read_alike_documents(text, "file")]
    values[2]["labels"]["a"] = "c"
    assert [value["labels"]["a"] for value in values] == ["b", "b", "c", "b", "b"]
    assert [value["name"] for value in values] == [f"web-{number}" for number in range(5)]
