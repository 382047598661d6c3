"""What upstream's node conformance suite says of the agent: `python -m tools node-conformance OURS [KUBELET]`.

Both are directories with the suite's JUnit files, of a run with the agent in the place of the kubelet, and of one with the real
kubelet on the same machine. Writes docs/figures/node-conformance.json, and docs/reference/conformance.md from it.
"""

import argparse
import json
import re
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tools.source import ROOT, commit

FIGURES = ROOT / "docs" / "figures" / "node-conformance.json"
PAGE = ROOT / "docs" / "reference" / "conformance.md"
_LABELS = re.compile(r" \[[^\[\]]*, [^\[\]]*\]$")
_MARK = "[Conformance]"
_HEADING = "\n## Results\n"
_REASON_CHARACTERS = 160


class SpecResult(NamedTuple):
    """How a spec ended."""

    status: str
    """passed, failed or skipped."""
    reason: str = ""


def results(directory: Path) -> dict[str, SpecResult]:
    """The results in the directory's JUnit files by name; of a spec that ran again, the last."""
    ended: dict[str, SpecResult] = {}
    for path in sorted(directory.rglob("*.xml"), key=lambda path: path.stat().st_mtime):
        for case in ET.parse(path).iter("testcase"):  # noqa: S314 - the suite wrote it
            name, result = spec_result(case)
            if name and result is not None:
                ended[name] = result
    return dict(sorted(ended.items()))


def spec_result(case: ET.Element) -> tuple[str, SpecResult | None]:
    """The name of a spec and how it ended; None: it was not chosen.

    >>> case = '<testcase name="[It] [sig-node] Pods x [sig-node, Slow]" status="skipped"><skipped message="skipped - no PSI"/></testcase>'
    >>> spec_result(ET.fromstring(case))
    ('[sig-node] Pods x', SpecResult(status='skipped', reason='no PSI'))
    """
    name, status = _LABELS.sub("", case.get("name", "")), case.get("status", "")
    messages = [each.get("message", "") for each in case if each.tag in ("failure", "error", "skipped")]
    reason = (messages[0] if messages else "").removeprefix("skipped").removeprefix(" - ")
    is_cut_off = status == "interrupted" or "interrupted" in reason
    if not name.startswith("[It] ") or is_cut_off or (status == "skipped" and not reason):
        return "", None
    if status not in ("passed", "skipped"):
        status = "failed"
    line = " ".join(reason.split())[:_REASON_CHARACTERS]
    return name.removeprefix("[It] "), SpecResult(status, line)


def page(figures: dict[str, dict[str, list[str]]], text: str) -> str:
    """The reference page with the results in the place of earlier ones: sums, what did not pass, and all specs."""
    ours, kubelet = figures["agent"], figures["kubelet"]
    parts = [text.partition(_HEADING)[0].rstrip(), _HEADING, _sums(ours, kubelet)]
    for status, title in (("failed", "Failed"), ("skipped", "Skipped by the suite")):
        rows = [(name, each[1]) for name, each in ours.items() if each[0] == status]
        if rows:
            parts += [f"\n## {title}\n", "| spec | reason | kubelet |\n|---|---|---|"]
            parts += [f"| {_cell(name)} | {_cell(reason)} | {_of(kubelet, name)} |" for name, reason in rows]
    parts.append("\n## Passed\n")
    parts += [f"- {_cell(name)}" for name, each in ours.items() if each[0] == "passed"]
    return "\n".join(parts) + "\n"


def _sums(ours: dict[str, list[str]], kubelet: dict[str, list[str]]) -> str:
    lines = [
        "| specs | all | run by | passed | failed | skipped | not run |",
        "|---|---|---|---|---|---|---|",
    ]
    runs = [("agent", ours), *([("kubelet 1.36.2", kubelet)] if kubelet else [])]
    for title, total, is_chosen in (("Conformance", 141, True), ("other node conformance", 333, False)):
        for name, run in runs:
            counts = Counter(each[0] for spec, each in run.items() if (_MARK in spec) is is_chosen)
            cells = [counts[status] for status in ("passed", "failed", "skipped")]
            row = [title, total, name, *cells, total - sum(cells)]
            lines.append(f"| {' | '.join(map(str, row))} |")
    return "\n".join(lines)


def _of(run: dict[str, list[str]], name: str) -> str:
    return run[name][0] if name in run else "not run"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def main() -> None:
    """Reads both runs and writes figures and page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agent", type=Path)
    parser.add_argument("kubelet", type=Path, nargs="?")
    options = parser.parse_args()
    figures = {
        "agent": results(options.agent),
        "kubelet": results(options.kubelet) if options.kubelet is not None else {},
    }
    document = {"suite": "1.36.2", "commit": commit(), "date": time.strftime("%Y-%m-%d"), **figures}
    FIGURES.write_text(json.dumps(document, indent=1) + "\n", "utf-8")
    write()


def write() -> None:
    """Writes the page from the figures that are kept."""
    figures = json.loads(FIGURES.read_text("utf-8"))
    PAGE.write_text(page(figures, PAGE.read_text("utf-8")), "utf-8")
