"""What CI systems read."""

from xml.dom.minidom import Element, parseString

import pytest

from nodewright.render.findings import Finding, Level, Rule, Spot
from nodewright.render.junit import Case, Suite, junit_text
from nodewright.render.sarif import sarif_document

RULES = [
    Rule(id="a", summary="A holds."),
    Rule(id="b", summary="B holds.", level=Level.WARNING, why="Because.", help_uri="https://example.com/b"),
]


def found(**others: object) -> Finding:
    values = {"rule": "b", "level": Level.WARNING, "message": "no b", "spot": Spot(file="a.yaml"), **others}
    return Finding(**values)  # type: ignore[arg-type] # a table of fields


def test_a_log_has_all_rules_and_each_finding_names_its_own() -> None:
    run = sarif_document(
        [found(spot=Spot(file="./my dir/ü.yaml", line=3, column=7), subject="Pod a/b")], RULES, "1"
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


def test_findings_are_known_again_when_lines_move_and_not_when_they_are_about_something_else() -> None:
    def print_of(finding: Finding) -> str:
        return str(
            sarif_document([finding], RULES, "1")["runs"][0]["results"][0]["partialFingerprints"][
                "finding/v1"
            ]
        )

    here = print_of(found())
    assert here == print_of(found(spot=Spot(file="a.yaml", line=9)))
    assert here != print_of(found(spot=Spot(file="b.yaml")))
    assert here != print_of(found(message="still no b"))


def test_a_finding_without_a_line_has_no_region() -> None:
    result = sarif_document([found()], RULES, "1")["runs"][0]["results"][0]
    assert result["locations"] == [{"physicalLocation": {"artifactLocation": {"uri": "a.yaml"}}}]


@pytest.mark.parametrize("text", ["<&>\"'", "]]>", "a\x00b\ud800", "line\nline\ttab"])
def test_any_text_makes_sound_xml(text: str) -> None:
    case = Case(name=text, failure=text, details=text, file=text, line=3)
    xml = junit_text([Suite(name=text, cases=(case, Case(name="ok")))])
    root = parseString(xml).documentElement  # noqa: S318 - it is our own
    assert isinstance(root, Element)
    assert (root.getAttribute("tests"), root.getAttribute("failures")) == ("2", "1")
    shown = text.replace("\x00", "\ufffd").replace("\ud800", "\ufffd")
    first, second = root.getElementsByTagName("testcase")
    assert [first.getAttribute(name) for name in ("classname", "name", "file", "line")] == [
        shown,
        shown,
        shown,
        "3",
    ]
    (failure,) = first.getElementsByTagName("failure")
    assert failure.getAttribute("message") == shown
    assert "".join(str(part.nodeValue) for part in failure.childNodes) == shown
    assert not second.childNodes


def test_places_are_written_as_compilers_do() -> None:
    assert [str(Spot(file="a", line=line, column=column)) for line, column in ((0, 0), (3, 0), (3, 7))] == [
        "a",
        "a:3",
        "a:3:7",
    ]
