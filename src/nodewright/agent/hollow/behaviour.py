"""What the containers of a pod on a hollow node do, as the pod's annotations and the Stages of kwok say."""

import random
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec

from nodewright.model.errors import Fault
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import is_number_of_digits, saturated_int
from nodewright.model.values.quantity import QuantityError, whole_amount

PREFIX = "nodewright.dev/"
"""Annotations are `nodewright.dev/NAME` for all containers of the pod, or `nodewright.dev/NAME.CONTAINER` for one."""
KWOK_STAGE, _KWOK_MEMORY = "{}.stage.kwok.x-k8s.io/{}", "kwok.x-k8s.io/usage-memory"
MAX_NS = 10 * 365 * 86_400 * 10**9
MAX_WEIGHT = 1 << 31
OWNER_KEY = ".metadata.ownerReferences.[].kind"
MAP_KEY = re.compile(r'\.metadata\.(labels|annotations)\["(.*)"\]', re.DOTALL)
"""The keys of kwok by which a pod's metadata are read."""
_MAX_POINTS, _MAX_BYTES = 10_000, 1 << 60


class UsageCurve(msgspec.Struct, frozen=True):
    """Usage over time: straight lines between points, and constant before the first and after the last.

    Units: nanoseconds since the start of the container, bytes.
    """

    points: tuple[tuple[int, int], ...] = ()
    """Ascending in time; none: the container uses nothing."""

    def at(self, elapsed_ns: int) -> int:
        """The usage at a moment.

        >>> curve = UsageCurve(((0, 100), (10, 200)))
        >>> curve.at(5), curve.at(20)
        (150, 200)
        """
        if not self.points:
            return 0
        index = bisect_right(self.points, elapsed_ns, key=lambda point: point[0])
        if index in (0, len(self.points)):
            return self.points[max(0, index - 1)][1]
        (begin_ns, low), (end_ns, high) = self.points[index - 1 : index + 1]
        return low + (high - low) * (elapsed_ns - begin_ns) // (end_ns - begin_ns)

    def first_above(self, limit: int) -> int | None:
        """The first moment at which the usage is above a limit; None: never.

        >>> UsageCurve(((0, 100), (10, 200))).first_above(149)
        5
        """
        before: tuple[int, int] | None = None
        for at_ns, amount in self.points:
            if amount > limit:
                if before is None:
                    return 0
                grown, rest = amount - before[1], limit + 1 - before[1]
                return before[0] + -(-(at_ns - before[0]) * rest // grown)
            before = (at_ns, amount)
        return None


class Behaviour(msgspec.Struct, frozen=True, kw_only=True):
    """What one attempt of a container does.

    Units: nanoseconds; since the start of the container where they are moments.
    """

    starts_after: int = 0
    """How long the pod prepares before its sandbox exists."""
    runs: int | None = None
    """How long it runs; None: until it is stopped. An init container ends at once if nothing else is said."""
    exit_code: int = 0
    stops_after: int = 0
    """How long it takes to end after SIGTERM."""
    ready_after: int = 0
    """The moment from which its probes succeed."""
    fails_after: int | None = None
    """The moment from which its probes fail; None: they never do."""
    memory: UsageCurve = UsageCurve()
    disk: UsageCurve = UsageCurve()
    logs: str = ""
    """What it has printed when it starts."""
    exec: str = ""
    """What each command in it prints."""
    exec_code: int = 0
    """The exit code of these commands."""


class StageNumber(NamedTuple):
    """A number of a Stage: a duration in nanoseconds, or a weight."""

    number: int | None = None
    annotation: str = ""
    """The annotation of the pod that says another one; empty: none."""

    def of(self, pod: Pod, parse: Callable[[str], int]) -> int | None:
        """The number for a pod; an annotation that cannot be read is ignored."""
        with suppress(KeyError, ValueError, DurationError):
            return parse(pod.metadata.annotations[self.annotation])
        return self.number


class StageMatch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a Stage asks of a pod."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()

    def selects(self, pod: Pod) -> bool:
        """Whether the pod is as asked."""
        mapping = MAP_KEY.fullmatch(self.key)
        values = [owner.kind for owner in pod.metadata.owner_references]
        if mapping is not None:
            texts = pod.metadata.labels if mapping[1] == "labels" else pod.metadata.annotations
            values = [texts[mapping[2]]] if mapping[2] in texts else []
        if self.operator in ("Exists", "DoesNotExist"):
            return bool(values) is (self.operator == "Exists")
        return any(value in self.values for value in values) is (self.operator == "In")


class PodStage(msgspec.Struct, frozen=True, kw_only=True):
    """A Stage of kwok that delays a step in a pod's life."""

    name: str
    step: str
    """A key of `_STEPS`."""
    matches: tuple[StageMatch, ...] = ()
    delay: StageNumber
    jitter: StageNumber = StageNumber()
    weight: StageNumber = StageNumber(1)
    """How often it is chosen among Stages of the same step."""
    exit_code: int = 0

    def selects(self, pod: Pod, container: str) -> bool:
        """Whether it is for this container."""
        named = pod.metadata.annotations.get(KWOK_STAGE.format(self.name, "container-name"))
        return (named or container) == container and all(match.selects(pod) for match in self.matches)


_STEPS = {
    "create": "starts_after",
    "start": "starts_after",
    "end": "runs",
    "init": "runs",
    "ready": "ready_after",
}
"""The steps in a pod's life, and the field of `Behaviour` that the delay of each is; `init` ends init containers."""


def behaviour_of(
    pod: Pod, container: str, attempt: int, seed: str, stages: tuple[PodStage, ...] = ()
) -> tuple[Behaviour, tuple[Fault, ...]]:
    """What an attempt of a container does, and the annotations that cannot be read, which count as absent.

    Equal arguments draw equal values: of a range such as `10s..30s` by the seed and the names of pod and container.

    Follows: kwok v0.7, kustomize/stage/pod/general: `pod-create`, `pod-ready` and `pod-complete`.
    """
    meta = pod.metadata
    draw = random.Random(f"{seed}/{meta.namespace}/{meta.name}/{container}/{attempt}")
    fields, faults = _kwok_fields(pod, container, draw, stages), list[Fault]()
    for name, parse in _PARSERS.items():
        for key in (f"{PREFIX}{name}.{container}", f"{PREFIX}{name}"):
            text = meta.annotations.get(key)
            if text is None:
                continue
            try:
                fields[name.replace("-", "_")] = parse(text, draw)
            except (ValueError, DurationError, QuantityError) as error:
                faults.append(Fault(path=f'metadata.annotations["{key}"]', value=text, rule=str(error)))
            break
    return Behaviour(**fields), tuple(faults)


def has_usage(pod: Pod) -> bool:
    """Whether the pod's annotations say what it uses."""
    names = (f"{PREFIX}memory", f"{PREFIX}disk", _KWOK_MEMORY)
    return any(key.startswith(names) for key in pod.metadata.annotations)


def _kwok_fields(
    pod: Pod, container: str, draw: random.Random, stages: tuple[PodStage, ...]
) -> dict[str, Any]:
    """What kwok's annotations and Stages say; annotations that cannot be read are ignored, as kwok does."""
    annotations, fields = pod.metadata.annotations, dict[str, Any]()
    init = _init_container(pod, container)
    if init is not None and not init.is_sidecar:
        fields["runs"] = 0  # Otherwise the pod would never start.
    for step, field in _STEPS.items():
        candidates = _stages_of(pod, container, step, stages) or _stages_of(
            pod, container, step, _ANNOTATED_STAGES
        )
        if not candidates:
            continue
        weights = [each.weight.of(pod, _weight) or 0 for each in candidates]
        stage = (
            candidates[0]
            if len(candidates) == 1
            else draw.choices(candidates, weights if any(weights) else None)[0]
        )
        delay_ns = _kwok_delay(stage, pod, draw)
        if delay_ns is None:
            continue
        fields[field] = delay_ns + (fields.get(field, 0) if field == "starts_after" else 0)
        if field == "runs" and stage.exit_code:
            code = StageNumber(stage.exit_code, KWOK_STAGE.format(stage.name, "exit-code"))
            fields["exit_code"] = code.of(pod, lambda text: _code(text, draw))
    if _KWOK_MEMORY in annotations:
        with suppress(ValueError, QuantityError):
            fields["memory"] = UsageCurve(((0, _amount(annotations[_KWOK_MEMORY])),))
    return fields


def _init_container(pod: Pod, name: str) -> Container | None:
    return next((each for each in pod.spec.init_containers if each.name == name), None)


def _stages_of(pod: Pod, container: str, step: str, stages: tuple[PodStage, ...]) -> list[PodStage]:
    """The Stages of a step that select the container."""
    init = _init_container(pod, container)
    ends = step in {"end", "init"}
    if (init is None and step == "init") or (init is not None and init.is_sidecar and ends):
        return []
    # A pod that fails while it runs has no init container that fails.
    can_fail = init is None or step != "end"
    return [
        stage
        for stage in stages
        if stage.step == step and (can_fail or not stage.exit_code) and stage.selects(pod, container)
    ]


def _kwok_delay(stage: PodStage, pod: Pod, draw: random.Random) -> int | None:
    """The delay of a Stage: with a longer jitter between both, with a shorter one that.

    Follows: kwok v0.7, pkg/utils/lifecycle/lifecycle.go, Stage.Delay.
    """
    delay, jitter = (number.of(pod, _moment) for number in (stage.delay, stage.jitter))
    if delay is None or jitter is None:
        return delay if jitter is None else jitter
    return draw.randrange(delay, jitter) if jitter > delay else jitter


def _weight(text: str) -> int:
    if not is_number_of_digits(text):
        raise ValueError("must be a number")
    return min(saturated_int(text), MAX_WEIGHT)


_ANNOTATED_STAGES = tuple(
    PodStage(
        name=name,
        step=step,
        matches=matches,
        delay=StageNumber(None, KWOK_STAGE.format(name, "delay")),
        jitter=StageNumber(None, KWOK_STAGE.format(name, "jitter-delay")),
    )
    for name, step, matches in (
        ("pod-create", "create", ()),
        ("pod-ready", "start", ()),
        ("pod-complete", "end", (StageMatch(key=OWNER_KEY, operator="In", values=("Job",)),)),
    )
)
"""The Stages that annotations alone delay, where the cluster has none for the step."""


# ---------------------------------------------------------------- the texts of annotations


def _moment(text: str) -> int:
    nanoseconds = Duration.parse(text.strip()).nanoseconds
    if not 0 <= nanoseconds <= MAX_NS:
        raise ValueError("must be between 0 and ten years")
    return nanoseconds


def _span(text: str, draw: random.Random) -> int:
    """A duration, or one between two."""
    low, separator, high = text.partition("..")
    begin = _moment(low)
    if not separator:
        return begin
    end = _moment(high)
    if end < begin:
        raise ValueError("the second duration must not be shorter than the first: 10s..30s")
    return draw.randint(begin, end)


def _amount(text: str) -> int:
    amount = whole_amount(text.strip())
    if not 0 <= amount <= _MAX_BYTES:
        raise ValueError("must be an amount of bytes such as 512Mi")
    return amount


def _curve(text: str, draw: random.Random) -> UsageCurve:
    """Points such as `0s=100Mi,10m=2Gi`, or one amount."""
    del draw
    return UsageCurve(tuple(_points(text)))


def _points(text: str) -> Iterator[tuple[int, int]]:
    parts = text.split(",")
    if len(parts) > _MAX_POINTS:
        raise ValueError(f"must have at most {_MAX_POINTS} points")
    last_ns = -1
    for part in parts:
        at, separator, amount = part.partition("=")
        at_ns = _moment(at) if separator else 0
        if at_ns <= last_ns:
            raise ValueError("times must ascend: 0s=100Mi,10m=2Gi")
        last_ns = at_ns
        yield at_ns, _amount(amount if separator else at)


def _text(text: str, draw: random.Random) -> str:
    del draw
    return text


def _code(text: str, draw: random.Random) -> int:
    del draw
    if not is_number_of_digits(text) or saturated_int(text) > 255:
        raise ValueError("must be a number from 0 to 255")
    return int(text)


_PARSERS: Mapping[str, Callable[[str, random.Random], Any]] = {
    "starts-after": _span,
    "runs": _span,
    "exit-code": _code,
    "stops-after": _span,
    "ready-after": _span,
    "fails-after": _span,
    "memory": _curve,
    "disk": _curve,
    "logs": _text,
    "exec": _text,
    "exec-code": _code,
}
"""The annotations, by the name after the prefix: a field of `Behaviour` each, in the order in which values are drawn."""
