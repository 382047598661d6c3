"""Whole state files of the managers, and what kubelets of 1.36 and 1.37 read of them with and without pod-level managers."""

import json
from pathlib import Path
from typing import Any

import pytest

from nodewright.model.releases.release_table import RELEASE_TABLES
from nodewright.testing.conformance.vectors import answer_family

CASES = [
    json.loads(line)
    for line in (Path(__file__).parent / "state-files-1.37.jsonl").read_text("utf-8").splitlines()
]
"""The reading of 1.36 is recorded, that of the memory manager of 1.37 as well; the CPU manager's of 1.37 is derived."""


def expected(case: dict[str, Any], release: str, gate: str) -> dict[str, Any]:
    read = case[f"read_{release}_gate_{gate}"]
    if "error" in read:
        return {"error": read["error"]}
    pods = {uid: entry.get("cpuSet", entry) for uid, entry in read["podEntries"].items()}
    rest = {
        {"defaultCpuSet": "defaultCPUSet"}.get(name, name): value
        for name, value in read.items()
        if name not in ("entries", "podEntries")
    }
    return {**rest, "assignments": read["entries"], "podAssignments": pods, "bytesAfterRead": case["content"]}


@pytest.mark.parametrize("gate", ["false", "true"])
@pytest.mark.parametrize("release", ["1.36", "1.37"])
@pytest.mark.parametrize("case", CASES, ids=[f"{case['file']}: {case['case']}" for case in CASES])
def test_a_kubelet_reads_what_was_recorded(case: dict[str, Any], release: str, gate: str) -> None:
    question = {
        "op": "read",
        "file": f"{case['file']}_manager_state",
        "bytes": case["content"],
        "policyName": case["policy"],
        "podLevelResourceManagers": gate == "true",
    }
    answer = answer_family("checkpoint", question, {}, RELEASE_TABLES[release])
    if "error" in answer:
        answer = {"error": answer["error"].partition(", please drain this node")[0]}
    assert answer == expected(case, release, gate)
