"""The command `nodewright replay`, and the journals of replay and admit."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli import replay as command
from nodewright.cli import workload_input
from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, INTERRUPTED, NO, USAGE, YES
from nodewright.predict.replay.scenario_run import EventOutcome, replay

FRAGMENTED = "examples/scenarios/fragmented.yaml"
PRESSURE = "examples/scenarios/pressure.yaml"
WORKER = "examples/nodes/worker.yaml"
PODS = "examples/admission/pods.yaml"
HEAD = {"apiVersion": "nodewright.dev/v1alpha1", "kind": "Scenario"}

Captured = pytest.CaptureFixture[str]


def scenario(path: Path, *events: Any, **spec: Any) -> str:
    path.write_text(json.dumps({**HEAD, "spec": {"events": list(events), **spec}}))
    return str(path)


def a_pod(name: str, cpu: str = "1") -> dict[str, Any]:
    resources = {"requests": {"cpu": cpu}}
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "resources": resources}]}}


def test_every_event_has_its_line(capsys: Captured) -> None:
    assert run(["replay", FRAGMENTED]) == NO
    lines = capsys.readouterr().out.splitlines()
    assert lines[5].split() == ["4", "add", "default/pair", "refused", "TopologyAffinityError", "-"]
    assert "7 events: 4 admitted, 1 refused, 2 pods on the node" in lines


def test_a_run_with_all_pods_admitted_succeeds(tmp_path: Path, capsys: Captured) -> None:
    events = [{"add": a_pod("web")}, {"found": a_pod("db")}, {"remove": "nobody"}, {"add": a_pod("web")}]
    path = scenario(tmp_path / "s.json", *events, {"killFailed": "default/web"}, {"remove": "default/web"})
    assert run(["replay", path, "--node", "vm-4"]) == YES
    outcomes = [line.split()[2:5] for line in capsys.readouterr().out.splitlines()[1:7]]
    assert outcomes == [
        ["default/web", "admitted", "-"],
        ["default/db", "counted", "-"],
        ["nobody", "not", "there"],
        ["default/web", "already", "there"],
        ["default/web", "already", "there"],
        ["default/web", "removed", "-"],
    ]


def test_a_scenario_drives_evictions_and_conditions(capsys: Captured) -> None:
    assert run(["replay", PRESSURE]) == NO
    lines = capsys.readouterr().out.splitlines()
    assert lines[3].split() == ["2", "observe", "-", "calm", "-"]
    assert lines[4].split() == ["3", "observe", "default/web", "evicted", "MemoryPressure"]
    assert lines[5].split() == ["4", "add", "default/job-2", "refused", "Evicted"]
    assert lines[7].split() == ["6", "add", "default/job-2", "admitted", "-"]
    assert "7 events: 3 admitted, 1 refused, 1 evicted, 2 pods on the node" in lines
    assert run(["replay", PRESSURE, "-o", "json"]) == NO
    look = json.loads(capsys.readouterr().out)["events"][3]
    assert (look["handledSignal"], look["conditions"]) == ("memory.available", ["MemoryPressure"])
    announced, ended = look["actions"]
    assert announced == {"action": "AnnounceReclaim", "resource": "memory"}
    assert (ended["podUid"], ended["gracePeriodS"]) == ("default/web", 1)
    assert ended["status"]["message"].startswith("The node was low on resource: memory. ")


def test_observations_may_be_calm_fail_or_crash_the_kubelet(tmp_path: Path, capsys: Captured) -> None:
    web = a_pod("web")
    web["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}]
    reference = {"podRef": {"namespace": "default", "name": "web", "uid": "w"}, "volume": [{"name": "data"}]}
    items: list[dict[str, Any]] = [
        {"failed": True, "at": "1s"},
        {"conditions": ["PIDPressure"]},
        {"summary": {"node": {"fs": {"availableBytes": 1, "capacityBytes": 100}}}, "after": {"pods": []}},
        {"summary": {"pods": [reference]}},
    ]
    path = scenario(tmp_path / "s.json", {"add": web}, *({"observe": look} for look in items))
    assert run(["replay", path, "--node", "vm-4"]) == YES
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[2:6]]
    assert [row[3:] for row in rows] == [
        ["calm", "-"],
        ["under", "pressure", "-"],
        ["under", "pressure", "DiskPressure"],
        ["stopped", "-"],
    ]
    assert run(["replay", path, "--node", "vm-4", "-o", "yaml"]) == YES
    events = yaml.safe_load(capsys.readouterr().out)["events"]
    assert events[2]["verdict"] == "under pressure"
    assert events[4]["stopped"]["type"] == "VolumeUseMissing"


def test_an_observed_amount_does_not_exceed_its_capacity(tmp_path: Path, capsys: Captured) -> None:
    amounts = {"memory.available": "17Gi", "nodefs.inodesFree": "1"}
    path = scenario(
        tmp_path / "s.json", {"add": a_pod("web")}, {"observe": {"usage": {"available": amounts}}}
    )
    assert run(["replay", path, "--node", "vm-4"]) == ERROR
    error = capsys.readouterr().err
    place = "spec.events[1].observe.usage.available"
    assert f'{place}[memory.available]: Invalid value: "17Gi": exceeds the capacity, 17179869184' in error
    assert (
        f'{place}[nodefs.inodesFree]: Invalid value: "1": the capacity is not in the node\'s profile' in error
    )


def test_documents_and_names(capsys: Captured) -> None:
    run(["replay", FRAGMENTED, "-o", "json"])
    document = json.loads(capsys.readouterr().out)
    assert [event["verdict"] for event in document["events"]][3:5] == ["removed", "refused"]
    assert document["events"][6]["actions"] == [{"action": "AdmitPod", "podUid": "default/pair"}]
    assert (document["interrupted"], [pod["name"] for pod in document["pods"]]) == (False, ["three", "pair"])
    run(["replay", FRAGMENTED, "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out) == document
    run(["replay", FRAGMENTED, "-o", "name"])
    assert capsys.readouterr().out == "pod/one\npod/two\npod/three\npod/pair\n"
    run(["replay", FRAGMENTED, "-o", "wide"])
    assert "Resources cannot be allocated with Topology locality" in capsys.readouterr().out


def test_another_node_or_configuration_replaces_the_scenarios(tmp_path: Path, capsys: Captured) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 1\n")
    journal = tmp_path / "journal.json"
    assert run(["replay", FRAGMENTED, "--kubelet-config", str(config), "--journal", str(journal)]) == NO
    assert "OutOfpods" in capsys.readouterr().out
    # The journal has the configuration that counted.
    assert run(["replay", str(journal)]) == NO
    assert "OutOfpods" in capsys.readouterr().out
    assert run(["replay", FRAGMENTED, "--node", "vm-4"]) == YES
    assert "7 events: 4 admitted, 2 pods" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments", [["replay", FRAGMENTED], ["replay", PRESSURE], ["admit", "-f", PODS, "--node", WORKER]]
)
def test_a_journal_replays_to_itself(arguments: list[str], tmp_path: Path, capsys: Captured) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert run([*arguments, "--journal", str(first)]) == NO
    assert run(["replay", str(first), "--journal", str(second)]) == NO
    assert capsys.readouterr().err == ""
    assert first.read_bytes() == second.read_bytes()
    assert len(json.loads(first.read_text())["spec"]["events"]) == len(first.read_text().splitlines()) - 2


def test_a_difference_from_the_journal_is_an_error(tmp_path: Path, capsys: Captured) -> None:
    journal = tmp_path / "journal.json"
    run(["replay", FRAGMENTED, "--journal", str(journal)])
    journal.write_text(
        journal.read_text().replace(
            '"actions":[{"action":"AdmitPod","podUid":"default/one"}]', '"actions":[]'
        )
    )
    capsys.readouterr()
    assert run(["replay", str(journal)]) == ERROR
    assert capsys.readouterr().err == (
        f"error: {journal}: spec.events[0].actions: differ from the journal\n"
        "  journal: nothing\n"
        "  now:     AdmitPod default/one\n"
    )


def test_a_journal_does_not_replace_an_input(tmp_path: Path, capsys: Captured) -> None:
    path = scenario(tmp_path / "s.json", {"add": a_pod("web")})
    before = Path(path).read_text()
    assert run(["replay", path, "--node", "vm-4", "--journal", path]) == USAGE
    assert "is written to, but it is also a file of" in capsys.readouterr().err
    assert Path(path).read_text() == before


def test_a_journal_that_cannot_be_written_is_an_error(tmp_path: Path, capsys: Captured) -> None:
    assert run(["replay", FRAGMENTED, "--journal", str(tmp_path / "no" / "journal.json")]) == ERROR
    assert "error: write" in capsys.readouterr().err


def test_warnings_are_printed_and_are_errors_with_strict(tmp_path: Path, capsys: Captured) -> None:
    pod = a_pod("web")
    pod["spec"]["priorityClassName"] = "gold"
    path = scenario(tmp_path / "s.json", {"add": pod})
    assert run(["replay", path, "--node", "vm-4"]) == YES
    assert 'warning: default/web: no PriorityClass with name "gold"' in capsys.readouterr().err
    assert run(["replay", path, "--node", "vm-4", "--strict"]) == ERROR
    assert capsys.readouterr().out == ""


def test_ctrl_c_prints_the_decisions_so_far(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def until_somebody_tires(*arguments: Any, **options: Any) -> Iterator[EventOutcome]:
        for event_outcome in replay(*arguments, **options):
            if event_outcome.number == 2:
                raise KeyboardInterrupt
            yield event_outcome

    monkeypatch.setattr(command, "replay", until_somebody_tires)
    journal = tmp_path / "journal.json"
    assert run(["replay", FRAGMENTED, "--journal", str(journal)]) == INTERRUPTED
    captured = capsys.readouterr()
    assert "2 events: 2 admitted, 2 pods on the node" in captured.out
    assert captured.err == "interrupted: 2 of 7 events replayed\n"
    monkeypatch.undo()
    assert run(["replay", str(journal)]) == YES


def test_progress_is_shown_on_a_terminal_alone(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload_input, "_DELAY_S", 0)
    run(["replay", FRAGMENTED])
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run(["replay", FRAGMENTED])
    shown = capsys.readouterr().err
    assert shown.startswith("\r\x1b[K1 of 7 events")
    assert shown.endswith("\r\x1b[K")
