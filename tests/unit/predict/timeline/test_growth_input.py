"""How memory is to grow: command lines, documents, recorded series."""

from pathlib import Path

import pytest

from nodewright.model.errors import InputError
from nodewright.predict.timeline.usage_forecast import (
    Assumptions,
    Growth,
    GrowthForecast,
    parse_moment,
    parse_rate,
)
from nodewright.testing.objects import a_pod

SECOND_NS = 10**9
MI = 1 << 20
HEAD = "apiVersion: nodewright.dev/v1alpha1\nkind: UsageForecast\nspec:\n"


def forecast(*texts: str) -> GrowthForecast:
    growth_forecast = GrowthForecast([a_pod("web"), a_pod("db", metadata={"namespace": "shop"})])
    for text in texts:
        growth_forecast.add(text)
    return growth_forecast


def faults(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        forecast(text)
    return [str(fault) for fault in caught.value.faults]


def write_file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "pod", "container", "rate"),
    [
        ("web=1Mi", "web", "main", MI),
        ("web/main=1Mi/s", "web", "main", MI),
        ("default/web=60/m", "web", "main", 1),
        ("shop/db/main=-1Ki", "db", "main", -1024),
        ("system=5", "", "", 5),
    ],
)
def test_growth_is_given_for_a_pod_a_container_or_the_system(
    text: str, pod: str, container: str, rate: int
) -> None:
    assert forecast(text).growth == [Growth(at_ns=0, pod=pod, container=container, rate=rate)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("api=1Mi", "the node has no pod api; it has default/web, shop/db"),
        ("web/side=1Mi", "default/web has no container side; it has main"),
        ("web=NaN", "a rate is an amount per second"),
        ("web=1Mi/d", "a rate is an amount per second"),
        ("a/b/c/d=1", "must be [NAMESPACE/]POD[/CONTAINER]=RATE, or a file"),
    ],
)
def test_invalid_growth_is_an_error(text: str, rule: str) -> None:
    (fault,) = faults(text)
    assert rule in fault
    assert fault.startswith("--growth: ")


def test_a_document_has_times_and_assumptions(tmp_path: Path) -> None:
    text = """\
  duration: 15m
  growth:
    - {pod: web, rate: 2Mi, start: 1m30s}
    - {rate: 1Mi}
  assumptions: {statsAge: 0s, keptFree: 1Mi, endsAfter: 200ms}
"""
    growth_forecast = forecast(write_file(tmp_path, "friday.yaml", HEAD + text))
    assert growth_forecast.growth == [
        Growth(at_ns=90 * SECOND_NS, pod="web", container="main", rate=2 * MI),
        Growth(at_ns=0, pod="", rate=MI),
    ]
    assert growth_forecast.duration_ns == 900 * SECOND_NS
    assert growth_forecast.assumptions == Assumptions(
        stats_age_ns=0, kept_free_bytes=MI, ends_after_ns=SECOND_NS // 5
    )


def test_all_faults_of_a_document_are_reported_together(tmp_path: Path) -> None:
    text = """\
  duration: 0s
  growth:
    - {pod: api, rate: 2Mi, start: soon}
    - {pod: web, container: side, rate: 1Mi}
  assumptions: {cleanup: -1s, keptFree: "-1"}
"""
    result = "\n".join(faults(write_file(tmp_path, "bad.yaml", HEAD + text)))
    for path in (
        "spec.duration",
        "spec.growth[0].start",
        "spec.growth[0].pod",
        "spec.growth[1].container",
        "spec.assumptions.cleanup",
        "spec.assumptions.keptFree",
    ):
        assert path in result
    assert "bad.yaml:4:" in result


@pytest.mark.parametrize("text", ["kind: Pod\n", HEAD + "  growth: [{rte: 1}]\n", "a: 1\n---\nb: 2\n"])
def test_other_documents_are_refused(tmp_path: Path, text: str) -> None:
    assert faults(write_file(tmp_path, "other.yaml", text))


def test_a_recorded_series_is_followed_and_stays_constant_at_its_end(tmp_path: Path) -> None:
    text = "time,pod,memory\n2026-01-31T12:00:00Z,web,100\n2026-01-31T12:00:10Z,web,400\n2026-01-31T12:00:20Z,web,300\n"
    assert forecast(write_file(tmp_path, "recorded.csv", text)).growth == [
        Growth(at_ns=0, pod="web", container="main", rate=30, to_bytes=100),
        Growth(at_ns=10 * SECOND_NS, pod="web", container="main", rate=-10, to_bytes=400),
        Growth(at_ns=20 * SECOND_NS, pod="web", container="main", to_bytes=300),
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "time,pod,memory\n10,web,1\n5,web,1\n",
            ':3: time: Invalid value: "5": samples of a container must be in ascending order of time',
        ),
        ("time,pod,memory\n10,web,1\n5,shop/db,1\n", ":3: time: Invalid value"),
        ("time,pod,memory\n1,web,1\n1,web,2\n", "samples of a container must be in ascending order of time"),
        ("time,pod,memory\nNaN,web,1\n", ":2: time"),
        ("time,pod,memory\n0,web,NaN\n", ":2: memory"),
        ("time,pod,memory\n0,web,-1\n", "must be 0 or more"),
        ("time,pod,memory\n0,api,1\n", ":2: pod"),
        ("time,pod,memory\n", "must contain samples"),
        ("when,pod\n", "missing: memory, time"),
    ],
)
def test_a_series_with_faults_is_refused_with_the_line(tmp_path: Path, text: str, told: str) -> None:
    assert told in "\n".join(faults(write_file(tmp_path, "bad.csv", text)))


def test_times_and_rates_have_several_notations() -> None:
    assert [parse_moment(text) for text in ("90", "1m30s", "1970-01-01T00:01:30Z")] == [90 * SECOND_NS] * 3
    assert parse_rate(" 2Mi/s") == 2 * MI


def test_a_long_list_of_pods_is_cut() -> None:
    growth_forecast = GrowthForecast(a_pod(f"pod-{at}") for at in range(7))
    with pytest.raises(InputError, match="and 2 more"):
        growth_forecast.add("web=1")
