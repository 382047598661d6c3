"""What `nodewright explain` prints for the examples, kept as files: a changed sentence shows up in review.

`python -m tools regenerate` rewrites the files.
"""

import os
from pathlib import Path

import pytest

from tools.consoles import execute

FOLDER = Path(__file__).parent / "explain"
NO, YES = 3, 0
SPLIT = "-f examples/numa/split-pods.yaml --node examples/numa/split-node.yaml"
TELCO = "-f examples/numa/telco-pods.yaml --node examples/numa/telco-node.yaml"
CASES = {
    "gpu-nic.txt": ("-f examples/numa/gpu-nic-pods.yaml --node examples/numa/gpu-nic-node.yaml", NO),
    "gpu-nic.wide.txt": (
        "-f examples/numa/gpu-nic-pods.yaml --node examples/numa/gpu-nic-node.yaml --pod ml/train-1 -o wide",
        YES,
    ),
    "split.restricted.txt": (SPLIT, NO),
    "split.restricted.yaml": (f"{SPLIT} -o yaml", NO),
    "split.best-effort.txt": (f"{SPLIT} --kubelet-config examples/numa/split-best-effort.yaml", YES),
    "split.single-numa-node.txt": (f"{SPLIT} --kubelet-config examples/numa/split-single-numa-node.yaml", NO),
    "smt.txt": ("-f examples/numa/smt-pods.yaml --node examples/numa/smt-node.yaml", NO),
    "memory.txt": ("-f examples/numa/memory-pods.yaml --node examples/numa/memory-node.yaml", NO),
    "room.txt": ("-f examples/admission/pods.yaml --node examples/nodes/worker.yaml", NO),
    "failed.txt": ("--pod examples/failed/out-of-cpu.yaml --node examples/nodes/worker.yaml", NO),
    "failed.yaml": ("--pod examples/failed/out-of-cpu.yaml --node examples/nodes/worker.yaml -o yaml", NO),
    "failed.evicted.txt": ("--pod examples/failed/evicted.yaml --node examples/nodes/worker.yaml", YES),
    "failed.now-admitted.txt": ("--pod examples/failed/out-of-cpu.yaml --node vm-4", YES),
    **{
        f"status.{name}.txt": (f"--pod examples/failed/{name}.yaml", NO)
        for name in (
            "after-reboot",
            "crash-loop",
            "evicted",
            "oom-without-limit",
            "out-of-cpu",
            "preempted",
            "resize-deferred",
            "resize-infeasible",
            "unschedulable",
        )
    },
    "status.crash-loop.yaml": ("-f examples/failed/crash-loop.yaml -o yaml", NO),
    "status.crash-loop.on-node.txt": (
        "-f examples/failed/crash-loop.yaml --node examples/nodes/worker.yaml",
        NO,
    ),
    "telco.txt": (TELCO, NO),
    "telco.wide.txt": (f"{TELCO} --pod telco/upf -o wide", NO),
    "telco.yaml": (f"{TELCO} --pod telco/packet-core -o yaml", NO),
    "cut-short.txt": (f"{SPLIT} --budget 3", NO),
}


@pytest.mark.parametrize("name", CASES)
def test_the_examples_give_the_stored_output(name: str) -> None:
    arguments, code = CASES[name]
    stored = FOLDER / name
    ran = execute(f"nodewright explain {arguments}", columns=80)
    if os.environ.get("REFRESH_GOLDEN"):
        stored.write_text(ran.output, "utf-8")
    assert ran.code == code
    assert ran.output == stored.read_text("utf-8")
    assert not name.endswith("txt") or max(map(len, ran.output.splitlines())) <= 80


def test_every_file_belongs_to_a_test() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)
