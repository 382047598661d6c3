"""`nodewright evict --timeline`, `--compare`, `--advise`."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.app import run

ARGUMENTS = (
    "evict",
    *("--node", "examples/eviction/node.yaml", "--usage", "examples/eviction/summary.json"),
    *("--available", "memory.available=3Gi"),
)
LEAK = ("--growth", "shop/web=64Mi/s")


def run_timeline(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run([*ARGUMENTS, *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    _, out, _ = run_timeline(capsys, *arguments, "-o", "json")
    return dict(json.loads(out))


def test_the_exit_code_is_3_if_the_oom_killer_acts_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_timeline(capsys, "--timeline", *LEAK)
    assert code == 3
    assert "THE KERNEL kills web of shop/web" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "container counts as" in out, "what is a model is said"
    assert run_timeline(capsys, "--timeline", *LEAK, "--policy", "adaptive")[0] == 0
    assert run_timeline(capsys, "--timeline", *LEAK, "--policy", "adaptive", "-o", "name")[1] == "pod/web\n"


def test_a_document_has_every_moment_with_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys, "--compare", *LEAK)
    assert [(run["policy"], run["first"]) for run in result["runs"]] == [
        ("kubelet", "kernel"),
        ("adaptive", "eviction"),
        ("swap-aware", "eviction"),
    ]
    begun = next(moment for moment in result["runs"][1]["moments"] if moment["type"] == "EvictionBegun")
    assert (begun["pod"], begun["message"][:35]) == ("shop/web", "The node was low on resource: memor")
    assert result["runs"][0]["available"][0] == [0.0, 3 << 30]
    as_yaml = run_timeline(capsys, "--compare", *LEAK, "-o", "yaml")[1]
    assert yaml.safe_load(as_yaml) == result


def test_policies_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run_timeline(capsys, "--compare", *LEAK)
    assert all(len(line) <= 80 for line in out.splitlines())
    assert "adaptive: shop/web evicted at 42.192s" in out


def test_advice_is_configuration_and_proof(capsys: pytest.CaptureFixture[str]) -> None:
    advice = document(capsys, "--advise", *LEAK)["advice"]
    amount = int(advice["kubeletConfiguration"]["evictionHard"]["memory.available"])
    assert amount == advice["thresholdBytes"] == 785 << 20
    assert (advice["won"]["lost"], advice["lost"]["lost"]) == (False, True)
    _, out, _ = run_timeline(capsys, "--advise", *LEAK)
    assert "evictionHard: memory.available: 785Mi prevents OOM kills" in out
    assert "memory that pods can request shrinks by 285Mi" in " ".join(out.split())


@pytest.mark.parametrize(
    ("rate", "said"), [("0", "No threshold on memory.available is needed"), ("9Gi", "No threshold on")]
)
def test_no_threshold_may_be_needed_or_sufficient(
    capsys: pytest.CaptureFixture[str], rate: str, said: str
) -> None:
    assert said in run_timeline(capsys, "--advise", "--growth", f"shop/web={rate}")[1]


def test_a_page_plots_the_crossing_and_is_self_contained(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    run_timeline(capsys, "--compare", "--advise", *LEAK, "--html", str(page))
    html = page.read_text()
    assert html.count("<svg role") == 3
    assert "prefers-color-scheme: dark" in html
    assert "src=" not in html
    assert "href=" not in html
    assert "one step less" in html
    run_timeline(capsys, "--timeline", "--html", str(page))
    assert "No events." in page.read_text()


def test_options_of_timelines_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_timeline(capsys, *LEAK)
    assert (code, "--growth needs --timeline, --advise or --compare" in err) == (2, True)


@pytest.mark.parametrize("span", ["soon", "0s", "-1m"])
def test_a_span_has_to_be_one(capsys: pytest.CaptureFixture[str], span: str) -> None:
    assert run_timeline(capsys, "--timeline", "--duration", span)[0] == 2


def test_all_faults_of_growth_are_reported_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_timeline(capsys, "--timeline", "--growth", "api=1", "--growth", "shop/web=x")
    assert code == 1
    assert err.count("error: --growth") == 2


def test_a_usage_without_memory_is_no_start(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = ("--available", "nodefs.available=10Gi", "--timeline")
    code = run(["evict", "--node", "examples/eviction/node.yaml", *nothing])
    assert (code, "the node's memory is unknown" in capsys.readouterr().err) == (1, True)


OWN = """
from nodewright.policies import eviction_policy

@eviction_policy("every-second")
def every_second(rooms, due_in_ns):
    "Looks every second."
    return 10**9
"""


def test_a_custom_policy_is_compared_with_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    result = document(capsys, "--compare", *LEAK, "--policies", str(file), "--policy", "every-second")
    assert [run["policy"] for run in result["runs"]] == ["every-second", "kubelet", "adaptive", "swap-aware"]
    assert result["runs"][0]["looks"] > 500
    assert result["policiesNotTheKubelets"] == [
        {"kind": "eviction policy", "name": "every-second", "about": "Looks every second."}
    ]
    code, _, err = run_timeline(capsys, "--timeline", *LEAK, "--policy", "every-secnd")
    assert (code, "no eviction policy of this name is built in" in err) == (1, True)


def test_a_nodes_profile_may_name_the_policy(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    profile = yaml.safe_load(Path("examples/eviction/node.yaml").read_text())
    for name, told in (("adaptive", "adaptive"), ("kubelet", "kubelet")):
        profile["spec"]["policies"] = {"eviction": name}
        node = tmp_path / f"{name}.yaml"
        node.write_text(yaml.safe_dump(profile))
        assert run(["evict", "--node", str(node), *ARGUMENTS[3:], "--timeline", *LEAK, "-o", "json"]) in (
            0,
            3,
        )
        result = json.loads(capsys.readouterr().out)
        assert [run["policy"] for run in result["runs"]] == [told]
        assert ("policiesNotTheKubelets" in result) is (name != "kubelet")
