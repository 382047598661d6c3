"""Everything that a maintainer runs now and then: `python -m tools` lists it, `python -m tools NAME` runs it."""

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tools.source import ROOT


class Tool(NamedTuple):
    """What a name runs: a function as `module:function`, or a line for the shell."""

    place: str
    about: str
    as_root: bool = False
    arguments: tuple[str, ...] = ()
    """Those before the ones of the command line."""
    takes: str = ""
    """The arguments of the command line; those in brackets may be absent."""


TOOLS = {
    "regenerate": Tool(
        "regenerate:main", "write all that is generated: guide, shots, reference, schemas, golden files"
    ),
    "guide": Tool(
        "consoles:refresh_guide", "write what commands print now into README.md and docs/", takes="[FILE...]"
    ),
    "shots": Tool("shots:main", "write what every command prints into docs/shots/", takes="[NAME...]"),
    "dashboard-shots": Tool("dashboard_shots:main", "draw the dashboard into docs/shots/, with Chromium"),
    "reference": Tool(
        "reference:write_reference", "write docs/reference/: departures, profiles, lint rules, schemas"
    ),
    "man": Tool("man_pages:write_man_pages", "write the manual pages of the commands into packaging/man"),
    "completion": Tool("reference:write_completion_table", "write the table of shell completion"),
    "protos": Tool("sh tools/protos.sh", "write the modules of .proto files"),
    "published": Tool("published:main", "render docs and packaging from packaging/published.toml"),
    "recorded-sample": Tool(
        "recorded_sample:main", "write the sample of recorded decisions that the package contains"
    ),
    "format": Tool("ruff check --fix-only -q . ; ruff format -q .", "format all Python files"),
    "clean": Tool(
        "rm -rf .venv build .coverage .mypy_cache .ruff_cache .hypothesis .benchmarks",
        "remove all that is not kept",
    ),
    "size": Tool(
        "size:main", "modules, lines, arrows, circles and start-up", takes="[--base=REV] [--no-times]"
    ),
    "release-diff": Tool(
        "release_diff:main",
        "what a new Kubernetes release changes of the files that docstrings follow",
        takes="OLD NEW",
    ),
    "pyz": Tool("pyz:main", "write build/nodewright.pyz, a single file, and time its start", takes="WHEEL"),
    "deb": Tool("deb:main", "write the packages for Debian into build/deb", takes="WHEEL"),
    "image": Tool("image:main", "write the OCI image and its SBOM into build/image", takes="WHEEL"),
    "krew": Tool("release:write_krew_plugin", "write the krew plugin of this version", takes="URL"),
    "live-packages": Tool(
        "make live-packages", "install what live tests and demonstrations need, on Debian", as_root=True
    ),
    "demo-agent": Tool(
        "sh tools/demo_agent.sh", "show the agent: pods pinned, evicted, adopted", as_root=True
    ),
    "demo-containers": Tool(
        "containers:main", "show the agent with containerd", as_root=True, arguments=("demo",)
    ),
    "demo-cluster": Tool("demo_cluster:main", "show the agent as a node of a cluster", as_root=True),
    "benchmarks": Tool("benchmarks:main", "write docs/benchmarks.md from the figures of `make bench`"),
    "bench-compare": Tool(
        "bench_compare:main",
        "compare the benchmarks with those of the last release, or of a commit",
        takes="[COMMIT]",
    ),
    "bench-fleet": Tool("fleet_cost:main", "measure what fleets cost", takes="[series|million|sweep|draw]"),
    "bench-growth": Tool(
        "fleet_cost:measure_growth", "measure how the cost of decisions grows with their input"
    ),
    "growth": Tool(
        "growth:main",
        "measure how the cost of every command grows with its input",
        takes="[COMMAND|DIMENSION...]",
    ),
    "bench-scheduling": Tool("scheduling_bench:main", "compare kube-scheduler with and without the extender"),
    "extender-load": Tool("extender_load:main", "load the extender: 5,000 nodes, 100 pods a second"),
    "hollow-load": Tool("hollow_load:main", "run 1,000 hollow nodes in a real cluster, with 5,000 pods"),
    "idle": Tool("agent_idle:main", "measure an agent while nothing happens", as_root=True),
    "load": Tool("load:measure_load", "measure an agent under 1,000 requests a second", as_root=True),
    "many": Tool("load:put_many_manifests", "measure an agent with 10,000 manifests at once", as_root=True),
    "processes": Tool(
        "agent_figures:measure_processes", "measure how fast plain processes start", as_root=True
    ),
    "containers": Tool(
        "containers:main", "measure the agent with containerd", as_root=True, takes="[measure|soak|evictions]"
    ),
    "pressure": Tool("pressure:main", "race the agent with pods that grow", as_root=True),
    "joined": Tool("joined:measure_joined", "measure the joined agent beside the real kubelet", as_root=True),
    "status-times": Tool("joined:measure_status_times", "measure the delay of statuses", as_root=True),
    "stream-times": Tool(
        "joined:measure_streams", "measure kubectl logs, exec and cp beside the kubelet", as_root=True
    ),
    "node-conformance": Tool(
        "node_conformance:main", "write the page of the conformance suite", takes="OURS [KUBELET]"
    ),
    "fuzz": Tool("fuzz:main", "damage the input of every reader; `make fuzz`"),
    "soak": Tool("soak:main", "run everything slow with very many examples; `make soak`"),
    "release": Tool("release:main", "release a version; `make release`"),
}


