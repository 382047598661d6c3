"""Validation of the specs of Jobs: their numbers, their policies for failure and success, and their selector.

Also of the specs of CronJobs: their schedule, time zone and Job template.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from nodewright.engine.admission.validation.placement import label_selector_violations
from nodewright.engine.admission.validation.references import (
    mismatch,
    selects,
    shown_selector,
    template_labels,
)
from nodewright.engine.admission.validation.violation import (
    ErrorType,
    Violation,
    duplicate,
    each_invalid,
    invalid,
    not_supported,
    required,
    unless_few,
    unless_short,
    unless_supported,
)
from nodewright.model.kubernetes.name_validation import (
    dns1123_subdomain_errors,
    http_path_errors,
    label_key_errors,
)
from nodewright.model.kubernetes.objects import ObjectMeta
from nodewright.model.values.duration import Duration, DurationError
from nodewright.model.values.golang import NumberError, parse_int, quoted

Fields = Mapping[str, Any]

_MODES = ("NonIndexed", "Indexed")
_MOST_INDEXES, _MANY_COMPLETIONS, _MOST_FOR_MANY = 100_000, 100_000, 10_000
_MOST_RULES, _MOST_CODES, _MOST_PATTERNS = 20, 255, 20
_MOST_MANAGER_BYTES, _MOST_INDEX_BYTES = 63, 64 * 1024
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_NEEDS_INDEXES = "requires indexed completion mode"
_FOR_MANY = (
    f"must be less than or equal to {_MOST_FOR_MANY} when completions are above {_MANY_COMPLETIONS}"
    " and used with backoff limit per index"
)
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")


def job_violations(spec: Fields, path: str) -> Iterator[Violation]:
    """The violations in the spec of a Job with its default numbers, without its template and negative numbers.

    Follows: v1.36, pkg/apis/batch/validation/validation.go, validateJobSpec.
    """
    per_index, most_failed = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    if most_failed is not None and per_index is None:
        yield required(f"{path}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    if spec.get("managedBy") is not None:
        yield from _manager_violations(spec["managedBy"], f"{path}.managedBy")
    mode = spec.get("completionMode")
    yield from unless_supported(f"{path}.completionMode", mode, _MODES)
    if mode == "Indexed":
        yield from _index_violations(spec, path)
    elif mode in (None, "NonIndexed"):
        for field, number in (("backoffLimitPerIndex", per_index), ("maxFailedIndexes", most_failed)):
            if number is not None:
                yield invalid(f"{path}.{field}", number, _NEEDS_INDEXES)
    if spec.get("podFailurePolicy") is not None:
        yield from _failure_policy_violations(spec, f"{path}.podFailurePolicy")
    if spec.get("successPolicy") is not None:
        yield from _success_policy_violations(spec, f"{path}.successPolicy")
    known = _REPLACEMENTS if spec.get("podFailurePolicy") is None else _REPLACEMENTS[:1]
    yield from unless_supported(f"{path}.podReplacementPolicy", spec.get("podReplacementPolicy"), known)
    template = (spec.get("template") or {}).get("spec") or {}
    if spec.get("podFailurePolicy") is not None and template.get("restartPolicy") == "OnFailure":
        rule = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid(f"{path}.template.spec.restartPolicy", "OnFailure", rule)


def with_default_numbers(spec: Fields) -> Fields:
    """The spec of a Job with one pod if it names no number; the template of a Job has no defaults.

    Follows: v1.36, pkg/apis/batch/v1/defaults.go, SetDefaults_Job.
    """
    if spec.get("completions") is None and spec.get("parallelism") is None:
        return {**spec, "completions": 1, "parallelism": 1}
    return spec


def job_selector_violations(meta: ObjectMeta, spec: Fields) -> Iterator[Violation]:
    """The violations in the selector of a Job, which the API server generates unless the Job asks for a manual one.

    Follows: v1.36, pkg/registry/batch/job/strategy.go, generateSelector; pkg/apis/batch/validation/validation.go,
        validateGeneratedSelector and ValidateJobSpec.
    Departs: the uid of a new Job is not known; the API server prints it in these errors.
    """
    labels, selector = template_labels(spec), spec.get("selector")
    problems = [*label_selector_violations(selector, "spec.selector")]
    yield from problems
    generated: dict[str, str] = {}
    if spec.get("manualSelector"):
        if selector is None:
            yield required("spec.selector")
    else:
        generated = {**dict.fromkeys(_NAME_LABELS, meta.name), **dict.fromkeys(_UID_LABELS, meta.uid)}
        for label, value in generated.items():
            if labels.get(label, value) != value:
                rule = f"must be '{value}'" if value else "must be the uid that the Job gets"
                field = f"spec.template.metadata.labels[{label}]"
                yield invalid(field, dict(sorted(labels.items())), rule)
        if selector is None:
            selector = {"matchLabels": {_UID_LABELS[1]: meta.uid}}
        elif not problems and not selects(selector, generated):
            yield invalid("spec.selector", shown_selector(selector), "`selector` not auto-generated")
    if not problems and (selector is None or not selects(selector, {**generated, **labels})):
        yield mismatch(spec, "spec")


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
    yield from unless_supported(
        f"{path}.concurrencyPolicy", spec.get("concurrencyPolicy") or None, _CONCURRENCY
    )
    job, job_path = (spec.get("jobTemplate") or {}).get("spec") or {}, f"{path}.jobTemplate.spec"
    yield from job_violations(job, job_path)
    if job.get("selector") is not None:
        rule = "`selector` will be auto-generated"
        yield invalid(f"{job_path}.selector", shown_selector(job["selector"]), rule)
    if job.get("manualSelector"):
        yield not_supported(f"{job_path}.manualSelector", True, ("nil", "false"))


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


def _manager_violations(manager: str, path: str) -> Iterator[Violation]:
    """The violations in the name of the controller, a path below a domain.

    Follows: v1.36, apimachinery/pkg/util/validation/validation.go, IsDomainPrefixedPath.
    """
    host, _, rest = manager.partition("/")
    if not manager:
        yield required(path)
    elif not host or not rest:
        yield invalid(path, manager, 'must be a domain-prefixed path (such as "acme.io/foo")')
    else:
        yield from each_invalid(path, host, dns1123_subdomain_errors(host))
        yield from each_invalid(path, rest, http_path_errors(rest))
    yield from unless_short(path, manager, _MOST_MANAGER_BYTES)


def _index_violations(spec: Fields, path: str) -> Iterator[Violation]:
    completions, parallelism = spec.get("completions"), spec.get("parallelism")
    most_failed, failed_path = spec.get("maxFailedIndexes"), f"{path}.maxFailedIndexes"
    if completions is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    if parallelism is not None and parallelism > _MOST_INDEXES:
        rule = f"must be less than or equal to {_MOST_INDEXES} when completion mode is Indexed"
        yield invalid(f"{path}.parallelism", parallelism, rule)
    if most_failed is not None:
        if completions is not None and most_failed > completions:
            yield invalid(failed_path, most_failed, "must be less than or equal to completions")
        if most_failed > _MOST_INDEXES:
            yield invalid(failed_path, most_failed, f"must be less than or equal to {_MOST_INDEXES}")
    if (completions or 0) > _MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        if most_failed is None:
            yield required(failed_path, f"must be specified when completions is above {_MANY_COMPLETIONS}")
        for number, field in ((parallelism, f"{path}.parallelism"), (most_failed, failed_path)):
            if number is not None and number > _MOST_FOR_MANY:
                yield invalid(field, number, _FOR_MANY)


def _failure_policy_violations(spec: Fields, path: str) -> Iterator[Violation]:
    rules = spec["podFailurePolicy"].get("rules") or ()
    template = (spec.get("template") or {}).get("spec") or {}
    yield from unless_few(f"{path}.rules", rules, _MOST_RULES)
    containers = (*(template.get("containers") or ()), *(template.get("initContainers") or ()))
    names = {container.get("name") or "" for container in containers}
    for index, rule in enumerate(rules):
        rule_path = f"{path}.rules[{index}]"
        yield from _action_violations(spec, rule.get("action") or "", f"{rule_path}.action")
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if codes is not None:
            yield from _exit_code_violations(codes, names, f"{rule_path}.onExitCodes")
        yield from _condition_violations(conditions, f"{rule_path}.onPodConditions")
        if (codes is None) == (not conditions):
            text = (
                "both OnExitCodes and OnPodConditions is not supported"
                if conditions
                else ("one of OnExitCodes and OnPodConditions is required")
            )
            yield Violation(rule_path, ErrorType.INVALID, None, f"specifying {text}")


def _action_violations(spec: Fields, action: str, path: str) -> Iterator[Violation]:
    if not action:
        yield required(path, _valid_values(_ACTIONS))
    elif action not in _ACTIONS:
        yield not_supported(path, action, _ACTIONS)
    elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
        yield invalid(path, action, "requires the backoffLimitPerIndex to be set")


def _exit_code_violations(codes: Fields, container_names: set[str], path: str) -> Iterator[Violation]:
    operator, values, values_path = codes.get("operator") or "", codes.get("values"), f"{path}.values"
    if not operator:
        yield required(f"{path}.operator", _valid_values(_OPERATORS))
    yield from unless_supported(f"{path}.operator", operator or None, _OPERATORS)
    name = codes.get("containerName")
    if name is not None and name not in container_names:
        rule = "must be one of the container or initContainer names in the pod template"
        yield invalid(f"{path}.containerName", name, rule)
    if not values:
        yield invalid(values_path, () if values is None else [], "at least one value is required")
        return
    yield from unless_few(values_path, values, _MOST_CODES)
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(f"{values_path}[{index}]", value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(f"{values_path}[{index}]", value)
        seen.add(value)
    if any(second < first for first, second in pairwise(values)):
        yield invalid(values_path, list(values), "must be ordered")


def _condition_violations(patterns: Sequence[Fields], path: str) -> Iterator[Violation]:
    yield from unless_few(path, patterns, _MOST_PATTERNS)
    for index, pattern in enumerate(patterns):
        kind, status = pattern.get("type") or "", pattern.get("status") or "True"
        yield from each_invalid(f"{path}[{index}].type", kind, label_key_errors(kind))
        yield from unless_supported(f"{path}[{index}].status", status, _STATUSES)


def _success_policy_violations(spec: Fields, path: str) -> Iterator[Violation]:
    rules = spec["successPolicy"].get("rules") or ()
    if spec.get("completionMode") != "Indexed":
        shown = [
            {"SucceededIndexes": rule.get("succeededIndexes"), "SucceededCount": rule.get("succeededCount")}
            for rule in rules
        ]
        has_rules = spec["successPolicy"].get("rules") is not None
        yield invalid(path, {"Rules": shown if has_rules else None}, _NEEDS_INDEXES)
        return
    if not rules:
        rule = "at least one rules must be specified when the successPolicy is specified"
        yield required(f"{path}.rules", rule)
    yield from unless_few(f"{path}.rules", rules, _MOST_RULES)
    completions = spec.get("completions")
    for index, fields in enumerate(rules):
        # Without a number of completions the API server refuses the Job before its rules.
        if completions is not None:
            yield from _success_rule_violations(fields, completions, f"{path}.rules[{index}]")


def _success_rule_violations(fields: Fields, completions: int, path: str) -> Iterator[Violation]:
    indexes, count, total = fields.get("succeededIndexes"), fields.get("succeededCount"), 0
    if indexes is None and count is None:
        yield required(path, "at least one of succeededCount or succeededIndexes must be specified")
    if indexes is not None:
        yield from unless_short(f"{path}.succeededIndexes", indexes, _MOST_INDEX_BYTES)
        try:
            total = _number_of_indexes(indexes, completions)
        except ValueError as error:
            yield invalid(f"{path}.succeededIndexes", indexes, f"error parsing succeededIndexes: {error}")
    if count is None:
        return
    if count < 0:
        yield invalid(f"{path}.succeededCount", count, "must be greater than or equal to 0")
    if count > completions:
        rule = f"must be less than or equal to {completions} (the number of specified completions)"
        yield invalid(f"{path}.succeededCount", count, rule)
    if indexes is not None and count > total:
        rule = f"must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        yield invalid(f"{path}.succeededCount", count, rule)


def _number_of_indexes(text: str, completions: int) -> int:
    """The number of indexes in intervals such as `0,2-4`.

    Errors:  ValueError with the API server's text.
    Follows: v1.36, pkg/apis/batch/validation/validation.go, validateIndexesFormat and parseIndexInterval.
    """
    total, last = 0, None
    for interval in text.split(",") if text else ():
        bounds = interval.split("-")
        if len(bounds) > 2:
            raise ValueError(
                f"the fragment {quoted(interval)} violates the requirement"
                " that an index interval can have at most two parts separated by '-'"
            )
        numbers = [_index(bound, completions) for bound in bounds]
        previous = numbers[0] if len(numbers) == 2 and numbers[0] >= numbers[1] else None
        if previous is not None:
            raise ValueError(f"non-increasing order, previous: {previous}, current: {numbers[1]}")
        if last is not None and last >= numbers[0]:
            raise ValueError(f"non-increasing order, previous: {last}, current: {numbers[0]}")
        last = numbers[-1]
        total += last - numbers[0] + 1
    return total


def _index(text: str, completions: int) -> int:
    try:
        number = parse_int(text)
    except NumberError as error:
        raise ValueError(f"cannot convert string to integer for index: {quoted(text)}") from error
    if number >= completions:
        raise ValueError(f"too large index: {quoted(text)}")
    return number


def _valid_values(values: Sequence[str]) -> str:
    return f"valid values: [{' '.join(map(quoted, values))}]"


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
