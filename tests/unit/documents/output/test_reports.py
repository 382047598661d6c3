"""Reports have the fields that their schemas announce."""

import json
import shlex
from collections.abc import Mapping
from functools import cache
from typing import Literal

import pytest
import yaml
from msgspec import UNSET, UnsetType
from tests.support.json_schema import violations

from nodewright.cli.about import OBJECTS, REPORTS, schema_of
from nodewright.documents.output.json_yaml import Inlined, Report, ReportDocument, as_json
from nodewright.documents.output.report_schemas import report_schema
from nodewright.documents.output.terminal import ERROR
from nodewright.model.reasons.reason import OSFieldMismatch, SysctlForbidden
from nodewright.model.values.idset import CPUSet
from tools.consoles import PROGRAM, blocks, console_commands, documents, execute, words
from tools.reference import SCHEMAS, schema_pages
from tools.shots import SHOTS
from tools.source import ROOT

FORMATS = ("json", "yaml", "junit", "sarif", "wide", "name")


class Machine(Inlined, frozen=True, kw_only=True):
    """A part."""

    shared_cpus: CPUSet
    """Not allocated."""


class ExampleReport(ReportDocument, frozen=True, kw_only=True):
    """An example."""

    kind: Literal["ExampleReport"] = "ExampleReport"
    machine: Machine
    origin: str | UnsetType = UNSET
    counts: Mapping[str, int | None]
    because: tuple[OSFieldMismatch | SysctlForbidden, ...]
    children: tuple["Child", ...] = ()


class Child(Report, frozen=True, kw_only=True):
    """A part of its own kind."""

    children: tuple["Child", ...] = ()


EXAMPLE = ExampleReport(
    machine=Machine(shared_cpus=CPUSet.of(0, 1, 2)),
    counts={"a": 1, "b": None},
    because=(OSFieldMismatch(wanted="windows", actual="linux"),),
    children=(Child(children=(Child(),)),),
)
SCHEMA = report_schema(ExampleReport, "ExampleReport")


def test_a_report_is_encoded_in_the_order_of_its_fields_without_those_that_are_unset() -> None:
    document = json.loads(as_json(EXAMPLE))
    assert list(document) == ["apiVersion", "kind", "sharedCPUs", "counts", "because", "children"]
    assert document["sharedCPUs"] == "0-2"
    assert document["because"] == [{"type": "OSFieldMismatch", "wanted": "windows", "actual": "linux"}]


def test_a_schema_has_the_texts_of_the_docstrings() -> None:
    definition = SCHEMA["$defs"]["ExampleReport"]
    assert definition["description"] == "An example."
    assert definition["properties"]["sharedCPUs"] == {
        "description": "Not allocated.",
        "$ref": "#/$defs/CPUSet",
    }
    assert definition["required"] == ["apiVersion", "kind", "sharedCPUs", "counts", "because", "children"]


def test_a_report_satisfies_its_schema() -> None:
    assert not violations(SCHEMA, json.loads(as_json(EXAMPLE)))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "Other"},
        {"sharedCPUs": 3},
        {"counts": {"a": "1"}},
        {"because": [{"type": "OSFieldMismatch", "wanted": "windows"}]},
        {"because": [{"type": "Unknown"}]},
        {"children": [{"children": [{"children": 0}]}]},
        {"more": 1},
    ],
)
def test_a_document_with_another_content_does_not(change: dict[str, object]) -> None:
    assert violations(SCHEMA, json.loads(as_json(EXAMPLE)) | change)


def test_a_document_without_a_field_does_not() -> None:
    document = json.loads(as_json(EXAMPLE))
    del document["counts"]
    assert violations(SCHEMA, document)


@pytest.mark.parametrize("kind", [kind for kind in REPORTS if kind not in OBJECTS])
def test_the_kind_is_the_one_that_the_schema_requires(kind: str) -> None:
    its_schema = schema(kind)
    definition = its_schema["$defs"][its_schema["$ref"].removeprefix("#/$defs/")]
    assert definition["properties"].get("kind", {"enum": [kind]})["enum"] == [kind]


def test_published_schemas_are_those_of_the_structs() -> None:
    made = dict(schema_pages())
    stale = [
        path.name for path, text in made.items() if not path.is_file() or path.read_text("utf-8") != text
    ]
    stale += [path.name for path in SCHEMAS.iterdir() if path not in made]
    assert not stale, "write them with `python -m tools regenerate`"


schema = cache(schema_of)
NO_REPORT = {"--help", "--explain", "export", "catalogue"}
"""Words of commands whose output is no report."""


@pytest.mark.parametrize("kind", OBJECTS)
def test_examples_satisfy_the_schema_of_their_kind(kind: str) -> None:
    """Fields of pods that nodewright ignores are no part of the schema, which does not forbid them."""
    tried = 0
    for path in (ROOT / "examples").rglob("*.yaml"):
        text = path.read_text("utf-8")
        if f"\nkind: {kind}\n" in text and "---" not in text:
            document = json.loads(json.dumps(yaml.safe_load(text), default=str))
            texts = violations(schema(kind), document)
            assert not [text for text in texts if not text.endswith("is not a property")], path
            tried += 1
    assert tried > 3


def commands() -> list[str]:
    """The commands of the shots and of the guide that print a report, with `-o json`."""
    lines = list(SHOTS.values())
    for page in documents():
        for block in blocks(page.read_text("utf-8"), "console"):
            lines += [each.command for each in console_commands(block)]
    made = dict.fromkeys(_with_json(words(line)) for line in lines if words(line)[:1] == [PROGRAM])
    names = {tuple(report.command.split()[:1]) for report in REPORTS.values()}
    return [shlex.join(command) for command in made if command[1:2] in names and not NO_REPORT & set(command)]


def _with_json(command: list[str]) -> tuple[str, ...]:
    if "-o" in command:
        at = command.index("-o")
        command = command[:at] + command[at + 2 :]
    return (*command, "-o", "json")


@pytest.mark.slow
@pytest.mark.parametrize("command", commands())
def test_the_output_of_a_command_satisfies_its_schema(command: str) -> None:
    ran = execute(command)
    if ran.code == ERROR:
        assert "error: " in ran.output  # A page shows how a fault is reported.
        return
    document, _ = json.JSONDecoder().raw_decode(ran.output, ran.output.index("{\n"))
    word = words(command)[1]
    kinds = [kind for kind, report in REPORTS.items() if report.command.split()[0] == word]
    differences = {kind: violations(schema(kind), document) for kind in [document.get("kind")] if kind} or {
        kind: violations(schema(kind), document) for kind in kinds
    }
    assert not min(differences.values(), key=len), differences
