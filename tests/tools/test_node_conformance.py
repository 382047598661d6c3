"""The page on node conformance says what the kept results say."""

import json
from pathlib import Path

from tools import node_conformance
from tools.node_conformance import SpecResult

SUITE = """<testsuites><testsuite>
<testcase name="[It] [sig-node] Pods run [Conformance] [sig-node, Conformance]" status="passed"/>
<testcase name="[It] [sig-node] Pods use | swap [sig-node, Slow]" status="skipped"><skipped message="skipped - no swap"/></testcase>
<testcase name="[It] [sig-node] Pods wait [sig-node, Slow]" status="skipped"><skipped message="skipped"/></testcase>
<testcase name="[It] [sig-node] Pods end [sig-node, Slow]" status="failed"><failure message="timed out&#10;twice"/></testcase>
<testcase name="[BeforeSuite]" status="passed"/>
</testsuite></testsuites>"""


def test_results_are_of_the_specs_that_were_chosen(tmp_path: Path) -> None:
    (tmp_path / "suite.xml").write_text(SUITE, "utf-8")
    assert node_conformance.results(tmp_path) == {
        "[sig-node] Pods end": SpecResult("failed", "timed out twice"),
        "[sig-node] Pods run [Conformance]": SpecResult("passed"),
        "[sig-node] Pods use | swap": SpecResult("skipped", "no swap"),
    }


def test_the_page_is_that_of_the_kept_results() -> None:
    figures = json.loads(node_conformance.FIGURES.read_text("utf-8"))
    text = node_conformance.PAGE.read_text("utf-8")
    assert node_conformance.page(figures, text) == text
