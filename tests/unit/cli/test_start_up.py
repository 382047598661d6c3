"""What the commands import: only what their answers need, so that they start quickly."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ADMIT = ("admit", "-f", "examples/admission/pods.yaml", "--node", "examples/nodes/worker.yaml")
MAX_MODULES = 160
"""Of ours, for `admit`; 158 when this was written."""

_CODE = """
import gc, json, sys
from nodewright import cli
sys.argv = ["nodewright", *json.loads(sys.argv[1])]
try:
    cli.main()
except SystemExit:
    pass
print(json.dumps([gc.isenabled() and gc.get_threshold()[0], *sys.modules]), file=sys.stderr)
"""


@cache
def after_run(*arguments: str) -> tuple[int, frozenset[str]]:
    """After how many new objects garbage is collected at the end of the command, and the modules that are loaded."""
    command = [sys.executable, "-c", _CODE, json.dumps(arguments)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    threshold, *modules = json.loads(result.stderr.splitlines()[-1])
    return threshold, frozenset(modules)


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    [
        "asyncio",
        "http.client",
        "multiprocessing",
        "socket",
        "ssl",
        "subprocess",
        "nodewright.agent",
        "nodewright.agent.serving",
        "nodewright.agent.rules",
        "nodewright.engine.admission.quota",
        "nodewright.documents.formats.api_objects",
        "nodewright.predict.policy_registry",
        "nodewright.fleet",
        "nodewright.agent.host",
        "nodewright.engine.node.resize",
        "nodewright.engine.node.restart.restart_rehearsal",
        "nodewright.engine.node.what_if",
        "nodewright.documents.profiles.machine.captured_machine",
        "nodewright.predict.replay",
    ],
)
def test_admit_does_not_import_what_its_answer_does_not_need(module: str) -> None:
    _, modules = after_run(*ADMIT)
    assert "nodewright.cli.admit" in modules
    assert module not in modules


def test_admit_imports_a_limited_number_of_modules() -> None:
    _, modules = after_run(*ADMIT)
    ours = [name for name in modules if name.startswith("nodewright")]
    assert len(ours) <= MAX_MODULES


def test_help_imports_no_command() -> None:
    _, modules = after_run("--help")
    assert not [
        name
        for name in modules
        if name.startswith(("nodewright.engine.core", "nodewright.engine.node", "yaml"))
    ]


def test_garbage_is_collected_again_once_the_command_is_imported() -> None:
    threshold, _ = after_run(*ADMIT)
    assert 10_000 < threshold < 1_000_000


def loaded(*names: str) -> set[str]:
    """The modules that are loaded after an import of these."""
    code = f"import json, sys, {', '.join(names)}; print(json.dumps([*sys.modules]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules = set(json.loads(result.stdout))
    assert modules >= {*names, "starlette"}
    return modules


@pytest.mark.slow
def test_a_joined_agent_does_not_import_what_allocates_the_devices_of_claims() -> None:
    """Its memory counts on each node."""
    agent = "nodewright.agent"
    parts = (
        *("nodewright.cli.agent.agent", f"{agent}.assembly.run_agent", f"{agent}.assembly.cluster_setup"),
        *(f"{agent}.serving.kubelet_routes", f"{agent}.runtimes.cri.cri_runtime"),
    )
    unused = {
        "importlib.resources",
        "nodewright.engine.admission.quota",
        "nodewright.engine.core.claims.cel",
        "nodewright.engine.core.claims.allocation",
        "nodewright.engine.core.claims.claim_scheduling",
    }
    assert not unused & loaded(*parts)


@pytest.mark.slow
def test_an_exporter_imports_nothing_that_decides() -> None:
    """Its memory counts on each node."""
    parts = ("nodewright.scheduling.exporter.run_export", "nodewright.scheduling.exporter.export_member")
    unused = {
        "grpc",
        "nodewright.agent.state.effects",
        "nodewright.engine.node",
        "nodewright.agent.rules",
    }
    assert not unused & loaded(*parts)
