"""Every rule's page is true: only its rule has a finding in the bad example, none in the good one, and its edits correct it."""

import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.documents.formats.inventory import load_inventory
from nodewright.predict.lint.lint_input import LintInput, load_lint_input
from nodewright.predict.lint.lint_model import SuggestedEdit
from nodewright.predict.lint.lint_report import LintFinding
from nodewright.predict.lint.lint_run import lint_result, rule_violations
from nodewright.predict.lint.rules import ALL_RULES, RULES_BY_ID

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def applied(document: Mapping[str, Any], edits: Iterable[SuggestedEdit]) -> dict[str, Any]:
    """The document with the edits applied; missing mappings are created."""
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    for edit in edits:
        *way, last = (key or name for key, name in _STEP.findall(edit.path))
        holder: Any = changed
        for step in way:
            if isinstance(holder, list):
                holder = holder[int(step)]
            else:
                if holder.get(step) is None:
                    holder[step] = {}
                holder = holder[step]
        if edit.value is None:
            holder.pop(last, None)
        else:
            holder[last] = edit.value
    return changed


def example_input(rule: str, text: str, folder: Path) -> LintInput:
    page = RULES_BY_ID[rule].page
    manifest, kubelet = folder / "manifest.yaml", folder / "kubelet.yaml"
    manifest.write_text(text)
    kubelet.write_text(page.kubelet_config)
    is_config = "kind: KubeletConfiguration" in text and page.node
    config = str(manifest if is_config else kubelet) if is_config or page.kubelet_config else None
    files = [] if is_config else [str(manifest)]
    return load_lint_input(load_inventory(files), page.node.split(), config)


def example_findings(rule: str, text: str, folder: Path) -> list[LintFinding]:
    """The findings in the example; NW209 needs a kubelet configuration with a finding of its own (NW321)."""
    lint_findings = lint_result(example_input(rule, text, folder), ALL_RULES).findings
    return [
        lint_finding for lint_finding in lint_findings if (rule, lint_finding.rule.id) != ("NW209", "NW321")
    ]


def test_every_rule_has_a_page() -> None:
    assert [rule.id for rule in RULES_BY_ID.values() if not rule.page.remedy] == []


@pytest.mark.parametrize("rule", sorted(RULES_BY_ID))
def test_a_pod_without_findings_hides_no_pod_that_differs_in_what_a_rule_reads(
    rule: str, tmp_path: Path
) -> None:
    """A rule that reads a field in which alike pods may differ has to say so (`LintRule.reads`)."""
    good, bad = (
        example_input(rule, text, tmp_path)
        for text in (RULES_BY_ID[rule].page.good, RULES_BY_ID[rule].page.bad)
    )
    alone = [violation.rule.id for violation in rule_violations(bad.subjects, bad.context)]
    together = rule_violations((*good.subjects, *bad.subjects), bad.context)
    assert [violation.rule.id for violation in together if violation.subject in bad.subjects] == alone


@pytest.mark.parametrize("rule", sorted(RULES_BY_ID))
def test_only_its_rule_has_a_finding_in_the_bad_example(rule: str, tmp_path: Path) -> None:
    lint_findings = example_findings(rule, RULES_BY_ID[rule].page.bad, tmp_path)
    assert {lint_finding.rule.id for lint_finding in lint_findings} == {rule}, lint_findings
    assert all(lint_finding.position.line > 1 for lint_finding in lint_findings), "the place is not found"


@pytest.mark.parametrize("rule", sorted(RULES_BY_ID))
def test_the_good_example_has_no_findings(rule: str, tmp_path: Path) -> None:
    assert example_findings(rule, RULES_BY_ID[rule].page.good, tmp_path) == []


@pytest.mark.parametrize("rule", sorted(RULES_BY_ID))
def test_the_suggested_edits_correct_the_bad_example(rule: str, tmp_path: Path) -> None:
    looked_at = example_input(rule, RULES_BY_ID[rule].page.bad, tmp_path)
    edits = {
        violation.subject.number: violation.violation.edits
        for violation in rule_violations(looked_at.subjects, looked_at.context)
        if violation.rule.id == rule
    }
    if not edits or any(not each or any(edit.needs_value for edit in each) for each in edits.values()):
        return  # There is nothing to do that could be written down.
    documents = list(yaml.safe_load_all(RULES_BY_ID[rule].page.bad))
    objects = [subject.document for subject in looked_at.subjects]
    for number, each in edits.items():
        # A configuration in a NodeProfile has no kind of its own.
        kind = objects[number].get("kind", "NodeProfile")
        at = next(place for place, one in enumerate(documents) if one["kind"] == kind)
        documents[at] = applied(documents[at], each)
    assert rule not in {
        example_finding.rule.id
        for example_finding in example_findings(rule, yaml.safe_dump_all(documents), tmp_path)
    }
