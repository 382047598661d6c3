"""What `nodewright fit` and `nodewright drain` print for the examples, kept as files.

`python -m tools regenerate` rewrites the files.
"""

import os
from pathlib import Path

import pytest

from tools.consoles import execute

FOLDER = Path(__file__).parent / "fit-and-drain"
_KUBELET = "--kubelet-config examples/fit/single-numa-node.yaml"
_TRAP = f"fit -f examples/fit/four-gpus.yaml --node p5.48xlarge {_KUBELET} --pods examples/fit/pods.yaml"
_NODES = f"--nodes examples/fit/cluster.yaml {_KUBELET}"
_SHOP = "-f examples/drain/shop.yaml --kubelet-config examples/drain/kubelet.yaml"
CASES = {
    "trap.txt": (_TRAP, 3),
    "trap.json": (f"{_TRAP} -o json", 3),
    "nodes.txt": (f"fit {_NODES}", 0),
    "nodes.json": (f"fit {_NODES} -f examples/fit/four-gpus.yaml -o json", 0),
    "queues.txt": (f"fit {_NODES} -f examples/other-systems/queue.yaml -f examples/fit/four-gpus.yaml", 0),
    "planned.txt": ("fit --nodes examples/other-systems/machine-deployments.yaml", 0),
    "drain.json": (f"drain node/worker-1 {_SHOP} -o json", 3),
    "drain.two.txt": (f"drain --nodes worker-2,worker-1 {_SHOP}", 3),
}


@pytest.mark.parametrize("name", CASES)
def test_the_examples_give_the_stored_output(name: str) -> None:
    line, code = CASES[name]
    stored = FOLDER / name
    ran = execute(f"nodewright {line}")
    if os.environ.get("REFRESH_GOLDEN"):
        stored.write_text(ran.output, "utf-8")
    assert ran.code == code
    assert ran.output == stored.read_text("utf-8")


def test_every_file_belongs_to_a_test() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(CASES)
