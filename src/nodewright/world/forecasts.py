"""How memory is to grow: what the command line, a UsageForecast or a recorded series says."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from msgspec.structs import replace

from nodewright.model.forecast import (
    SECOND_NS,
    Assumptions,
    ExpectedGrowth,
    ForecastAssumptions,
    Growth,
    UsageForecast,
)
from nodewright.model.objects import Pod
from nodewright.model.profile import API_VERSION
from nodewright.values.duration import Duration, DurationError
from nodewright.values.instant import Instant, InstantError
from nodewright.values.quantity import Quantity, QuantityError
from nodewright.world.decode import decode
from nodewright.world.documents import decode_text, parse_documents
from nodewright.world.errors import Fault, InputError
from nodewright.world.files import File, read_file
from nodewright.world.places import Place
from nodewright.world.schema import faults_in

KIND = "UsageForecast"
COLUMNS = ("time", "pod", "container", "memory")
SYSTEM = "system"
"""What stands for what runs beside the pods, where a name is wanted."""
_PERIODS = {"s": 1, "m": 60, "h": 3600}


class Forecast:
    """All that was said of growth, gathered; resolved against the pods of a node."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods: Mapping[str, Pod] = {pod.full_name: pod for pod in pods}
        self.growth: list[Growth] = []
        self.duration_ns: int | None = None
        self.assumed = Assumptions()

    def add(self, text: str) -> None:
        """Take in `[NAMESPACE/]POD[/CONTAINER]=RATE`, or the file of that name.

        Errors: InputError with all that is wrong with it.
        """
        name, found, rate = text.partition("=")
        if found and not Path(text).exists():
            self.growth.append(self._said(name, rate, text))
        else:
            self._read(read_file(text))

    # ------------------------------------------------------------ the command line

    def _said(self, name: str, rate: str, text: str) -> Growth:
        parts = name.split("/")
        if len(parts) > 3:
            rule = "must be [NAMESPACE/]POD[/CONTAINER]=RATE, or a file"
            raise InputError([Fault(source="--growth", value=text, rule=rule)])
        pod, container = "/".join(parts[:2]), "/".join(parts[2:])
        if len(parts) == 2 and pod not in self._pods and f"default/{parts[0]}" in self._pods:
            pod, container = parts[0], parts[1]
        try:
            uid, container = self._resolved(pod, container)
            return Growth(at_ns=0, pod=uid, container=container, rate=rate_of(rate))
        except ValueError as error:
            raise InputError([Fault(source="--growth", value=text, rule=str(error))]) from None

    def _resolved(self, pod: str, container: str) -> tuple[str, str]:
        """The pod's uid and the container's name.

        Errors: ValueError saying what there is instead.
        """
        if pod in ("", SYSTEM) and SYSTEM not in self._pods:
            return "", ""
        found = self._pods.get(pod if "/" in pod else f"default/{pod}")
        if found is None:
            raise ValueError(f"the node has no pod {pod}; it has {_listed(self._pods)}")
        names = [one.name for one in (*found.spec.containers, *found.spec.init_containers)]
        if container and container not in names:
            raise ValueError(f"{found.full_name} has no container {container}; it has {_listed(names)}")
        return found.uid, container or names[0]

    # ------------------------------------------------------------ files

    def _read(self, file: File) -> None:
        if file.source.endswith(".csv"):
            self.growth += self._series(decode_text(file.content, file.source), file.source)
        else:
            self._forecast(file)

    def _forecast(self, file: File) -> None:
        documents = parse_documents(file.content, file.source)
        value = documents[0].value if len(documents) == 1 else None
        if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
            rule = f"one document with apiVersion: {API_VERSION} and kind: {KIND} is wanted"
            raise InputError([Fault(rule=rule, source=file.source)])
        place = Place(file.source, file.content, document=documents[0].number, documents=1)
        faults = faults_in(value, KIND)
        if faults:
            raise InputError(place.all_of(faults))
        spec = decode(value, UsageForecast).spec
        growth = [self._expected(one, f"spec.growth[{at}]", faults) for at, one in enumerate(spec.growth)]
        duration_ns = _span(spec.duration, "spec.duration", faults, least_ns=1)
        assumed = _assumed(self.assumed, spec.assumptions, faults)
        if faults:
            raise InputError(place.all_of(faults))
        self.growth += [one for one in growth if one is not None]
        self.duration_ns = duration_ns or self.duration_ns
        self.assumed = assumed

    def _expected(self, one: ExpectedGrowth, path: str, faults: list[Fault]) -> Growth | None:
        start_ns = _span(one.start, f"{path}.start", faults)
        try:
            uid, container = self._resolved(one.pod, one.container)
        except ValueError as error:
            field = "container" if one.container and "no container" in str(error) else "pod"
            faults.append(Fault(path=f"{path}.{field}", value=getattr(one, field), rule=str(error)))
            return None
        return Growth(at_ns=start_ns or 0, pod=uid, container=container, rate=one.rate.value())

    # ------------------------------------------------------------ recorded series

    def _series(self, text: str, source: str) -> list[Growth]:
        """Between two samples memory grows evenly; after the last it stays as it is."""
        rows = csv.DictReader(io.StringIO(text))
        missing = [name for name in COLUMNS if name != "container" and name not in (rows.fieldnames or ())]
        if missing:
            rule = f"a table with the columns {', '.join(COLUMNS)} is wanted; there is no {_listed(missing)}"
            raise InputError([Fault(source=f"{source}:1", rule=rule)])
        faults: list[Fault] = []
        samples: dict[tuple[str, str], list[tuple[int, int]]] = {}
        start_ns: int | None = None
        for row in rows:
            place = f"{source}:{rows.line_num}"
            sample = self._sample(row, place, faults)
            if sample is None:
                continue
            at_ns, key, used = sample
            start_ns = at_ns if start_ns is None else start_ns
            known = samples.setdefault(key, [])
            if (known and known[-1][0] >= at_ns - start_ns) or at_ns < start_ns:
                rule = "the clock goes backwards, or stands still: samples of a container must come in order"
                faults.append(Fault(source=place, path="time", value=row["time"], rule=rule))
                continue
            known.append((at_ns - start_ns, used))
        if not samples and not faults:
            faults.append(Fault(source=source, rule="there are no samples"))
        if faults:
            raise InputError(faults)
        return [one for key, known in samples.items() for one in _steps(key, known)]

    def _sample(
        self, row: Mapping[str, str | None], place: str, faults: list[Fault]
    ) -> tuple[int, tuple[str, str], int] | None:
        found: dict[str, int] = {}
        for name, parse in (("time", moment_of), ("memory", _bytes)):
            try:
                found[name] = parse(row.get(name) or "")
            except ValueError as error:
                faults.append(Fault(source=place, path=name, value=row.get(name) or "", rule=str(error)))
        try:
            key = self._resolved(row.get("pod") or "", row.get("container") or "")
        except ValueError as error:
            faults.append(Fault(source=place, path="pod", value=row.get("pod"), rule=str(error)))
            return None
        return (found["time"], key, found["memory"]) if len(found) == 2 else None


