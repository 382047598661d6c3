"""SARIF and JUnit reports for CI systems."""

from xml.dom.minidom import Element, parseString

import pytest

from nodewright.documents.output.ci_formats import (
    JUnitCase,
    JUnitSuite,
    SARIFLevel,
    SARIFResult,
    SARIFRule,
    SourcePosition,
    junit_text,
    sarif_document,
)

RULES = [
    SARIFRule(id="a", summary="A holds."),
    SARIFRule(
        id="b",
        summary="B holds.",
        level=SARIFLevel.WARNING,
        rationale="Because.",
        help_uri="https://example.com/b",
    ),
]


def finding(**changes: object) -> SARIFResult:
    values = {
        "rule": "b",
        "level": SARIFLevel.WARNING,
        "message": "no b",
        "position": SourcePosition(file="a.yaml"),
        **changes,
    }
    return SARIFResult(**values)  # type: ignore[arg-type] # a table of fields


def test_a_log_lists_all_rules_and_each_result_refers_to_its_rule() -> None:
    run = sarif_document(
        [finding(position=SourcePosition(file="./my dir/ü.yaml", line=3, column=7), subject="Pod a/b")],
        RULES,
        "1",
    )["runs"][0]
    driver = run["tool"]["driver"]
    assert [rule["id"] for rule in driver["rules"]] == ["a", "b"]
    assert driver["rules"][1]["help"]["text"] == "Because."
    assert driver["rules"][1]["helpUri"] == "https://example.com/b"
    assert driver["rules"][1]["defaultConfiguration"] == {"level": "warning"}
    (result,) = run["results"]
    assert (result["ruleId"], result["ruleIndex"], result["level"]) == ("b", 1, "warning")
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "my%20dir/%C3%BC.yaml"},
        "region": {"startLine": 3, "startColumn": 7},
    }
    assert location["logicalLocations"] == [{"fullyQualifiedName": "Pod a/b"}]


def test_a_fingerprint_ignores_the_line_but_not_the_file_or_message() -> None:
    def fingerprint_of(finding: SARIFResult) -> str:
        return str(
            sarif_document([finding], RULES, "1")["runs"][0]["results"][0]["partialFingerprints"][
                "finding/v1"
            ]
        )

    fingerprint = fingerprint_of(finding())
    assert fingerprint == fingerprint_of(finding(position=SourcePosition(file="a.yaml", line=9)))
    assert fingerprint != fingerprint_of(finding(position=SourcePosition(file="b.yaml")))
    assert fingerprint != fingerprint_of(finding(message="still no b"))


def test_a_finding_without_a_line_has_no_region() -> None:
    result = sarif_document([finding()], RULES, "1")["runs"][0]["results"][0]
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "a.yaml"}}}]


@pytest.mark.parametrize("text", ["<&>\"'", "]]>", "a\x00b\ud800", "line\nline\ttab"])
def test_any_text_gives_valid_xml(text: str) -> None:
    case = JUnitCase(name=text, failure=text, details=text, file=text, line=3)
    xml = junit_text([JUnitSuite(name=text, cases=(case, JUnitCase(name="ok")))])
    root = parseString(xml).documentElement  # noqa: S318 - it is our own
    assert isinstance(root, Element)
    assert (root.getAttribute("tests"), root.getAttribute("failures")) == ("2", "1")
    expected = text.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    first, second = root.getElementsByTagName("testcase")
    assert [first.getAttribute(name) for name in ("classname", "name", "file", "line")] == [
        expected,
        expected,
        expected,
        "3",
    ]
    (failure,) = first.getElementsByTagName("failure")
    assert failure.getAttribute("message") == expected
    assert "".join(str(part.nodeValue) for part in failure.childNodes) == expected
    assert not second.childNodes


def test_positions_are_printed_as_compilers_print_them() -> None:
    assert [
        str(SourcePosition(file="a", line=line, column=column)) for line, column in ((0, 0), (3, 0), (3, 7))
    ] == [
        "a",
        "a:3",
        "a:3:7",
    ]
