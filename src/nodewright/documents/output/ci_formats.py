"""Findings in the formats of CI systems: SARIF, JUnit, and workflow commands of GitHub Actions.

The texts of others become data of a workflow command: they cannot end it, nor begin another one.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec

from nodewright.model.patterns import lazy_pattern
from nodewright.model.printable import printable


class SARIFLevel(StrEnum):
    """The severity of a finding, as SARIF names it."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class SARIFRule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule, shared by all its findings."""

    id: str
    summary: str
    """The requirement in one sentence."""
    level: SARIFLevel = SARIFLevel.ERROR
    rationale: str = ""
    """An explanation in Markdown."""
    help_uri: str = ""


class SourcePosition(msgspec.Struct, frozen=True, kw_only=True):
    """A position in a file. Line and column count from 1; 0: unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])


class SARIFResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finding in a file."""

    rule: str
    """The id of the rule."""
    level: SARIFLevel
    message: str
    position: SourcePosition
    subject: str = ""
    """The affected object, e.g. `Deployment shop/web`."""


_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def sarif_document(
    findings: Sequence[SARIFResult], rules: Sequence[SARIFRule], version: str
) -> dict[str, Any]:
    """A SARIF log with one run: all rules, and the findings in order. `version` is nodewright's.

    Follows: SARIF 2.1.0, OASIS standard.

    >>> rule = SARIFRule(id="quota-exceeded", summary="Quotas have room.")
    >>> finding = SARIFResult(rule=rule.id, level=SARIFLevel.ERROR, message="no room", position=SourcePosition(file="a.yaml", line=3))
    >>> run = sarif_document([finding], [rule], "0.1")["runs"][0]
    >>> run["results"][0]["locations"][0]["physicalLocation"]["region"]
    {'startLine': 3}
    """
    numbers = {rule.id: number for number, rule in enumerate(rules)}
    driver = {
        "name": "nodewright",
        "version": version,
        "rules": [_sarif_rule(rule) for rule in rules],
    }
    results = [_sarif_result(finding, numbers[finding.rule]) for finding in findings]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}],
    }


def _sarif_rule(rule: SARIFRule) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": rule.id,
        "shortDescription": {"text": rule.summary},
        "defaultConfiguration": {"level": rule.level.value},
    }
    if rule.rationale:
        document["help"] = {"text": rule.rationale, "markdown": rule.rationale}
    if rule.help_uri:
        document["helpUri"] = rule.help_uri
    return document


def _sarif_result(finding: SARIFResult, number: int) -> dict[str, Any]:
    from hashlib import sha256  # noqa: PLC0415 - start-up time

    # Line numbers change with edits above the finding, so the fingerprint leaves them out.
    identity = f"{finding.rule}\n{finding.position.file}\n{finding.subject}\n{finding.message}"
    return {
        "ruleId": finding.rule,
        "ruleIndex": number,
        "level": finding.level.value,
        "message": {"text": finding.message},
        "locations": [_location(finding.position, finding.subject)],
        "partialFingerprints": {
            "finding/v1": sha256(identity.encode(errors="surrogateescape")).hexdigest()[:32]
        },
    }


def _location(position: SourcePosition, subject: str) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(position.file)}}
    region = {
        name: number
        for name, number in (("startLine", position.line), ("startColumn", position.column))
        if number
    }
    if region:
        physical["region"] = region
    location: dict[str, Any] = {"physicalLocation": physical}
    if subject:
        location["logicalLocations"] = [{"fullyQualifiedName": subject}]
    return location


def _uri(file: str) -> str:
    """The path as a percent-encoded URI reference; relative paths stay relative."""
    unescaped = "-._~/!$&'()*+,;=@"
    return "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter in unescaped else _escaped(letter)
        for letter in file.removeprefix("./")
    )


def _escaped(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode(errors="surrogateescape"))


