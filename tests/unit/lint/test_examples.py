"""Every rule's page is true: its bad example is found by it alone, its good one by none, its edits mend."""

import copy
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.linting import Question, question
from nodewright.cli.telling import outcome
from nodewright.lint.findings import Edit
from nodewright.lint.rules import BY_ID, EVERYTHING, findings
from nodewright.render.lint.report import Told
from nodewright.render.lint.words import PAGES
from nodewright.world.inventory import load_inventory

_STEP = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


def applied(document: Mapping[str, Any], edits: Iterable[Edit]) -> dict[str, Any]:
    """The document with the edits made; mappings on the way are made as needed."""
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


def asked(rule: str, text: str, folder: Path) -> Question:
    page = PAGES[rule]
    manifest, kubelet = folder / "manifest.yaml", folder / "kubelet.yaml"
    manifest.write_text(text)
    kubelet.write_text(page.kubelet)
    is_config = "kind: KubeletConfiguration" in text and page.node
    config = str(manifest if is_config else kubelet) if is_config or page.kubelet else None
    files = [] if is_config else [str(manifest)]
    return question(load_inventory(files), page.node.split(), config)


def told(rule: str, text: str, folder: Path) -> list[Told]:
    """What is found in the example; NW209 needs a kubelet that is found fault with itself (NW321)."""
    found = outcome(asked(rule, text, folder), EVERYTHING).told
    return [one for one in found if (rule, one.rule.id) != ("NW209", "NW321")]


def test_every_rule_has_a_page() -> None:
    assert set(PAGES) == set(BY_ID)


@pytest.mark.parametrize("rule", sorted(PAGES))
def test_the_bad_example_is_found_by_its_rule_alone(rule: str, tmp_path: Path) -> None:
    found = told(rule, PAGES[rule].bad, tmp_path)
    assert {one.rule.id for one in found} == {rule}, found
    assert all(one.spot.line > 1 for one in found), "the place is not found"


@pytest.mark.parametrize("rule", sorted(PAGES))
def test_nothing_is_found_in_the_good_example(rule: str, tmp_path: Path) -> None:
    assert told(rule, PAGES[rule].good, tmp_path) == []


@pytest.mark.parametrize("rule", sorted(PAGES))
def test_the_edits_mend(rule: str, tmp_path: Path) -> None:
    looked_at = asked(rule, PAGES[rule].bad, tmp_path)
    edits = {
        one.subject.number: one.found.edits
        for one in findings(looked_at.subjects, looked_at.around)
        if one.rule.id == rule
    }
    if not edits or any(not each or any(edit.is_open for edit in each) for each in edits.values()):
        return  # There is nothing to do that could be written down.
    documents = list(yaml.safe_load_all(PAGES[rule].bad))
    objects = [one.document for one in looked_at.subjects]
    for number, each in edits.items():
        at = next(place for place, one in enumerate(documents) if one["kind"] == objects[number]["kind"])
        documents[at] = applied(documents[at], each)
    assert rule not in {one.rule.id for one in told(rule, yaml.safe_dump_all(documents), tmp_path)}
