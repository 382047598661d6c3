"""Findings as SARIF, which code hosts show beside the lines of a change."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec


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

    >>> from nodewright.documents.output.ci_formats import SARIFLevel
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
        "rules": [_rule(rule) for rule in rules],
    }
    results = [_result(finding, numbers[finding.rule]) for finding in findings]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}],
    }


def _rule(rule: SARIFRule) -> dict[str, Any]:
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


def _result(finding: SARIFResult, number: int) -> dict[str, Any]:
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
