"""The next actions for a pod."""

import pytest
from msgspec.structs import replace
from tests.unit.agent.rules.lifecycle.pods import actions_text, facts_of, pod_of

from nodewright.agent.rules.pod_actions import ProbeResult, ProbeResults, pod_actions, spec_hash
from nodewright.model.kubernetes.objects import Container
from nodewright.model.values.instant import Instant

CASES = """
    Always: app                       | no sandbox                    | end, sandbox 0, start app
    Always: app                       |                               | start app
    Always: app                       | app=run                       | nothing
    Always: app                       | app=0                         | start app
    Always: app                       | app=made                      | start app
    Always: app                       | app=lost                      | kill app (unknown), start app
    Always: app                       | app=run*                      | kill app (changed), start app
    OnFailure: app                    | app=1                         | start app
    OnFailure: app                    | app=0                         | end
    Never: app                        | app=1                         | end
    Never: app                        | app=run*                      | kill app (changed), start app
    Never: app, helper                | app=1 helper=run              | nothing
    Always: app, helper               | app=1 helper=run              | start app

    Always: init a, init b, app       | no sandbox                    | end, sandbox 0, start a
    Always: init a, init b, app       |                               | start a
    Always: init a, init b, app       | a=run                         | nothing
    Always: init a, init b, app       | a=0                           | start b
    Always: init a, init b, app       | a=1                           | start a
    Always: init a, init b, app       | a=0 b=made                    | start b
    Always: init a, init b, app       | a=0 b=lost                    | kill b (unknown), start b
    Always: init a, init b, app       | b=0                           | start app
    Always: init a, init b, app       | a=0 b=0                       | start app
    Always: init a, init b, app       | app=run                       | nothing
    Always: init a, app               | a=0 app=1                     | start app
    Never: init a, app                | a=1                           | end
    Never: init a, app                | a=0!                          | end
    Never: init a, app                | a=lost                        | end
    OnFailure: init a, app            | a=1                           | start a

    Always: ~proxy, app               |                               | start proxy
    Always: ~proxy, app               | proxy=run                     | start app
    Always: ~proxy, init a, app       | proxy=run                     | start a
    Always: ~proxy, init a, app       | proxy=run a=0                 | start app
    Always: ~proxy, init a, app       | proxy=1 a=run                 | start proxy
    Always: ~proxy, init a, app       | a=0                           | start proxy, start app
    Always: ~proxy, app               | proxy=1 app=run               | start proxy
    Always: ~proxy, app               | app=run                       | start proxy
    Always: ~proxy, app               | proxy=run* app=run            | kill proxy (changed), start proxy
    Always: ~proxy, app               | proxy=lost app=run            | kill proxy (unknown), start proxy
    Never: ~proxy, app                | proxy=run app=0               | end
    Never: ~proxy, app                | proxy=1 app=0                 | start proxy
    Always: ~a, ~b, app               | a=run                         | start b
    Always: ~a, ~b, app               | a=run b=run                   | start app

    Always: app                       | dead sandbox app=137          | end, sandbox 1, start app
    Never: app                        | dead sandbox app=137          | end
    Never: app                        | dead sandbox                  | end, sandbox 1, start app
    OnFailure: app                    | dead sandbox app=0            | end
    OnFailure: app, helper            | dead sandbox app=0 helper=1   | end, sandbox 1, start helper
    Always: init a, app               | dead sandbox a=0 app=137      | end, sandbox 1, start a

    Always: app, +debug               | app=run                       | start debug
    Always: app, +debug, +more        | app=run debug=run             | start more
    Always: app, +debug               | app=run debug=1               | nothing
    Always: app, +debug               | app=1 debug=lost              | start app
    Always: app, +debug               | app=1                         | start debug, start app
    Always: init a, app, +debug       | a=run                         | start debug
    Always: app, +debug               | no sandbox                    | end, sandbox 0, start app
    Always: app, +debug               | dead sandbox app=1 debug=0    | end, sandbox 1, start app
    Never: app, +debug                | app=0                         | end
    Never: app, +debug                | app=0 debug=run               | end
"""


@pytest.mark.parametrize("row", [line for line in CASES.splitlines() if line.strip()])
def test_the_next_actions_for_a_pod(row: str) -> None:
    pod, facts, expected = (part.strip() for part in row.split("|"))
    assert actions_text(pod_actions(pod_of(pod), facts_of(facts))) == expected


PROBED = """
    Always: app?           | app=run           | liveness app failure                   | kill app (liveness), start app
    Always: app?           | app=run           | startup app failure                    | kill app (startup), start app
    Never: app?            | app=run           | liveness app failure                   | kill app (liveness), end
    Always: app?           | app=run           | liveness app success                   | nothing
    Always: ~proxy?, app   | proxy=run         |                                        | nothing
    Always: ~proxy?, app   | proxy=run         | startup proxy unknown                  | nothing
    Always: ~proxy?, app   | proxy=run         | startup proxy success                  | start app
    Always: ~proxy?, app   | proxy=run         | startup proxy failure                  | kill proxy (startup), start proxy
    Always: ~proxy?, app   | proxy=run app=run | startup proxy success, liveness proxy failure | kill proxy (liveness), start proxy
"""


@pytest.mark.parametrize("row", [line for line in PROBED.splitlines() if line.strip()])
def test_probe_results_decide_the_actions(row: str) -> None:
    pod, facts, probes, expected = (part.strip() for part in row.split("|"))
    results: dict[str, dict[str, ProbeResult]] = {"liveness": {}, "startup": {}}
    for probe in filter(None, probes.split(", ")):
        kind, name, health = probe.split()
        results[kind][f"{name}-0"] = ProbeResult(health)
    text = actions_text(
        pod_actions(pod_of(pod), facts_of(facts), ProbeResults(results["liveness"], results["startup"]))
    )
    assert sorted(text.split(", ")) == sorted(expected.split(", "))


def test_a_pod_that_is_being_deleted_starts_nothing() -> None:
    pod = pod_of("Always: app")
    going = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=Instant(0)))
    assert actions_text(pod_actions(going, facts_of("app=1"))) == "end"


def test_two_ready_sandboxes_are_one_too_many() -> None:
    facts = facts_of("app=run")
    (sandbox,) = facts.sandboxes
    both = replace(facts, sandboxes=(replace(sandbox, id="new", attempt=1), sandbox))
    assert actions_text(pod_actions(pod_of("Always: app"), both)) == "end, sandbox 2, start app"


def test_a_restart_rule_restarts_all_containers() -> None:
    pod = pod_of("Never: init a, app, helper")
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    app = Container(name="app", restart_policy="Never", restart_policy_rules=(rule,))
    pod = replace(pod, spec=replace(pod.spec, containers=(app, pod.spec.containers[1])))
    assert actions_text(pod_actions(pod, facts_of("a=0 app=41 helper=run"))) == "nothing"
    result = pod_actions(pod, facts_of("a=0 app=42 helper=run"))
    assert actions_text(result) == "remove helper, remove a, remove app"
    assert not result.is_empty


def test_only_a_new_image_recreates_a_container() -> None:
    before = Container(name="app", image="a", command=("one",))
    assert spec_hash(before) == spec_hash(replace(before, command=("two",)))
    assert spec_hash(before) != spec_hash(replace(before, image="b"))
