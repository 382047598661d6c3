"""What every command prints, at 80 and 200 columns, kept as text: `python -m tools shots [NAME...]` or `make shots`.

A test fails where a stored shot is not what its command prints now. Each shot names files of the project and
nodes of the catalogue alone: what depends on this machine has no place here.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from nodewright.cli.app import COMMANDS
from tools import dashboard_shots
from tools.consoles import execute
from tools.source import ROOT

FOLDER = ROOT / "docs" / "shots"
WIDTHS = (80, 200)

# Name of the shot -> command. Add a line, run `make shots`, read what it made, commit both. The help of each command
# has a shot without a line here.
SHOTS = {
    **{f"help-{name}": f"nodewright {name} --help" for name in COMMANDS},
    "requests": "nodewright requests -f examples/requests/qos.yaml --memory-capacity 64Gi --explain",
    "requests-table": "nodewright requests -f examples/requests/qos.yaml --memory-capacity 64Gi",
    "requests-wide": "nodewright requests -f examples/requests/qos.yaml --memory-capacity 64Gi -o wide",
    "requests-init-containers": "nodewright requests -f examples/requests/init-containers.yaml --node vm-4 --explain",
    "admit": "nodewright admit -f examples/admission/pods.yaml --node examples/nodes/worker.yaml",
    "admit-wide": "nodewright admit -f examples/admission/pods.yaml --node examples/nodes/worker.yaml -o wide",
    "admit-yaml": "nodewright admit -f examples/admission/pods.yaml --node examples/nodes/worker.yaml -o yaml",
    "admit-policy": "nodewright admit -f examples/policies/pods.yaml --node examples/policies/node.yaml",
    "explain-policies": (
        "nodewright explain -f examples/policies/pods.yaml --node examples/policies/node.yaml "
        "--policies examples/policies/mine.py --topology-policy at-most-two --cpu-picker one-thread-a-core --pod trading"
    ),
    "explain": "nodewright explain -f examples/numa/gpu-nic-pods.yaml --node examples/numa/gpu-nic-node.yaml",
    "explain-wide": (
        "nodewright explain -f examples/numa/memory-pods.yaml --node examples/numa/memory-node.yaml -o wide"
    ),
    "explain-failed": "nodewright explain --pod examples/failed/out-of-cpu.yaml --node examples/nodes/worker.yaml",
    "explain-evicted": "nodewright explain --pod examples/failed/evicted.yaml --node examples/nodes/worker.yaml",
    "explain-claims": (
        "nodewright explain -f examples/claims/cluster.yaml -f examples/claims/train-4.yaml --node dgx-h100"
    ),
    "admit-resize": "nodewright admit --resize -f examples/resize/pods.yaml --node examples/resize/node.yaml",
    "fit": (
        "nodewright fit -f examples/fit/four-gpus.yaml --node p5.48xlarge "
        "--kubelet-config examples/fit/single-numa-node.yaml --pods examples/fit/pods.yaml"
    ),
    "fit-shapes": (
        "nodewright fit --shape 2x4x16x2 --memory 2Ti --device nvidia.com/gpu=8@numa "
        "--kubelet-config examples/fit/restricted.yaml"
    ),
    "fit-nodes": (
        "nodewright fit --nodes examples/fit/cluster.yaml --kubelet-config examples/fit/single-numa-node.yaml"
    ),
    "preempt": "nodewright preempt -f examples/preemption/critical.yaml --node examples/preemption/node.yaml",
    "preempt-optimal": (
        "nodewright preempt -f examples/preemption/crowded.yaml --node examples/preemption/crowded-node.yaml --optimal"
    ),
    "evict": "nodewright evict --node examples/eviction/node.yaml --usage examples/eviction/summary.json",
    "evict-wide": (
        "nodewright evict --node examples/eviction/node.yaml --usage examples/eviction/summary.json -o wide"
    ),
    "explain-condition": (
        "nodewright explain -f examples/eviction/newcomers.yaml --node examples/nodes/worker.yaml "
        "--condition MemoryPressure=True"
    ),
    "replay-devices": "nodewright replay examples/scenarios/devices.yaml",
    "replay-pressure": "nodewright replay examples/scenarios/pressure.yaml -o wide",
    "evict-timeline": (
        "nodewright evict --node examples/eviction/node.yaml --usage examples/eviction/summary.json "
        "--available memory.available=3Gi --growth shop/web=64Mi/s --timeline"
    ),
    "lend": "nodewright lend --node examples/lend/node.yaml --usage examples/lend/usage.csv --advise",
    "evict-advise": (
        "nodewright evict --node examples/eviction/node.yaml --usage examples/eviction/summary.json "
        "--available memory.available=3Gi --growth shop/web=64Mi/s --compare --advise"
    ),
    "replay": "nodewright replay examples/scenarios/fragmented.yaml",
    "replay-wide": "nodewright replay examples/scenarios/fragmented.yaml -o wide",
    "upgrade": "nodewright upgrade --node examples/upgrade/worker-7.yaml -f examples/upgrade/manifests.yaml",
    "upgrade-nodes": "nodewright upgrade --nodes examples/upgrade/nodes -o wide",
    "rehearse": (
        "nodewright rehearse --node examples/rehearsal/worker-3.yaml --kubelet-root examples/worker-3/kubelet"
    ),
    "rehearse-more-reserved": (
        "nodewright rehearse --node examples/rehearsal/worker-3.yaml --kubelet-root examples/worker-3/kubelet "
        "--config examples/rehearsal/more-reserved.yaml"
    ),
    "rehearse-wide": (
        "nodewright rehearse --node examples/rehearsal/worker-3.yaml --config examples/rehearsal/fewer-pods.yaml -o wide"
    ),
    "drain": (
        "nodewright drain node/worker-1 -f examples/drain/shop.yaml --kubelet-config examples/drain/kubelet.yaml"
    ),
    "drain-nodes": "nodewright drain --nodes worker-1,worker-2 -f examples/drain/shop.yaml",
    "cgroups": "nodewright cgroups -f examples/cgroups/pods.yaml --node examples/cgroups/node.yaml",
    "cgroups-diff": (
        "nodewright cgroups -f examples/cgroups/running.yaml --node examples/cgroups/node.yaml "
        "--diff examples/cgroups/tree"
    ),
    "quota": "nodewright quota -f examples/quota/shop",
    "quota-init-containers": (
        "nodewright quota -f examples/requests/init-containers.yaml -f examples/quota/small.yaml"
    ),
    "quota-what-if": (
        "nodewright quota -f examples/quota/shop --set deployment/web:containers.app.requests.cpu=100m"
    ),
    "lint": (
        "nodewright lint -f examples/lint/shop.yaml --node epyc-7742-2s-nps1 "
        "--kubelet-config examples/lint/kubelet.yaml"
    ),
    "lint-explain": "nodewright lint --explain NW201",
    "lint-rules": "nodewright lint --explain all",
    "help-fleet-run": "nodewright fleet run --help",
    "help-fleet-capacity": "nodewright fleet capacity --help",
    "help-fleet-minimise": "nodewright fleet minimise --help",
    "help-fleet-generate": "nodewright fleet generate --help",
    "fleet": "nodewright fleet --nodes examples/fleet/nodes.yaml --pods examples/fleet/pods.yaml",
    "fleet-wide": "nodewright fleet --nodes examples/fleet/nodes.csv --pods examples/fleet/pods.csv -o wide",
    "fleet-sweep": (
        "nodewright fleet --nodes examples/fleet/nodes.yaml --pods examples/fleet/pods.yaml "
        "--shapes label:example.com/machine --probe examples/fleet/probe.yaml "
        "--sweep topologyManagerPolicy=best-effort,restricted,single-numa-node"
    ),
    "fleet-capacity": (
        "nodewright fleet capacity -f examples/fleet/probe.yaml --nodes examples/fleet/nodes.yaml "
        "--pods examples/fleet/pods.yaml"
    ),
    "fleet-minimise": (
        "nodewright fleet minimise --nodes examples/fleet/nodes.csv --pods examples/fleet/pods.csv"
    ),
    "audit": (
        "nodewright audit --kubelet-root examples/worker-3/kubelet --pods examples/worker-3/pods.json "
        "--node-name worker-3 --node 2s-2n-8c-smt2-adjacent --cgroups examples/drift/cgroups"
    ),
    "help-node-export": "nodewright node export --help",
    "node-export": "nodewright node export --nrt --node examples/worker-3/from-the-cluster.yaml",
    "help-node-capture": "nodewright node capture --help",
    "node-capture-kubelet": (
        "nodewright node capture --kubelet-root examples/worker-3/kubelet --pods examples/worker-3/pods.json "
        "--node-name worker-3 --catalogue 2s-2n-8c-smt2-adjacent"
    ),
    "admit-assumed": (
        "nodewright admit -f examples/worker-3/new-pods.yaml --node examples/worker-3/from-the-cluster.yaml"
    ),
    "node-catalogue": "nodewright node catalogue",
    "node-show-laptop": "nodewright node show --node laptop-i7-1370p",
    "node-show-pods": "nodewright node show --node examples/numa/split-node.yaml",
    "node-show-epyc": "nodewright node show --node epyc-7742-2s-nps4",
    "node-show-gb200": "nodewright node show --node gb200",
    "agent-dry-run": "nodewright agent --dry-run --node uma-4c --workload-dir examples/agent",
    "schema": "nodewright schema",
    "verify": "nodewright verify tests/conformance/vectors/oom-score.jsonl.gz",
}

# Name of the picture -> command that writes a page. No test compares pictures: each Chromium draws its own.
PICTURES = {
    "fleet": "nodewright fleet --nodes examples/fleet/nodes.csv --pods examples/fleet/pods.csv",
    "fleet-sweep": (
        "nodewright fleet --nodes examples/fleet/nodes.yaml --pods examples/fleet/pods.yaml "
        "--shapes label:example.com/machine --probe examples/fleet/probe.yaml "
        "--sweep topologyManagerPolicy=best-effort,restricted,single-numa-node"
    ),
    "evict-timeline": (
        "nodewright evict --node examples/eviction/node.yaml --usage examples/eviction/summary.json "
        "--available memory.available=3Gi --growth shop/web=64Mi/s --compare --advise"
    ),
    "explain": "nodewright explain -f examples/numa/gpu-nic-pods.yaml --node examples/numa/gpu-nic-node.yaml",
}


def path(name: str, columns: int) -> Path:
    """Where the shot is kept."""
    return FOLDER / f"{name}.{columns}.txt"


def taken(name: str, columns: int) -> str:
    """The shot as it would be now: the command, what it prints, its exit code where it is not 0."""
    ran = execute(SHOTS[name], columns=columns)
    code = f"$ echo $?\n{ran.code}\n" if ran.code else ""
    return f"$ {SHOTS[name]}\n{ran.output}{code}"


def photographed(name: str, arguments: str) -> Path | None:
    """The page that `nodewright ... --html` writes, as a picture; None where there is no Chromium to take it."""
    browser = shutil.which("chromium")
    if browser is None:
        return None
    picture = FOLDER / f"{name}.png"
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        execute(f"{arguments} --html {page}")
        quiet = (
            "headless",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "no-first-run",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "hide-scrollbars",
        )
        command = [browser, *(f"--{option}" for option in quiet), f"--user-data-dir={folder}/profile"]
        command += [f"--screenshot={picture}", "--window-size=900,1000", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return picture


def strangers() -> Iterator[Path]:
    """Files in the folder that belong to no shot."""
    known = {path(name, columns) for name in SHOTS for columns in WIDTHS}
    return (stored for stored in sorted(FOLDER.glob("*.txt")) if stored not in known)


def write_shots(names: Sequence[str] = ()) -> None:
    """Takes the shots with these names, or all, and removes unused ones; pictures stay."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or SHOTS:
        for columns in WIDTHS if name in SHOTS else ():
            path(name, columns).write_text(taken(name, columns), "utf-8")
    for stored in list(strangers()):
        stored.unlink()
    print(f"{len(names or SHOTS)} shots, {len(WIDTHS)} widths each, in {FOLDER.relative_to(ROOT)}")


def main(names: list[str]) -> None:
    """Takes the shots and the pictures with these names, or all."""
    if unknown := sorted({*names} - {*SHOTS, *PICTURES, "dashboard"}):
        sys.exit(f"error: shots: unknown: {', '.join(unknown)}")
    write_shots(names)
    for name in names or PICTURES:
        if name in PICTURES and photographed(name, PICTURES[name]) is None:
            print(f"no Chromium here: {name}.png stays as it was")
    if (not names or "dashboard" in names) and not dashboard_shots.main():
        print("no Chromium here: pictures of the dashboard stay as they were")