def main(arguments: list[str]) -> int:
    """Runs the tool of the first argument with the others; lists all without one. The exit code."""
    if not arguments or arguments[0] not in TOOLS:
        print(listing(), file=sys.stderr if arguments else sys.stdout)
        return 2 if arguments else 0
    name, *others = arguments
    tool = TOOLS[name]
    others = [*tool.arguments, *others]
    if fault := argument_fault(tool.takes, others):
        print(f"error: {name}: {fault}; it takes: {tool.takes}", file=sys.stderr)
        return 2
    module, separator, function = tool.place.partition(":")
    if not separator:
        path = f"{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"  # noqa: PTH120 - of a command line
        return subprocess.run(
            ["sh", "-c", tool.place], cwd=ROOT, env={**os.environ, "PATH": path}, check=False
        ).returncode
    sys.argv = [f"python -m tools {name}", *others]
    run = getattr(importlib.import_module(f"tools.{module}"), function)
    takes_arguments = next(iter(inspect.signature(run).parameters), "") in ("arguments", "names")
    result = run(others) if takes_arguments else run()
    return int(result) if result is not None and not isinstance(result, bool) else 0


_FILES = {"WHEEL", "FILE", "OURS", "KUBELET"}
"""The words of `Tool.takes` that stand for what has to exist."""


def argument_fault(takes: str, arguments: Sequence[str]) -> str:
    """What is wrong with the arguments of a tool that takes these; "" for nothing.

    Options are left to the tool.

    >>> argument_fault("OURS [KUBELET]", [])
    'OURS is missing'
    """
    given, words = [argument for argument in arguments if not argument.startswith("-")], takes.split()
    needed = [word for word in words if not word.startswith("[")]
    if len(given) < len(needed) and given == [*arguments]:
        return f"{needed[len(given)]} is missing"
    for argument, word in zip(given, words, strict=False):
        name = word.strip("[.]")
        if name in _FILES and not os.path.exists(argument):  # noqa: PTH110 - text of a command line
            return f"{name}: no such file: {argument}"
        if name == "WHEEL" and not re.fullmatch(r"\w+-.+\.whl", os.path.basename(argument)):  # noqa: PTH119 - as above
            return f"WHEEL: not the name of a wheel: {argument}"
        if "|" in name and name.islower() and argument not in name.split("|"):
            return f"unknown: {argument}"
    return ""


def listing() -> str:
    """The names, what each does, and which need root."""
    width = max(map(len, TOOLS))
    return "\n".join(
        f"{name:<{width}}  {tool.about}{' (root)' if tool.as_root else ''} {tool.takes}".rstrip()
        for name, tool in TOOLS.items()
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
