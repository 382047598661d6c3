"""Growth of memory and assumptions of a timeline: as values, and as a document (UsageForecast)."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec
from msgspec.structs import fields, replace

from nodewright.documents.files.regular_files import is_there
from nodewright.documents.formats.decode import decode, schema_faults
from nodewright.documents.formats.documents import InputFile, decode_text, parse_documents, read_file
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.model.errors import Fault, InputError
from nodewright.model.kubernetes.node_profile import API_VERSION
from nodewright.model.kubernetes.objects import ObjectMeta, Pod
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.instant import Instant, InstantError
from nodewright.model.values.quantity import Quantity, QuantityError, whole_amount

SECOND_NS = 10**9


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Growth of a container's memory from a time on, and its usage at that time, where it was recorded.

    Units: nanoseconds from the start; bytes, bytes per second.
    """

    at_ns: int
    pod: str
    """Pod uid; empty: processes outside pods."""
    container: str = ""
    rate: int = 0
    to_bytes: int | None = None
    """Usage at that time; None: unchanged."""


_CLEANUP_POLL_NS = SECOND_NS
_CLEANUP_TIMEOUT_NS = 30 * SECOND_NS


class Assumptions(msgspec.Struct, frozen=True, kw_only=True):
    """Assumptions of the model that no other input determines.

    Units: nanoseconds; bytes.
    """

    first_look_ns: int = 0
    """When the kubelet makes its first check."""
    stats_age_ns: int = 15 * SECOND_NS
    """Interval between measurements of a pod (cAdvisor's is 10 to 20 seconds); 0: measured at each check.

    Follows: v1.36, pkg/kubelet/cadvisor/cadvisor_linux.go, defaultHousekeepingInterval; cAdvisor,
        manager/container.go, jitter. Node and all pods together are measured at each check:
        pkg/kubelet/server/stats/summary.go, Get.
    """
    least_kill_ns: int = 2 * SECOND_NS
    """The shortest time in which the runtime lets a container terminate, whatever its grace period.

    Follows: v1.36, pkg/kubelet/kuberuntime/kuberuntime_manager.go, minimumGracePeriodInSeconds.
    """
    ends_after_ns: int | None = None
    """Time that a container takes to terminate; None: its whole grace period."""
    cleanup_ns: int = SECOND_NS // 2
    """Time between the end of a pod and the end of its cleanup by the kubelet."""
    notified_after_ns: int = 3 * SECOND_NS
    """Delay of the kernel's notification of a threshold on the node (cgroup v1; 0.9 to 5.1 seconds measured)."""
    pods_notified_after_ns: int = SECOND_NS // 20
    """Delay of the notification of a threshold on all pods together (0.02 to 0.07 seconds measured)."""
    kept_free_bytes: int | None = None
    """Memory that the kernel keeps free; None: the kernel's default for the node's memory."""

    @property
    def cleanup_wait_ns(self) -> int:
        """Time between the end of an evicted pod and the kubelet's next check.

        Follows: v1.36, eviction/eviction_manager.go, waitForPodsCleanup: it polls every second, for half a minute.
        """
        polls = max(-(-self.cleanup_ns // _CLEANUP_POLL_NS), 1)
        return min(polls * _CLEANUP_POLL_NS, _CLEANUP_TIMEOUT_NS)

    def termination_ns(self, grace_period_s: int) -> int:
        """Time that an evicted pod takes to terminate."""
        longest_ns = max(grace_period_s * SECOND_NS, self.least_kill_ns)
        return longest_ns if self.ends_after_ns is None else min(longest_ns, self.ends_after_ns)


# ---------------------------------------------------------------- as a document


class ExpectedGrowth(msgspec.Struct, frozen=True, rename="camel"):
    """Growth of one container from a time on."""

    rate: Quantity
    """Bytes per second; negative: it shrinks."""
    pod: str = ""
    """Namespace and name; the namespace is `default` if it is missing. Empty: processes outside pods."""
    container: str = ""
    """Empty: the pod's first container."""
    start: str = "0s"


class ForecastAssumptions(msgspec.Struct, frozen=True, rename="camel"):
    """Assumptions that differ from the defaults; durations as Kubernetes writes them."""

    first_look: str | None = None
    stats_age: str | None = None
    ends_after: str | None = None
    cleanup: str | None = None
    notified_after: str | None = None
    pods_notified_after: str | None = None
    kept_free: Quantity | None = None


class ForecastSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Content of a UsageForecast."""

    growth: tuple[ExpectedGrowth, ...] = ()
    duration: str | None = None
    assumptions: ForecastAssumptions = ForecastAssumptions()


class UsageForecast(msgspec.Struct, frozen=True, rename="camel"):
    """A forecast document."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ForecastSpec = ForecastSpec()
    api_version: str = API_VERSION
    kind: str = "UsageForecast"


KIND = "UsageForecast"
COLUMNS = ("time", "pod", "container", "memory")
SYSTEM_NAME = "system"
"""Name for processes outside pods."""
_PERIODS = {"s": 1, "m": 60, "h": 3600}


class GrowthForecast:
    """Growth, duration and assumptions of a forecast, collected from all inputs; names refer to a node's pods."""

    def __init__(self, pods: Iterable[Pod]) -> None:
        self._pods: Mapping[str, Pod] = {pod.full_name: pod for pod in pods}
        self.growth: list[Growth] = []
        self.duration_ns: int | None = None
        self.assumptions = Assumptions()

    def add(self, text: str) -> None:
        """Adds `[NAMESPACE/]POD[/CONTAINER]=RATE`, or the content of the file of that name.

        Errors: InputError with all faults of the input.
        """
        name, separator, rate = text.partition("=")
        if separator and not is_there(text):
            self.growth.append(self._growth_from_option(name, rate, text))
            return
        file = read_file(text)
        if file.source.endswith(".csv"):
            self.growth += self._growth_from_csv(decode_text(file.content, file.source), file.source)
        else:
            self._add_forecast(file)

    # ------------------------------------------------------------ the command line

    def _growth_from_option(self, name: str, rate: str, text: str) -> Growth:
        parts = name.split("/")
        if len(parts) > 3:
            rule = "must be [NAMESPACE/]POD[/CONTAINER]=RATE, or a file"
            raise InputError([Fault(source="--growth", value=text, rule=rule)])
        pod, container = "/".join(parts[:2]), "/".join(parts[2:])
        if len(parts) == 2 and pod not in self._pods and f"default/{parts[0]}" in self._pods:
            pod, container = parts[0], parts[1]
        try:
            uid, container = self._resolved(pod, container)
            return Growth(at_ns=0, pod=uid, container=container, rate=parse_rate(rate))
        except ValueError as error:
            raise InputError([Fault(source="--growth", value=text, rule=str(error))]) from None

    def _resolved(self, pod: str, container: str) -> tuple[str, str]:
        """The pod's uid and the container's name.

        Errors: ValueError with the names that exist.
        """
        if pod in ("", SYSTEM_NAME) and SYSTEM_NAME not in self._pods:
            return "", ""
        match = self._pods.get(pod if "/" in pod else f"default/{pod}")
        if match is None:
            raise ValueError(f"the node has no pod {pod}; it has {_listed(self._pods)}")
        names = [each.name for each in (*match.spec.containers, *match.spec.init_containers)]
        if container and container not in names:
            raise ValueError(f"{match.full_name} has no container {container}; it has {_listed(names)}")
        return match.uid, container or names[0]

    # ------------------------------------------------------------ files

    def _add_forecast(self, file: InputFile) -> None:
        documents = parse_documents(file.content, file.source)
        value = documents[0].value if len(documents) == 1 else None
        if not isinstance(value, dict) or (value.get("apiVersion"), value.get("kind")) != (API_VERSION, KIND):
            rule = f"one document with apiVersion: {API_VERSION} and kind: {KIND} is required"
            raise InputError([Fault(rule=rule, source=file.source)])
        place = ObjectLocation(file.source, file.content, document=documents[0].number, documents=1)
        faults = schema_faults(value, KIND)
        if faults:
            raise InputError(place.locate_all(faults))
        spec = decode(value, UsageForecast).spec
        growth = [
            self._growth_from_document(step, f"spec.growth[{at}]", faults)
            for at, step in enumerate(spec.growth)
        ]
        duration_ns = _span(spec.duration, "spec.duration", faults, least_ns=1)
        assumptions = _assumptions(self.assumptions, spec.assumptions, faults)
        if faults:
            raise InputError(place.locate_all(faults))
        self.growth += [step for step in growth if step is not None]
        self.duration_ns = duration_ns or self.duration_ns
        self.assumptions = assumptions

    def _growth_from_document(
        self, expected: ExpectedGrowth, path: str, faults: list[Fault]
    ) -> Growth | None:
        start_ns = _span(expected.start, f"{path}.start", faults)
        try:
            uid, container = self._resolved(expected.pod, expected.container)
        except ValueError as error:
            field = "container" if expected.container and "no container" in str(error) else "pod"
            faults.append(Fault(path=f"{path}.{field}", value=getattr(expected, field), rule=str(error)))
            return None
        return Growth(at_ns=start_ns or 0, pod=uid, container=container, rate=expected.rate.value())

    # ------------------------------------------------------------ recorded series

    def _growth_from_csv(self, text: str, source: str) -> list[Growth]:
        """Growth from the samples of a CSV file: linear between two samples, constant after the last."""
        try:
            return self._growth_from_rows(csv.DictReader(io.StringIO(text)), source)
        except csv.Error as error:
            raise InputError([Fault(source=source, rule=f"not valid CSV: {error}")]) from None

    def _growth_from_rows(self, rows: "csv.DictReader[str]", source: str) -> list[Growth]:
        missing = [name for name in COLUMNS if name != "container" and name not in (rows.fieldnames or ())]
        if missing:
            rule = f"a table with the columns {', '.join(COLUMNS)} is required; missing: {_listed(missing)}"
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
            series = samples.setdefault(key, [])
            if (series and series[-1][0] >= at_ns - start_ns) or at_ns < start_ns:
                rule = "samples of a container must be in ascending order of time"
                faults.append(Fault(source=place, path="time", value=row["time"], rule=rule))
                continue
            series.append((at_ns - start_ns, used))
        if not samples and not faults:
            faults.append(Fault(source=source, rule="must contain samples"))
        if faults:
            raise InputError(faults)
        return [step for key, series in samples.items() for step in _steps(key, series)]

    def _sample(
        self, row: Mapping[str, str | None], place: str, faults: list[Fault]
    ) -> tuple[int, tuple[str, str], int] | None:
        values: dict[str, int] = {}
        for name, parse in (("time", parse_moment), ("memory", _bytes)):
            try:
                values[name] = parse(row.get(name) or "")
            except ValueError as error:
                faults.append(Fault(source=place, path=name, value=row.get(name) or "", rule=str(error)))
        try:
            key = self._resolved(row.get("pod") or "", row.get("container") or "")
        except ValueError as error:
            faults.append(Fault(source=place, path="pod", value=row.get("pod"), rule=str(error)))
            return None
        return (values["time"], key, values["memory"]) if len(values) == 2 else None


def parse_rate(text: str) -> int:
    """The rate in a text such as `64Mi`, `64Mi/s`, `-5Mi/m` or `1Gi/h`.

    Units:  bytes per second, rounded down.
    Errors: ValueError.

    >>> parse_rate("64Mi/s"), parse_rate("-1Mi/m"), parse_rate("3600/h")
    (67108864, -17477, 1)
    """
    amount, slash, period = text.strip().partition("/")
    if slash and period not in _PERIODS:
        raise ValueError("a rate is an amount per second, such as 64Mi/s, or per /m or /h")
    try:
        value = whole_amount(amount)
    except QuantityError as error:
        raise ValueError(f"a rate is an amount per second, such as 64Mi/s: {error}") from None
    return value // _PERIODS[period or "s"]


def parse_moment(text: str) -> int:
    """The time of a sample: seconds (`90`, `1.5`), a duration (`1m30s`) or a timestamp (`2026-01-31T12:00:00Z`).

    Units:  nanoseconds since the origin of the series.
    Errors: ValueError.

    >>> parse_moment("1.5"), parse_moment("1m") // 10**9
    (1500000000, 60)
    """
    text = text.strip()
    try:
        if "T" in text:
            return Instant.parse(text).nanoseconds
        if text and text[-1].isdigit():
            exact = Quantity.parse(text).as_fraction() * SECOND_NS
            return int(exact)
        return Duration.parse(text).nanoseconds
    except (InstantError, DurationError, QuantityError):
        raise ValueError(
            "must be seconds, a duration such as 1m30s, or a timestamp such as 2026-01-31T12:00:00Z"
        ) from None


def _steps(key: tuple[str, str], series: Sequence[tuple[int, int]]) -> list[Growth]:
    pod, container = key
    steps = []
    for (at_ns, used), (next_ns, later) in pairwise(series):
        rate = (later - used) * SECOND_NS // (next_ns - at_ns)
        steps.append(Growth(at_ns=at_ns, pod=pod, container=container, rate=rate, to_bytes=used))
    at_ns, used = series[-1]
    return [*steps, Growth(at_ns=at_ns, pod=pod, container=container, to_bytes=used)]


def _bytes(text: str) -> int:
    try:
        value = whole_amount(text.strip())
    except QuantityError as error:
        raise ValueError(str(error)) from None
    if value < 0:
        raise ValueError("must be 0 or more")
    return value


def _span(text: str | None, path: str, faults: list[Fault], *, least_ns: int = 0) -> int | None:
    """The duration; None if there is none, or if it is faulty."""
    if text is None:
        return None
    try:
        nanoseconds = Duration.parse(text).nanoseconds
    except DurationError as error:
        faults.append(Fault(path=path, value=text, rule=str(error)))
        return None
    if nanoseconds < least_ns:
        faults.append(
            Fault(path=path, value=text, rule="must be more than 0s" if least_ns else "must be 0s or more")
        )
        return None
    return nanoseconds


def _assumptions(
    current: Assumptions, given_assumptions: ForecastAssumptions, faults: list[Fault]
) -> Assumptions:
    values: dict[str, int] = {}
    for field in fields(ForecastAssumptions):
        path, given = f"spec.assumptions.{field.encode_name}", getattr(given_assumptions, field.name)
        if field.name != "kept_free" and (span := _span(given, path, faults)) is not None:
            values[f"{field.name}_ns"] = span
        elif field.name == "kept_free" and given is not None:
            values["kept_free_bytes"] = given.value()
            if given.value() < 0:
                faults.append(Fault(path=path, value=str(given), rule="must be 0 or more"))
    return replace(current, **values)


def _listed(names: Iterable[str]) -> str:
    listed = sorted(names)
    shown = ", ".join(listed[:5])
    return f"{shown} and {len(listed) - 5} more" if len(listed) > 5 else shown or "none"
