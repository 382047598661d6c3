"""Every number that enters has a bound where it enters: options of commands, and integer fields of documents."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from tests.support.all_commands import all_commands
from tests.support.limited import run_limited
from tests.unit.cli.test_bounded_work import POD, PROFILE
from tests.unit.cli.test_odd_agents import places, with_value

from nodewright.cli.app import run
from nodewright.documents.formats.decode import (
    INTEGER_BOUNDS,
    KUBERNETES,
    NODEWRIGHT,
    UNIT_BYTES,
    _whole_number,
    schema_type,
    table_lines,
    type_faults,
)
from nodewright.documents.output.command_line import FiniteRange, IntegerRange
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES
from nodewright.documents.profiles.planned_objects import number_of
from nodewright.documents.profiles.usage_history import _moment_ns
from nodewright.model.errors import InputError
from nodewright.predict.policy_registry import chosen_predictor

EXTREMES = (0, -1, 2**31, 2**63, 10**18, 10**400, int("9" * 4000), float("nan"), float("inf"), "", "9" * 30)
MAX_OPTION = 2**63 - 1
ODD_DIGITS = ("1_0", " 1", "1\n", "\u0661", "\uff11")
"""What Python alone takes as a number."""


OPTIONS = {
    f"{name} {parameter.opts[0]}": parameter
    for name, command in all_commands()
    for parameter in command.params
    if isinstance(parameter.type, click.types.IntParamType | click.types.FloatParamType)
}
"""Every option and argument of a command that is a number."""


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_is_a_number_has_bounds(name: str) -> None:
    kind = OPTIONS[name].type
    convert: Any = kind.convert
    assert isinstance(kind, IntegerRange | FiniteRange), "use IntegerRange(min, max)"
    assert kind.min is not None
    assert kind.max is not None
    assert -MAX_OPTION - 1 <= kind.min <= kind.max <= MAX_OPTION
    assert not kind.clamp
    for text in ("1e400", "nan", "inf", "-inf", "", "9" * 4000, "9" * 5000, str(2**64), *ODD_DIGITS):
        with pytest.raises(click.BadParameter):
            convert(text, None, None)


def test_digits_of_an_option_are_plain(capsys: pytest.CaptureFixture[str]) -> None:
    for text in ODD_DIGITS:
        assert run(["fleet", "generate", "out", "--nodes", text]) == USAGE
        rule = "is not a number: write digits 0 to 9, without spaces and underscores."
        assert f"Invalid value for '--nodes': {text!r} {rule}" in capsys.readouterr().err
        assert run(["admit", "--request-timeout", text]) == USAGE
        assert "Invalid value for '--request-timeout': " in capsys.readouterr().err
        assert number_of(text) is None
        with pytest.raises(InputError, match="must be NAME or NAME:PERCENT"):
            chosen_predictor(f"machine-peak:{text}", "--policy")
        with pytest.raises(ValueError, match="must be seconds or a timestamp"):
            _moment_ns(text.strip().replace("1", "\u0661"))


@pytest.mark.parametrize("text", ["1e30", "-1e30", "1e400", "Mi", "."])
def test_an_amount_that_counts_as_0_in_kubernetes_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, usage = tmp_path / "usage.csv", tmp_path / "usage.json"
    table.write_text(f"pod,memory\nshop/web,{text}\n")
    spec = {"capacity": {"pid.available": text}}
    usage.write_text(json.dumps({"apiVersion": "nodewright.dev/v1alpha1", "kind": "NodeUsage", "spec": spec}))
    evict = ["evict", "--node", "examples/eviction/node.yaml"]
    timeline = [*evict, "--usage", "examples/eviction/summary.json", "--timeline", "--growth"]
    for words in (
        [*evict, "--available", f"memory.available={text}"],
        [*timeline, f"shop/web={text}/s"],
        ["admit", "--shape", "1x1x1x1", "--memory", text],
        ["requests", "--memory-capacity", text, "examples/admission/pods.yaml"],
        *([*evict, "--usage", str(path)] for path in (table, usage) if "e" in text),
    ):
        assert run(words) in (USAGE, ERROR), words
        error = capsys.readouterr().err
        assert f"must be at most {MAX_OPTION}" in error or "must" in error or "unable to parse" in error


EXTREME_TEXTS = (
    "0",
    "-1",
    "",
    "9" * 5000,
    "1e400",
    "1E999999999",
    "NaN",
    "Infinity",
    f"{2**63}",
    f"{10**18}h",
    f"{10**18}",
)


@pytest.mark.parametrize("text", EXTREME_TEXTS, ids=lambda text: text[:12] or "empty")
@pytest.mark.parametrize(
    "option",
    [
        ["admit", "--node", "vm-4", "-f", "FILE", "--max-document-size"],
        ["admit", "-f", "FILE", "--shape", "1x1x1x1", "--memory"],
        ["admit", "--node", "vm-4", "-f", "FILE", "--request-timeout"],
        ["admit", "-f", "FILE", "--shape"],
        ["fleet", "run", "--nodes", "NODES", "--pods", "FILE", "--max-unpacked-size"],
        ["fleet", "run", "--nodes", "NODES", "--pods", "FILE", "--shapes"],
        ["fleet", "run", "--nodes", "NODES", "--pods", "FILE", "--until"],
    ],
    ids=lambda words: words[-1],
)
def test_an_amount_of_an_option_is_taken_or_refused(
    option: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"FILE": tmp_path / "pod.json", "NODES": tmp_path / "nodes.csv"}
    files["FILE"].write_text(POD % 1)
    files["NODES"].write_text("name,cpu,memory\na,1,1Gi\n")
    code = run([*(str(files.get(word, word)) for word in option), text])
    assert code in (YES, NO, ERROR, USAGE)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.slow
def test_a_duration_of_many_parts_is_read_in_linear_time(tmp_path: Path) -> None:
    # A copy of the rest for each part takes more CPU time than a limited run has.
    ended = run_limited(
        ["logs", "web", "--socket", str(tmp_path / "none"), "--since", "0s" * 400_000], tmp_path / "out"
    )
    assert ended.is_bounded, ended
    assert "no agent listens there" in ended.output


def integer_fields() -> Iterator[tuple[str, str, str]]:
    """Every integer of the schema tables: type, field, kind."""
    for name in {**table_lines(KUBERNETES), **table_lines(NODEWRIGHT)}:
        for field, schema in (schema_type(name).fields or {}).items():
            if schema.kind in INTEGER_BOUNDS and str not in schema.accepts:
                yield name, field, schema.kind


def test_an_integer_field_takes_what_its_kind_holds() -> None:
    fields = list(integer_fields())
    assert len(fields) > 100
    for name, field, kind in fields:
        low, high = INTEGER_BOUNDS[kind]
        for value in EXTREMES:
            is_taken = not type_faults({field: value}, name)
            number = _whole_number(value) if kind in UNIT_BYTES and isinstance(value, str) else value
            is_valid = type(number) is int and low <= number <= high
            missing = schema_type(name).required
            assert is_taken == is_valid or missing, (name, field, str(value)[:20])


def test_no_number_of_a_profile_gives_a_traceback(tmp_path: Path) -> None:
    document = yaml.safe_load(PROFILE.format(node=0, thread=0, cpus=0))
    del document["spec"]["allocations"]
    file, count = tmp_path / "n.json", 0
    for path in places(document):
        value = document
        for key in path:
            value = value[key]
        if type(value) is not int:
            continue
        for extreme in EXTREMES:
            count += 1
            if extreme == "":
                continue
            file.write_text(json.dumps(with_value(document, path, extreme)))
            assert run(["node", "show", "--node", str(file)]) in (YES, ERROR)
    assert count > 80
