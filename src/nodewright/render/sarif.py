"""Findings as SARIF, which code hosts show beside the lines of a change."""

import hashlib
from collections.abc import Sequence
from typing import Any

from nodewright.render.findings import Finding, Rule, Spot

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_HOME = "https://pypi.org/project/nodewright/"


def sarif_document(findings: Sequence[Finding], rules: Sequence[Rule], version: str) -> dict[str, Any]:
    """A SARIF log with one run: all rules, and the findings in the order given. `version` is our own.

    Follows: SARIF 2.1.0, OASIS standard.

    >>> from nodewright.render.findings import Level
    >>> rule = Rule(id="quota-exceeded", summary="Quotas have room.")
    >>> found = Finding(rule=rule.id, level=Level.ERROR, message="no room", spot=Spot(file="a.yaml", line=3))
    >>> run = sarif_document([found], [rule], "0.1")["runs"][0]
    >>> run["results"][0]["locations"][0]["physicalLocation"]["region"]
    {'startLine': 3}
    """
    numbers = {rule.id: number for number, rule in enumerate(rules)}
    driver = {
        "name": "nodewright",
        "version": version,
        "informationUri": _HOME,
        "rules": [_rule(rule) for rule in rules],
    }
    results = [_result(finding, numbers[finding.rule]) for finding in findings]
    return {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results, "columnKind": "unicodeCodePoints"}],
    }


def _rule(rule: Rule) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": rule.id,
        "shortDescription": {"text": rule.summary},
        "defaultConfiguration": {"level": rule.level.value},
    }
    if rule.why:
        found["help"] = {"text": rule.why, "markdown": rule.why}
    if rule.help_uri:
        found["helpUri"] = rule.help_uri
    return found


def _result(finding: Finding, number: int) -> dict[str, Any]:
    # Lines move when something is written above them; what is found stays the same.
    known_by = f"{finding.rule}\n{finding.spot.file}\n{finding.subject}\n{finding.message}"
    return {
        "ruleId": finding.rule,
        "ruleIndex": number,
        "level": finding.level.value,
        "message": {"text": finding.message},
        "locations": [_location(finding.spot, finding.subject)],
        "partialFingerprints": {"finding/v1": hashlib.sha256(known_by.encode()).hexdigest()[:32]},
    }


def _location(spot: Spot, subject: str) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": _uri(spot.file)}}
    region = {
        name: number for name, number in (("startLine", spot.line), ("startColumn", spot.column)) if number
    }
    if region:
        physical["region"] = region
    location: dict[str, Any] = {"physicalLocation": physical}
    if subject:
        location["logicalLocations"] = [{"fullyQualifiedName": subject}]
    return location


def _uri(file: str) -> str:
    """The file as a reference that is relative where the path is: reserved characters in per cent."""
    kept = "-._~/!$&'()*+,;=@"
    return "".join(
        letter if (letter.isascii() and letter.isalnum()) or letter in kept else _escaped(letter)
        for letter in file.removeprefix("./")
    )


def _escaped(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())
