"""The pod templates that controllers make of the parts of their objects that are no pod templates themselves."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from nodewright.documents.formats.documents import parse_documents
from nodewright.model.errors import InputError

_REVISION_FIELDS = (
    "containerConcurrency",
    "timeoutSeconds",
    "responseStartTimeoutSeconds",
    "idleTimeoutSeconds",
)
"""What a Knative revision has besides the fields of a pod."""
_WORKFLOW_FIELDS = (
    "affinity",
    "hostAliases",
    "imagePullSecrets",
    "nodeSelector",
    "priorityClassName",
    "resourceClaims",
    "schedulerName",
    "securityContext",
    "serviceAccountName",
    "tolerations",
    "volumes",
)
"""What a workflow sets for all of its pods, and a template of it for its own."""
_WORKFLOW_CONTAINERS = ("container", "script", "containerSet")
_EXECUTOR_FIELDS = ("dependencies", "mirrorVolumeMounts", "source")
PARAMETER = "{{"
"""What a value that a controller fills in begins with."""
_SPARK_POD_FIELDS = ("affinity", "nodeSelector", "priorityClassName", "schedulerName", "tolerations")
_JVM_MEMORY = re.compile(r"([0-9]+)([kmgt]?)b?", re.IGNORECASE)
_MEBIBYTES = {"k": 1 / 1024, "": 1 / 1048576, "m": 1, "g": 1024, "t": 1024 * 1024}
_MIN_OVERHEAD_MIB = 384


def number_of(root: Any, field: str) -> int:
    """The number in a field; 1 if it is not set."""
    for step in field.split("."):
        root = root.get(step) if isinstance(root, dict) else None
    return root if isinstance(root, int) and not isinstance(root, bool) else 1


def _plain(part: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | None:
    del value
    return part


def _revision(part: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The template of a Knative revision as one of a pod; containers need no name there."""
    del value
    spec = part.get("spec")
    if not isinstance(spec, dict):
        return part
    containers = spec.get("containers")
    if isinstance(containers, list):
        containers = [
            {"name": "user-container", **item} if isinstance(item, dict) else item for item in containers
        ]
    kept = {key: item for key, item in spec.items() if key not in _REVISION_FIELDS}
    return {**part, "spec": {**kept, "containers": containers}}


def _workflow(part: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The pod of a workflow's template; None for templates that run others (steps, dag, http, ...).

    Follows: argo-workflows v3.6, workflow/controller/workflowpod.go, createWorkflowPod;
        workflow/controller/operator.go, mergedTemplateDefaultsInto.
    Departs: the executor's containers `init` and `wait` are left out: their resources are set in the controller.
    """
    spec = value.get("spec") or {}
    workflow = spec.get("workflowSpec") or spec
    kind = next((name for name in _WORKFLOW_CONTAINERS if isinstance(part.get(name), dict)), None)
    if kind is None:
        return None
    defaults = workflow.get("templateDefaults")
    if isinstance(defaults, dict):
        others = {name: item for name, item in defaults.items() if name not in _WORKFLOW_CONTAINERS}
        part = _merged({**others, kind: defaults.get(kind) or {}}, part)
    containers = (
        part[kind].get("containers") or [] if kind == "containerSet" else [{**part[kind], "name": "main"}]
    )
    holders = [holder for holder in (workflow, part) if isinstance(holder, dict)]
    pod: dict[str, Any] = {
        "containers": _plain_containers((*containers, *(part.get("sidecars") or ()))),
        **{name: holder[name] for holder in holders for name in _WORKFLOW_FIELDS if name in holder},
    }
    if part.get("initContainers"):
        pod["initContainers"] = _plain_containers(part["initContainers"])
    for holder in holders:
        pod = _patched(pod, holder.get("podSpecPatch"))
    meta = part.get("metadata") or {}
    return {"metadata": {name: _without_parameters(item) for name, item in meta.items()}, "spec": pod}


def _plain_containers(containers: Iterable[Any]) -> list[Any]:
    """The containers without what only the executor of workflows reads."""
    return [
        {key: item for key, item in container.items() if key not in _EXECUTOR_FIELDS}
        if isinstance(container, dict)
        else container
        for container in containers
    ]


def _without_parameters(fields: Any) -> Any:
    if not isinstance(fields, dict):
        return fields
    return {key: item for key, item in fields.items() if PARAMETER not in f"{key}{item}"}


def _patched(pod: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The pod's spec with a strategic merge patch; one with parameters is kept as a field, for nothing is known of it."""
    if not isinstance(patch, str):
        return pod
    try:
        value = parse_documents(patch.encode(), "podSpecPatch")[0].value if PARAMETER not in patch else None
    except (InputError, IndexError):
        value = None
    return _merged(pod, value) if isinstance(value, dict) else {**pod, "podSpecPatch": patch}


def _merged(base: Any, patch: Any) -> Any:
    """The value with the patch: mappings by key, lists of named items by name, everything else replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        return {**base, **{key: _merged(base.get(key), item) for key, item in patch.items()}}
    if isinstance(base, list) and isinstance(patch, list) and _are_named(base) and _are_named(patch):
        patches = {item["name"]: item for item in patch}
        kept = [_merged(item, patches.pop(item["name"], {})) for item in base]
        return [*kept, *patches.values()]
    return patch


def _are_named(items: list[Any]) -> bool:
    return all(isinstance(item, dict) and isinstance(item.get("name"), str) for item in items)


def _spark(part: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | None:
    """The pod of a Spark driver or executor: cores, and memory with the overhead for what is not the heap.

    Follows: Spark 3.5, BasicDriverFeatureStep.scala and BasicExecutorFeatureStep.scala: 10 % of the memory, 40 % for
        Python and R, at least 384 MiB.
    Departs: memory that is set for Python workers alone (`spark.executor.pyspark.memory`) is not counted.
    """
    spec = value.get("spec") or {}
    application = spec.get("template") or spec
    is_jvm = str(application.get("type", "Scala")) in ("Java", "Scala")
    factor = float(application.get("memoryOverheadFactor") or (0.1 if is_jvm else 0.4))
    memory = _mebibytes(part.get("memory", "1g"))
    if memory is None:
        return None
    overhead = _mebibytes(part["memoryOverhead"]) if "memoryOverhead" in part else None
    if overhead is None:
        overhead = max(int(factor * memory), _MIN_OVERHEAD_MIB)
    amount = f"{memory + overhead}Mi"
    requests = {"cpu": str(part.get("coreRequest") or part.get("cores") or 1), "memory": amount}
    limits = {"memory": amount}
    if part.get("coreLimit"):
        limits["cpu"] = str(part["coreLimit"])
    gpu = part.get("gpu")
    if isinstance(gpu, dict) and gpu.get("name"):
        limits[str(gpu["name"])] = str(gpu.get("quantity", 1))
    container = {"name": "spark", "image": str(application.get("image") or "spark")}
    pod = {name: part[name] for name in _SPARK_POD_FIELDS if name in part}
    pod["containers"] = [{**container, "resources": {"requests": requests, "limits": limits}}]
    return {"metadata": {"labels": part.get("labels") or {}}, "spec": pod}


def _mebibytes(text: Any) -> int | None:
    """The amount of a JVM's option such as `512m`; None if it is none."""
    match = _JVM_MEMORY.fullmatch(str(text))
    return None if match is None else int(int(match[1]) * _MEBIBYTES[match[2].lower()])


POD_FORMS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any] | None]] = {
    "template": _plain,
    "revision": _revision,
    "workflow": _workflow,
    "spark": _spark,
}
"""By the `form` in the table of kinds."""