# Characters that XML cannot represent, not even escaped.
_NOT_IN_XML = lazy_pattern("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnitCase(msgspec.Struct, frozen=True, kw_only=True):
    """One test; it passed if `failure` is empty."""

    name: str
    failure: str = ""
    """The cause of the failure in one line."""
    details: str = ""
    file: str = ""
    line: int = 0
    """Counted from 1; 0: unknown."""


class JUnitSuite(msgspec.Struct, frozen=True, kw_only=True):
    """A named group of tests."""

    name: str
    cases: tuple[JUnitCase, ...]


def junit_text(suites: Sequence[JUnitSuite]) -> str:
    """The suites as an XML document with a newline at the end.

    >>> text = junit_text([JUnitSuite(name="quota", cases=(JUnitCase(name="a"), JUnitCase(name="b", failure="no <room>")))])
    >>> text.splitlines()[5].strip()
    '<failure message="no &lt;room&gt;"/>'
    """
    cases = [case for suite in suites for case in suite.cases]
    lines = ['<?xml version="1.0" encoding="UTF-8"?>', _opening_tag("testsuites", "nodewright", cases)]
    for suite in suites:
        lines.append(f"  {_opening_tag('testsuite', suite.name, suite.cases)}")
        for case in suite.cases:
            lines.extend(_junit_case(suite.name, case))
        lines.append("  </testsuite>")
    return "\n".join([*lines, "</testsuites>", ""])


def _opening_tag(tag: str, name: str, cases: Sequence[JUnitCase]) -> str:
    failures = sum(bool(case.failure) for case in cases)
    return f'<{tag} name={_xml_attribute(name)} tests="{len(cases)}" failures="{failures}">'


def _junit_case(suite: str, case: JUnitCase) -> list[str]:
    tag = f"    <testcase classname={_xml_attribute(suite)} name={_xml_attribute(case.name)}"
    if case.file:
        tag += f" file={_xml_attribute(case.file)}"
    if case.line:
        tag += f' line="{case.line}"'
    if not case.failure:
        return [f"{tag}/>"]
    failure = f"      <failure message={_xml_attribute(case.failure)}"
    if case.details:
        text = _NOT_IN_XML.sub("\ufffd", case.details).replace("]]>", "]]]]><![CDATA[>")
        failure += f"><![CDATA[{text}]]></failure>"
    else:
        failure += "/>"
    return [f"{tag}>", failure, "    </testcase>"]


def _xml_attribute(text: str) -> str:
    from xml.sax.saxutils import quoteattr  # noqa: PLC0415 - imports an HTTP client

    return quoteattr(_NOT_IN_XML.sub("\ufffd", text), {"\n": "&#10;", "\t": "&#9;", "\r": "&#13;"})


_LEGACY_COMMANDS = lazy_pattern(r"##(?=\w*\[)")
COMMAND_BY_LEVEL: dict[SARIFLevel, Literal["error", "warning", "notice"]] = {
    SARIFLevel.ERROR: "error",
    SARIFLevel.WARNING: "warning",
    SARIFLevel.NOTE: "notice",
}


class WorkflowCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A message beside a line of a file.

    >>> str(WorkflowCommand(command="error", title="NW110", position=SourcePosition(file="a:b,c", line=3), text="50%"))
    '::error title=NW110,file=a%3Ab%2Cc,line=3::50%25'
    """

    command: Literal["error", "warning", "notice"]
    title: str
    position: SourcePosition
    text: str

    def __str__(self) -> str:
        position = self.position
        properties = {
            "title": self.title,
            "file": position.file,
            "line": position.line or "",
            "col": position.column or "",
        }
        named = ",".join(
            f"{name}={_command_property(str(value))}" for name, value in properties.items() if value
        )
        return f"::{self.command} {named}::{_command_data(self.text)}"


def _command_data(text: str) -> str:
    escaped = printable(text).replace("%", "%25")
    return _LEGACY_COMMANDS.sub("%23#", escaped)


def _command_property(text: str) -> str:
    return _command_data(text).replace(":", "%3A").replace(",", "%2C")
