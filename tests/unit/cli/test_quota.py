"""The command `nodewright quota`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nodewright.cli.app import run
from nodewright.documents.output.terminal import ERROR, NO, USAGE, YES

FOLDER = Path(__file__).parents[3] / "examples" / "quota" / "shop"
SHOP = ["quota", "-f", str(FOLDER / "shop.yaml"), "-f", str(FOLDER / "team.yaml")]
POD = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec:
  initContainers:
    - {name: prepare, resources: {limits: {cpu: 1}}}
  containers:
    - {name: app, resources: {limits: {cpu: 1}}}
---
"""
QUOTA = "{apiVersion: v1, kind: ResourceQuota, metadata: {name: q}, spec: {hard: {%s}}%s}"


def document(capsys: pytest.CaptureFixture[str], *more: str, code: int = NO) -> dict[str, Any]:
    assert run([*SHOP, "-o", "json", *more]) == code
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    return str(path)


def text(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = YES) -> str:
    assert run(["quota", *arguments]) == code
    return capsys.readouterr().out


@pytest.fixture
def shop(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The report on the example, of which one object does not fit."""
    return document(capsys)


def test_the_document_says_whether_everything_fits(shop: dict[str, Any]) -> None:
    assert (shop["kind"], shop["fits"]) == ("QuotaReport", False)
    assert [entry["fits"] for entry in shop["objects"]] == [True, True, True, False]


def test_a_quota_has_what_is_used_and_what_is_wanted(shop: dict[str, Any]) -> None:
    (namespace,) = shop["namespaces"]
    (quota,) = namespace["quotas"]
    assert (quota["used"]["requests.cpu"], quota["wanted"]["requests.cpu"]) == ("3500m", "3900m")


def test_the_pods_of_an_object_have_their_charge_and_its_sources(shop: dict[str, Any]) -> None:
    pods = shop["objects"][0]["makes"][-1]
    assert (pods["wanted"], pods["admitted"]) == (5, 5)
    assert pods["chargeEach"][0]["amounts"]["limits.cpu"] == "700m"
    assert pods["because"]["limits.cpu"] == "500m app + 200m proxy"
    assert "cpu" not in pods["because"]


def test_an_amount_of_one_container_names_it(shop: dict[str, Any]) -> None:
    assert shop["objects"][3]["makes"][-1]["because"]["limits.cpu"] == "container report"


def test_defaults_of_limit_ranges_are_listed(shop: dict[str, Any]) -> None:
    assert shop["objects"][0]["makes"][-1]["filledIn"][0]["container"] == "proxy"


def test_the_first_refusal_has_the_api_servers_message(shop: dict[str, Any]) -> None:
    first = shop["firstRefused"]
    assert (first["kind"], first["name"], first["object"]) == ("CronJob", "report", "report-0")
    assert first["message"].startswith('pods "report-0" is forbidden: exceeded quota: team, requested: ')
    assert first["reasons"][0]["type"] == "QuotaExceeded"


def test_the_document_says_how_many_pods_still_fit(shop: dict[str, Any]) -> None:
    assert [room["morePods"] for room in shop["stillFits"]] == [0, 0, 0]


def test_the_document_has_the_smallest_changes_that_make_everything_fit(shop: dict[str, Any]) -> None:
    fixes = shop["fixes"]
    assert fixes["raise"][0]["to"] == "3900m"
    lowered = [(each["name"], each["from"], each["to"]) for each in fixes["lowerOne"]]
    assert lowered == [("web", 5, 3), ("db", 2, 1)]
    assert fixes["lowerAll"] == []


@pytest.mark.slow
def test_yaml_equals_json(capsys: pytest.CaptureFixture[str]) -> None:
    result = document(capsys)
    assert run([*SHOP, "-o", "yaml"]) == NO
    assert yaml.safe_load(capsys.readouterr().out) == result


def test_fixes_work(capsys: pytest.CaptureFixture[str]) -> None:
    for change in ("resourcequota/team:hard.requests.cpu=3900m", "deployment/web:replicas=3"):
        assert "what if: everything fits" in text(capsys, *SHOP[1:], "--set", change)
    for change in ("resourcequota/team:hard.requests.cpu=3899m", "deployments/web:replicas=4"):
        assert "what if: first refused: CronJob shop/report" in text(
            capsys, *SHOP[1:], "--set", change, code=NO
        )


def test_a_what_if_report_compares_both_results(capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, *SHOP[1:], "--set", "deployment/web:containers.app.requests.cpu=100m")
    assert "requests.cpu             3900m      3150m     -750m    3500m" in shown
    assert "Deployment shop/web   requests.cpu each   300m     150m" in shown
    assert "CronJob shop/report   pods admitted       0 of 2   2 of 2" in shown
    result = document(capsys, "--set", "deployment/web:containers.app.requests.cpu=100m", code=YES)
    assert (result["fits"], result["whatIf"]["fits"]) == (False, True)


def test_another_file_replaces_or_adds_objects(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = (
        (FOLDER / "team.yaml").read_text().replace("3500m", '"9"')
        + "---\n"
        + POD.replace("name: a}", "name: extra, namespace: shop}", 1)
    )
    shown = text(capsys, *SHOP[1:], "--what-if", file(tmp_path, other), code=NO)
    assert "requests.cpu             3900m      4900m     +1       3500m -> 9" in shown
    assert re.search(r"Pod shop/extra +pods admitted +- +0 of 1\n", shown)
    assert "what if: first refused: Pod shop/extra" in shown


def test_a_change_without_effect_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing changes" in text(capsys, *SHOP[1:], "--set", "deployment/web:replicas=5", code=NO)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("web", "must be KIND/NAME:PATH=VALUE"),
        ("deployment/wob:replicas=1", "no such object exists"),
        ("deployment/web:replicas=many", "must be a whole number"),
        ("service/web:replicas=1", "has no replicas"),
        ("service/web:containers.a.limits.cpu=1", "has no containers"),
        ("deployment/web:hard.cpu=1", "only a ResourceQuota has hard.RESOURCE"),
        ("deployment/web:containers.main.limits.cpu=1", 'has no container \\"main\\" in containers'),
        ("deployment/web:initContainers.app.limits.cpu=1", "in initContainers"),
        ("deployment/web:containers.app.cpu=1", "must be replicas, hard.RESOURCE or"),
        ("deployment/web:image=1", "must be replicas, hard.RESOURCE or"),
        (
            "deployment/web:containers.app.limits.cpu=x",
            "spec.template.spec.containers[0].resources.limits[cpu]",
        ),
    ],
)
def test_changes_that_cannot_be_made_are_refused(
    change: str, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*SHOP, "--set", change]) == ERROR
    assert rule.replace("\\", "") in capsys.readouterr().err.replace("\\", "")


def test_a_change_without_a_value_removes_the_amount(capsys: pytest.CaptureFixture[str]) -> None:
    removed = ("deployment/web:containers.app.limits.cpu=", "deployment/web:containers.app.requests.cpu=")
    changes = [word for change in removed for word in ("--set", change)]
    shown = text(capsys, *SHOP[1:], *changes, code=YES)
    assert "what if: everything fits" in shown  # the limit range gives 200m instead


def test_pods_whose_requests_exceed_the_default_limit_are_not_created(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = text(capsys, *SHOP[1:], "--set", "deployment/web:containers.app.limits.cpu=", code=NO)
    rule = 'requests: Invalid value: "250m": must be less than or equal to cpu limit of 200m'
    assert f'Pod "web-0" is invalid: spec.containers[0].resources.{rule}' in shown


def test_ci_gets_a_test_case_for_each_object(capsys: pytest.CaptureFixture[str]) -> None:
    junit = text(capsys, *SHOP[1:], "-o", "junit", code=NO)
    assert '<testsuite name="quota.shop" tests="4" failures="1">' in junit
    assert '<testcase classname="quota.shop" name="CronJob/report"' in junit
    assert "raise ResourceQuota shop/team requests.cpu from 3500m to 3900m" in junit


def test_code_scanning_gets_the_line_of_the_refused_object(capsys: pytest.CaptureFixture[str]) -> None:
    sarif = json.loads(text(capsys, *SHOP[1:], "-o", "sarif", code=NO))
    (result,) = sarif["runs"][0]["results"]
    assert result["ruleId"] == "quota-exceeded"
    assert result["message"]["text"].startswith(
        '0 of 2 are admitted: pods "report-0" is forbidden: exceeded quota: team'
    )
    region = result["locations"][0]["physicalLocation"]["region"]
    lines = (FOLDER / "shop.yaml").read_text().splitlines()
    assert "".join(lines[region["startLine"] - 1 :]).startswith("apiVersion: batch/v1kind: CronJob")


@pytest.mark.parametrize(
    ("hard", "bounds", "rule"),
    [
        ("limits.memory: 1", "", "quota-must-specify"),
        ("pods: 9", "max: {cpu: 500m}", "limit-range"),
    ],
)
def test_each_sort_of_refusal_has_a_rule(
    hard: str, bounds: str, rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    item = f"{{type: Container, {bounds}}}"
    limit_range = f"{{apiVersion: v1, kind: LimitRange, metadata: {{name: l}}, spec: {{limits: [{item}]}}}}"
    path = file(tmp_path, f"{POD}{QUOTA % (hard, '')}\n---\n{limit_range}")
    sarif = json.loads(text(capsys, "-f", path, "-o", "sarif", code=NO))
    assert [result["ruleId"] for result in sarif["runs"][0]["results"]] == [rule]
    shown = text(capsys, "-f", path, code=NO)
    assert "  Pod default/a: set " in shown
    assert "Pod default/a   0           as refused above" in shown


REFUSED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - {name: api, image: a, resources: %s}
        - {name: side, image: a, resources: %s}
---
apiVersion: v1
kind: LimitRange
metadata: {name: lr}
spec: {limits: [%s]}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: q}
spec: {hard: {%s}}
"""
CPU_OF_API = "requests.cpu and limits.cpu of container api"
SMALL = "{requests: {cpu: 100m, memory: 64Mi}, limits: {cpu: 200m, memory: 64Mi}}"


@pytest.mark.parametrize(
    ("resources", "item", "hard", "remedy"),
    [
        (
            "{requests: {cpu: 3}}", "{type: Container, default: {cpu: 1}}", "pods: 9",
            "set limits.cpu of container api to 3: LimitRange lr sets limits.cpu=1 otherwise",
        ),
        (
            "{requests: {cpu: 3}}", "{type: Container, default: {cpu: 1}, max: {cpu: 2}}", "pods: 9",
            f"set {CPU_OF_API} to 2: LimitRange lr sets limits.cpu=1 otherwise and LimitRange lr allows at most 2",
        ),
        (
            "{requests: {memory: 1Gi}}", "{type: Container}", "limits.memory: 9Gi",
            "set limits.memory of containers api and side, or add `default.memory` to a LimitRange",
        ),
        (
            "{}", "{type: Container}", "requests.cpu: 250m, limits.cpu: 9",
            f"set {CPU_OF_API}, or add `default.cpu` and `defaultRequest.cpu` to a LimitRange; the quota then admits 1",
        ),
        (
            "{limits: {cpu: 4}}", "{type: Container, max: {cpu: 2}}", "pods: 9",
            f"set {CPU_OF_API} to 2: LimitRange lr allows at most 2",
        ),
        (
            "{requests: {cpu: 10m}, limits: {cpu: 20m}}", "{type: Container, min: {cpu: 50m}}", "pods: 9",
            f"set {CPU_OF_API} to 50m: LimitRange lr allows at least 50m",
        ),
        (
            "{}", "{type: Pod, max: {cpu: 2}}", "pods: 9",
            "set limits.cpu of container api to 2: LimitRange lr requires it",
        ),
        (
            "{requests: {memory: 100Mi}, limits: {memory: 1Gi}}",
            "{type: Container, maxLimitRequestRatio: {memory: 3}}", "pods: 9",
            "set requests.memory of container api to 342Mi: LimitRange lr allows limits of at most 3 times the requests",
        ),
        (
            "{requests: {memory: 64Mi}}",
            "{type: Container, min: {memory: 2Gi}, maxLimitRequestRatio: {memory: 3}}",
            "pods: 9",
            "set requests.memory and limits.memory of container api to 2Gi; limits.memory of container side to 2Gi",
        ),
        (
            "{requests: {cpu: 1}}",
            "{type: Container, maxLimitRequestRatio: {memory: 3}}",
            "pods: 9",
            "set requests.memory and limits.memory of container api: LimitRange lr bounds the ratio of limits to requests",
        ),
        (
            "{requests: {cpu: 3}, limits: {cpu: 3}}", "{type: Pod, max: {cpu: 2}}", "pods: 9",
            f"set {CPU_OF_API} to 1800m: LimitRange lr allows at most 2",
        ),
    ],
)  # fmt: skip
def test_each_refusal_is_told_once_with_its_remedy(
    resources: str, item: str, hard: str, remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = "{}" if "side" in remedy or "requires it" in remedy else SMALL
    shown = text(capsys, "-f", file(tmp_path, REFUSED % (resources, other, item, hard)), code=NO)
    assert f"  Deployment default/web: {remedy}" in shown
    message = shown.partition("first refused: ")[2].splitlines()[1].partition(": ")[2]
    assert shown.count(message) == 1
    assert 'Pod ""' not in shown


@pytest.mark.parametrize(
    ("replicas", "pods", "strategy", "hangs"),
    [
        (3, 3, "{}", True),  # 25 % of 3 are 1 more and 0 fewer
        (3, 4, "{}", False),
        (4, 4, "{}", False),  # 25 % of 4 may be unavailable
        (3, 3, "{rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", False),
        (3, 3, "{type: Recreate}", False),
        (4, 3, "{rollingUpdate: {maxUnavailable: 0}}", False),  # refused already
        (0, 3, "{}", False),
    ],
)
def test_a_rollout_that_hangs_is_told_without_surge(
    replicas: int, pods: int, strategy: str, hangs: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = REFUSED % (SMALL, SMALL, "{type: Container}", f"pods: {pods}")
    manifest = manifest.replace("replicas: 3", f"replicas: {replicas}\n  strategy: {strategy}")
    path = file(tmp_path, manifest)
    run(["quota", "-f", path])
    shown = capsys.readouterr().out
    assert ("a rolling update of Deployment default/web hangs" in shown) is hangs
    run(["quota", "-f", path, "-o", "json"])
    (headroom,) = json.loads(capsys.readouterr().out)["stillFits"]
    assert headroom["updateHangs"] is hangs


def test_pods_of_custom_resources_are_counted_as_those_of_requests(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = "{restartPolicy: Never, containers: [{name: c, image: i, resources: {requests: {cpu: %s}}}]}"
    path = file(
        tmp_path,
        f"""
{{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {{name: canary}}, spec: {{replicas: 3, template: {{spec: {pod % 1}}}}}}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: train}}
spec:
  replicatedJobs:
    - {{name: leader, replicas: 1, template: {{spec: {{template: {{spec: {pod % 1}}}}}}}}}
    - {{name: worker, replicas: 2, template: {{spec: {{parallelism: 2, template: {{spec: {pod % 2}}}}}}}}}
---
{QUOTA % ("pods: 20, requests.cpu: 11, count/rollouts.argoproj.io: 5", "")}
""",
    )
    assert run(["quota", "-f", path, "-o", "json"]) == NO
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert "not counted" not in captured.err
    (quota,) = report["namespaces"][0]["quotas"]
    assert quota["wanted"] == {"count/rollouts.argoproj.io": "1", "pods": "8", "requests.cpu": "12"}
    assert "raise ResourceQuota default/q requests.cpu from 11 to 12" in report["fixes"]["sentences"]
    assert run(["requests", "-f", path, "-o", "json"]) == YES
    replicas = [pod["replicas"] or 1 for pod in json.loads(capsys.readouterr().out)["items"]]
    assert sum(replicas) == 8
    shown = text(capsys, "-f", path, "--set", "resourcequota/q:hard.pods=3", code=NO)
    assert "default     q       pods" in shown


@pytest.mark.parametrize(("pods", "verdicts"), [(1, ["admitted", "refused"]), (2, ["admitted", "admitted"])])
def test_admit_applies_quotas_to_the_pods_of_custom_resources(
    pods: int, verdicts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    template = "{spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}"
    rollout = "{apiVersion: argoproj.io/v1alpha1, kind: Rollout, metadata: {name: %s}, spec: {replicas: 1, template: %s}}"
    rollouts = "\n---\n".join(rollout % (name, template) for name in ("first", "second"))
    path = file(tmp_path, f"{QUOTA % (f'pods: {pods}', '')}\n---\n{rollouts}\n")
    assert run(["admit", "-f", path, "--node", "m5.xlarge", "-o", "json"]) == (NO if pods == 1 else YES)
    report = json.loads(capsys.readouterr().out)
    assert [pod["verdict"] for pod in report["pods"]] == verdicts
    if pods == 1:
        assert report["pods"][1]["reason"] == "FailedCreate"
        assert (
            "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1"
            in report["pods"][1]["message"]
        )


def test_a_claim_below_the_minimum_has_its_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim = """
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}, spec: {resources: {requests: {storage: 1Gi}},
 accessModes: [ReadWriteOnce]}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: lr}, spec: {limits: [{type: PersistentVolumeClaim, min: {storage: 5Gi}}]}}
"""
    shown = text(capsys, "-f", file(tmp_path, claim), code=NO)
    assert (
        "PersistentVolumeClaim default/data: set spec.resources.requests.storage to 5Gi: LimitRange lr allows at least"
        in shown
    )


def test_what_no_amount_helps_is_named_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bounds = "{type: Container, min: {cpu: 3}}, {type: Pod, max: {cpu: 2}}"
    shown = text(capsys, "-f", file(tmp_path, REFUSED % (SMALL, SMALL, bounds, "pods: 9")), code=NO)
    assert shown.endswith("to make everything fit\n  larger quotas do not help Deployment default/web\n")


def test_no_request_satisfies_a_ratio_beyond_64_bits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = '[{type: Container, maxLimitRequestRatio: {cpu: "9223372036854775808"}}]'
    limit_range = f"{{apiVersion: v1, kind: LimitRange, metadata: {{name: l}}, spec: {{limits: {limits}}}}}"
    pod = POD.replace("{limits: {cpu: 1}}", "{limits: {cpu: 2}, requests: {cpu: 1}}")
    shown = text(capsys, "-f", file(tmp_path, pod + limit_range), code=NO)
    assert shown.endswith("to make everything fit\n  larger quotas do not help Pod default/a\n")


def test_names_are_those_of_refused_objects(capsys: pytest.CaptureFixture[str]) -> None:
    assert text(capsys, *SHOP[1:], "-o", "name", code=NO) == "cronjob/report\n"


def test_everything_can_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, "-f", file(tmp_path, POD + QUOTA % ("pods: 3, secrets: 1", "")))
    assert "everything fits" in shown
    assert "Pod default/a   2" in shown
    assert "to make everything fit" not in shown


def test_without_quotas_nothing_is_charged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert text(capsys, "-f", file(tmp_path, POD)) == "no quotas\n\neverything fits\n"
    config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}\n---\n"
    shown = text(capsys, "-f", file(tmp_path, config + POD + QUOTA % ("cpu: 3", "")))
    assert "not charged: ConfigMap default/c" in shown
    assert "container app\n" in shown


def test_usage_of_the_status_counts_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quota = QUOTA % ("pods: 3", ", status: {hard: {pods: 3}, used: {pods: 3}}")
    path = file(tmp_path, POD + quota)
    assert "everything fits" in text(capsys, "-f", path)
    shown = text(capsys, "-f", path, "--from-status", code=NO)
    assert "used: pods=3, limited: pods=3" in shown


def test_surge_and_nodes_are_configurable(capsys: pytest.CaptureFixture[str]) -> None:
    shown = text(capsys, *SHOP[1:], "--surge", code=NO)
    assert "0 of 2 pods more during the update" in shown
    assert run([*SHOP, "--nodes", "-1"]) == USAGE


UPDATED = (
    "{apiVersion: apps/v1, kind: Deployment, metadata: {name: %s}, spec: {replicas: %d, selector: {matchLabels: {a: b}}, "
    "strategy: {rollingUpdate: {maxSurge: %d}}, template: {metadata: {labels: {a: b}}, spec: {containers: "
    "[{name: a, image: i}]}}}}\n---\n"
)
NO_SURGE = "set `maxSurge: 0` (and `maxUnavailable` to at least 1) in Deployment default/"


def test_no_surge_is_a_fix_and_no_replicas_are_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = file(tmp_path, UPDATED % ("a", 1, 1) + QUOTA % ("pods: 1", ""))
    shown = text(capsys, "-f", one, "--surge", code=NO)
    assert f"or {NO_SURGE}a\n" in shown
    assert "replicas" not in shown
    two = file(tmp_path, UPDATED % ("a", 2, 1) + UPDATED % ("b", 2, 1) + QUOTA % ("pods: 4", ""))
    assert f"or {NO_SURGE}a, Deployment default/b\n" in text(capsys, "-f", two, "--surge", code=NO)
    run(["quota", "-f", two, "--surge", "-o", "json"])
    (together,) = json.loads(capsys.readouterr().out)["fixes"]["noSurge"]
    assert [subject["name"] for subject in together] == ["a", "b"]
    # One alone is enough, of which each is an alternative.
    five = file(tmp_path, UPDATED % ("a", 2, 1) + UPDATED % ("b", 2, 1) + QUOTA % ("pods: 5", ""))
    shown = text(capsys, "-f", five, "--surge", code=NO)
    assert all(f"or {NO_SURGE}{name}\n" in shown for name in "ab")
    # Without the additional pods it does not fit either.
    many = file(tmp_path, UPDATED % ("a", 6, 1) + QUOTA % ("pods: 5", ""))
    assert "maxSurge" not in text(capsys, "-f", many, "--surge", code=NO)


def test_one_more_pod_that_is_invalid_has_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ranges = "{apiVersion: v1, kind: LimitRange, metadata: {name: l}, spec: {limits: [{type: Container, default: {cpu: 1}}]}}"
    deployment = (UPDATED % ("a", 1, 1)).replace("image: i", "image: i, resources: {requests: {cpu: 2}}")
    shown = text(capsys, "-f", file(tmp_path, deployment + ranges), code=NO)
    (row,) = (line for line in shown.splitlines() if line.startswith("Deployment default/a   0"))
    assert row.split("   ")[-1].strip() == "as refused above"
    assert shown.count("spec.containers[0].resources.requests: Invalid value") == 1


def test_bad_quotas_are_refused_in_the_api_servers_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["quota", "-f", file(tmp_path, QUOTA % ("memoy: 1Gi", ""))]) == ERROR
    wanted = 'spec.hard[memoy]: Invalid value: "memoy": must be a standard resource for quota'
    assert wanted in capsys.readouterr().err


def test_many_objects_are_not_all_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = "".join(
        f"{{apiVersion: apps/v1, kind: ReplicaSet, metadata: {{name: r{number}}}, spec: {{replicas: 2, "
        "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, "
        "spec: {containers: [{name: a}]}}}}\n---\n"
        for number in range(8)
    )
    shown = text(capsys, "-f", file(tmp_path, sets + QUOTA % ("pods: 15", "")), code=NO)
    assert "or 3 more (-o json names them)" in shown
    shown = text(capsys, "-f", file(tmp_path, sets + QUOTA % ("pods: 8", "")), code=NO)
    assert "from 2 to 1 replicas and 3 more" in shown
    assert shown.count("is forbidden: exceeded quota") >= 4


def test_each_refused_object_has_its_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = "".join(POD.replace("name: a", f"name: a{number}", 1) + "---\n" for number in range(60))
    shown = text(capsys, "-f", file(tmp_path, pods + QUOTA % ("pods: 1", "")), code=NO)
    assert 'pods "a1" is forbidden: exceeded quota' in shown
    assert 'pods "a2" is forbidden: exceeded quota' in shown
    assert "also refused: 8 more (-o json has them all)" in shown


def test_an_empty_file_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quota", "-f", file(tmp_path, "")]) == ERROR
    assert capsys.readouterr().err == "error: no objects passed to quota\n"


def test_an_unknown_priority_class_is_an_error_if_warnings_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classy = POD.replace("spec:", "spec:\n  priorityClassName: vip", 1)
    assert run(["quota", "--strict", "-f", file(tmp_path, classy)]) == ERROR
    assert 'no PriorityClass with name "vip" is known' in capsys.readouterr().err


POD_LEVEL = """\
apiVersion: v1
kind: ResourceQuota
metadata: {name: q, namespace: default}
spec: {hard: {requests.cpu: "3"}}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  resources: {requests: {cpu: "4"}, limits: {cpu: "4"}}
  containers: [{name: web, image: web, resources: {requests: {cpu: "1"}}}]
"""


@pytest.mark.parametrize(("release", "code"), [("1.33", YES), ("1.34", NO), (None, NO)])
def test_a_pod_is_charged_as_the_release_does(
    release: str | None, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifests = tmp_path / "pods.yaml"
    manifests.write_text(POD_LEVEL)
    options = [] if release is None else ["--release", release]
    assert run(["quota", "-f", str(manifests), "-o", "json", *options]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out)["rulesOf"] == (release or "1.37")
    assert ("spec.resources of the pod is dropped" in printed.err) is (release == "1.33")


def test_a_text_that_is_no_release_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifests = tmp_path / "pods.yaml"
    manifests.write_text(POD_LEVEL)
    assert run(["quota", "-f", str(manifests), "--release", "new"]) == ERROR
    assert capsys.readouterr().err.startswith('error: --release: Invalid value: "new": ')


def test_a_scope_exists_only_in_releases_that_know_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hard = 'persistentvolumeclaims: "1"}, scopes: [VolumeAttributesClass'
    quota = file(tmp_path, (QUOTA % (hard, "")).replace("}}}", "]}}"))
    assert run(["quota", "--release", "1.32", quota]) == ERROR
    assert (
        'spec.scopes: Invalid value: ["VolumeAttributesClass"]: unsupported scope' in capsys.readouterr().err
    )
    text(capsys, "--release", "1.33", quota)


def test_fields_whose_gate_a_release_has_off_are_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pod = (
        "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {hostUsers: false, hostnameOverride: b, "
        "securityContext: {supplementalGroupsPolicy: Merge, seLinuxChangePolicy: Recursive}, "
        "volumes: [{name: i, image: {reference: r}}], containers: [{name: c, image: x, restartPolicy: Never, "
        "restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}], "
        "env: [{name: E, valueFrom: {fileKeyRef: {volumeName: d, path: p, key: k}}}]}]}}"
    ).replace("volumes: [", "volumes: [{name: d, emptyDir: {}}, ")
    path = file(tmp_path, pod)
    assert run(["quota", "--release", "1.32", path]) == YES
    gates = re.findall("the feature gate ([A-Za-z]+) is off in 1.32", capsys.readouterr().err)
    assert gates == [
        "ContainerRestartRules", "EnvFiles", "HostnameOverride", "ImageVolume", "SELinuxChangePolicy",
        "SupplementalGroupsPolicy", "UserNamespacesSupport",
    ]  # fmt: skip
    assert run(["quota", "--release", "1.36", path]) == YES
    assert "is off" not in capsys.readouterr().err
