"""Validation of the specs of CronJobs: their schedule, time zone and Job template."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from nodewright.engine.admission.validation.job_spec import job_violations
from nodewright.engine.admission.validation.label_selectors import shown_selector
from nodewright.engine.admission.validation.violation import Violation, invalid, not_supported, required
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import parse_int


class _TimeField(NamedTuple):
    """A field of a schedule."""

    least: int
    most: int
    names: Mapping[str, int] = {}


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_TIME_FIELDS = (
    _TimeField(0, 59),
    _TimeField(0, 23),
    _TimeField(1, 31),
    _TimeField(1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _TimeField(0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = "@every "
_ZONE_PART = re.compile(r"[A-Za-z.\-_0-9+]{1,14}", re.ASCII)
_NO_LOCAL = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
_CONCURRENCY = ("Allow", "Forbid", "Replace")


def cron_job_violations(spec: Fields, path: str) -> Iterator[Violation]:
    """The violations in the spec of a CronJob, without the pod template and negative numbers.

    Follows: v1.36, pkg/apis/batch/validation/validation.go, validateCronJobSpec and ValidateJobTemplateSpec.
    Departs: whether a time zone exists is not checked, because it depends on the API server's machine.
    """
    schedule, zone = spec.get("schedule") or "", spec.get("timeZone")
    if not schedule:
        yield required(f"{path}.schedule")
    elif "TZ" in schedule:
        rule = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        yield invalid(f"{path}.schedule", schedule, rule)
    elif error := schedule_error(schedule):
        yield invalid(f"{path}.schedule", schedule, error)
    if zone is not None and (rule := _zone_rule(zone)):
        yield invalid(f"{path}.timeZone", zone, rule)
    policy = spec.get("concurrencyPolicy")
    if policy and policy not in _CONCURRENCY:
        yield not_supported(f"{path}.concurrencyPolicy", policy, _CONCURRENCY)
    job, job_path = (spec.get("jobTemplate") or {}).get("spec") or {}, f"{path}.jobTemplate.spec"
    yield from job_violations(job, job_path)
    if job.get("selector") is not None:
        rule = "`selector` will be auto-generated"
        yield invalid(f"{job_path}.selector", shown_selector(job["selector"]), rule)
    if job.get("manualSelector"):
        yield not_supported(f"{job_path}.manualSelector", True, ("nil", "false"))


def _zone_rule(zone: str) -> str:
    """Why the text names no time zone; empty if it may.

    Follows: v1.36, pkg/apis/batch/validation/validation.go, validateTimeZone.
    """
    if not zone:
        return "timeZone must be nil or non-empty string"
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE_PART.fullmatch(part):
            return f"unknown time zone {zone}"
    return _NO_LOCAL if zone.casefold() == "local" else ""


def schedule_error(schedule: str) -> str:
    """Why the text is not a schedule, in the words of the API server; empty if it is one.

    Follows: v1.36, vendor/github.com/robfig/cron/v3/parser.go, Parser.Parse.

    >>> schedule_error("*/5 0-6 1,15 jan-mar mon")
    ''
    >>> schedule_error("61 * * * *")
    'end of range (61) above maximum (59): 61'
    """
    if schedule.startswith("@"):
        return _descriptor_error(schedule)
    fields = schedule.split()
    if len(fields) != len(_TIME_FIELDS):
        return f"expected exactly {len(_TIME_FIELDS)} fields, found {len(fields)}: [{' '.join(fields)}]"
    try:
        for text, field in zip(fields, _TIME_FIELDS, strict=True):
            for expression in filter(None, text.split(",")):
                _check_range(expression, field)
    except ValueError as error:
        return str(error)
    return ""


def _descriptor_error(text: str) -> str:
    if text in _DESCRIPTORS:
        return ""
    if not text.startswith(_EVERY):
        return f"unrecognized descriptor: {text}"
    try:
        Duration.parse(text.removeprefix(_EVERY))
    except DurationError as error:
        return f"failed to parse duration {text}: {error}"
    return ""


def _check_range(text: str, field: _TimeField) -> None:
    """Raises ValueError for what is no range of the field's numbers.

    Follows: v1.36, vendor/github.com/robfig/cron/v3/parser.go, getRange.
    """
    range_text, *steps = text.split("/")
    bounds = range_text.split("-")
    step = 1
    if bounds[0] in ("*", "?"):
        start, end = field.least, field.most
    else:
        start = _number(bounds[0], field.names)
        if len(bounds) > 2:
            raise ValueError(f"too many hyphens: {text}")
        end = _number(bounds[-1], field.names)
    if len(steps) > 1:
        raise ValueError(f"too many slashes: {text}")
    if steps:
        step = _number(steps[0], {})
        end = field.most if len(bounds) == 1 else end
    if start < field.least:
        raise ValueError(f"beginning of range ({start}) below minimum ({field.least}): {text}")
    if end > field.most:
        raise ValueError(f"end of range ({end}) above maximum ({field.most}): {text}")
    if start > end:
        raise ValueError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ValueError(f"step of range should be a positive number: {text}")


def _number(text: str, names: Mapping[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    try:
        number = parse_int(text)
    except ValueError as error:
        raise ValueError(f"failed to parse int from {text}: {error}") from error
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number