def rate_of(text: str) -> int:
    """The rate that a text such as `64Mi`, `64Mi/s`, `-5Mi/m` or `1Gi/h` stands for.

    Units:  bytes a second, rounded down.
    Errors: ValueError.

    >>> rate_of("64Mi/s"), rate_of("-1Mi/m"), rate_of("3600/h")
    (67108864, -17477, 1)
    """
    amount, slash, period = text.strip().partition("/")
    if slash and period not in _PERIODS:
        raise ValueError("a rate is an amount a second, such as 64Mi/s; or /m or /h")
    try:
        value = Quantity.parse(amount).value()
    except QuantityError as error:
        raise ValueError(f"a rate is an amount a second, such as 64Mi/s: {error}") from None
    return value // _PERIODS[period or "s"]


def moment_of(text: str) -> int:
    """The moment of a sample: seconds (`90`, `1.5`), a span (`1m30s`) or a time (`2026-01-31T12:00:00Z`).

    Units:  nanoseconds, from wherever the series counts.
    Errors: ValueError.

    >>> moment_of("1.5"), moment_of("1m") // 10**9
    (1500000000, 60)
    """
    text = text.strip()
    try:
        if "T" in text:
            return Instant.parse(text).nanoseconds
        if text and text[-1].isdigit():
            exact = Quantity.parse(text).exact() * SECOND_NS
            return int(exact)
        return Duration.parse(text).nanoseconds
    except (InstantError, DurationError, QuantityError):
        raise ValueError("is no time: seconds, a span such as 1m30s, or 2026-01-31T12:00:00Z") from None


def _steps(key: tuple[str, str], known: Sequence[tuple[int, int]]) -> list[Growth]:
    pod, container = key
    found = []
    for (at_ns, used), (next_ns, later) in pairwise(known):
        rate = (later - used) * SECOND_NS // (next_ns - at_ns)
        found.append(Growth(at_ns=at_ns, pod=pod, container=container, rate=rate, to_bytes=used))
    at_ns, used = known[-1]
    return [*found, Growth(at_ns=at_ns, pod=pod, container=container, to_bytes=used)]


def _bytes(text: str) -> int:
    try:
        value = Quantity.parse(text.strip()).value()
    except QuantityError as error:
        raise ValueError(str(error)) from None
    if value < 0:
        raise ValueError("nobody uses less than nothing")
    return value


def _span(text: str | None, path: str, faults: list[Fault], *, least_ns: int = 0) -> int | None:
    """The span; None where there is none or a fault."""
    if text is None:
        return None
    try:
        found = Duration.parse(text).nanoseconds
    except DurationError as error:
        faults.append(Fault(path=path, value=text, rule=str(error)))
        return None
    if found < least_ns:
        faults.append(
            Fault(path=path, value=text, rule="must be more than 0s" if least_ns else "must be 0s or more")
        )
        return None
    return found


def _assumed(known: Assumptions, said: ForecastAssumptions, faults: list[Fault]) -> Assumptions:
    spans = {
        "first_look": ("first_look_ns", 0),
        "stats_age": ("stats_age_ns", 0),
        "ends_after": ("ends_after_ns", 0),
        "cleanup": ("cleanup_ns", 0),
        "notified_after": ("notified_after_ns", 0),
        "pods_notified_after": ("pods_notified_after_ns", 0),
    }
    found: dict[str, int] = {}
    for field, (target, least_ns) in spans.items():
        name = "".join((field.split("_")[0], *(word.capitalize() for word in field.split("_")[1:])))
        span = _span(getattr(said, field), f"spec.assumptions.{name}", faults, least_ns=least_ns)
        if span is not None:
            found[target] = span
    if said.kept_free is not None:
        found["kept_free_bytes"] = said.kept_free.value()
        if found["kept_free_bytes"] < 0:
            fault = Fault(
                path="spec.assumptions.keptFree", value=str(said.kept_free), rule="must be 0 or more"
            )
            faults.append(fault)
    return replace(known, **found)


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(listed[:5])
    return f"{shown} and {len(listed) - 5} more" if len(listed) > 5 else shown or "none"
