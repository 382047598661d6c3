"""The pods of custom resources: where their templates are, the pods that controllers make of them, and their workloads.

Kinds that a table or `--template-path` names have templates at known paths; other kinds get a warning.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from nodewright.documents.formats.documents import parse_documents
from nodewright.documents.formats.object_location import ObjectLocation
from nodewright.documents.formats.object_selection import CustomKind, TemplatePath
from nodewright.documents.formats.workloads import Workload
from nodewright.model.errors import Fault, InputError
from nodewright.model.values.golang import saturated_int

T = TypeVar("T", dict[str, Any], list[Any])


class CustomPod(NamedTuple):
    """A pod template of a custom resource."""

    path: str
    template: dict[str, Any]
    replicas: int
    suffix: str
    """What distinguishes its pods from those of other templates of the object; empty if there are none."""
    not_judged: str = ""
    """Why there is no template to judge."""


_POD_TEMPLATE_LABEL = re.compile(r"PodTemplate \S+$")
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")


def judged_custom_pods(
    value: dict[str, Any], label: str, kinds: Sequence[CustomKind], *, judges_templates: bool
) -> Iterator[CustomPod | str]:
    """The pods of a custom resource that are judged, and a warning for each that is not."""
    pods = custom_pods(value, value["apiVersion"].rpartition("/")[0], kinds)
    if pods is None:
        yield from _unknown_templates(value, label)
        return
    if pods and not judges_templates:
        yield f"{label}: the pods of its templates are not counted"
        return
    for pod in pods:
        if pod.not_judged:
            yield f"{label}: {pod.not_judged}"
            continue
        field = _field_with_parameters(pod.template.get("spec"))
        if field is None:
            yield pod
        else:
            yield f"{label}: {pod.path} has parameters in {field}, so its pods are not judged"


def _unknown_templates(value: dict[str, Any], label: str) -> Iterator[str]:
    for path in template_paths(value):
        yield (
            f"{label}: the pods of its template {path} are not judged; "
            f"--template-path '{value['kind']}={path}' judges them"
        )


def _field_with_parameters(spec: Any) -> str | None:
    """The first field with parameters that the verdict may depend on."""
    if not isinstance(spec, dict):
        return None
    for name, item in spec.items():
        if name in _CONTAINER_LISTS:
            if any(PARAMETER in _json(container.get("resources")) for container in _mappings(item)):
                return "resources"
        elif name != "volumes" and PARAMETER in _json(item):
            return str(name)
    return None


def _mappings(items: Any) -> list[dict[str, Any]]:
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _json(value: Any) -> str:
    return json.dumps(value, default=str)


def pod_template(value: dict[str, Any], pod: CustomPod) -> dict[str, Any]:
    """The template of the pod as a PodTemplate."""
    meta = _metadata(value)
    name = "-".join(filter(None, (_owner_name(value).rstrip("-."), pod.suffix.lower())))
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"name": name, **({"namespace": meta["namespace"]} if meta.get("namespace") else {})},
        "template": pod.template,
    }


def location_of_template(location: ObjectLocation, pod: CustomPod) -> ObjectLocation:
    """Where the fields of the PodTemplate stand."""
    path = pod.path.rpartition(".")[0] if pod.path.endswith(".template") else pod.path
    return replace(location, prefix=".".join(filter(None, (location.prefix, path))))


def owned_workload(workload: Workload, value: dict[str, Any], custom_pod: CustomPod) -> Workload:
    """The workload of the PodTemplate as one of the custom resource, which is the owner of its pod."""
    api_version, kind, name = value["apiVersion"], value["kind"], _owner_name(value)
    meta = workload.pod.metadata
    owner = replace(meta.owner_references[0], api_version=api_version, kind=kind, name=name)
    pod = replace(workload.pod, metadata=replace(meta, owner_references=(owner,)))
    return replace(
        workload, api_version=api_version, kind=kind, name=name, replicas=custom_pod.replicas, pod=pod
    )


def faults_in_custom_resource(faults: Iterable[Fault], label: str, path: str) -> Iterator[Fault]:
    """The faults of a PodTemplate with the label and the path of the object that has the template."""
    for fault in faults:
        place = fault.path.removeprefix("template")
        yield replace(
            fault,
            source=_POD_TEMPLATE_LABEL.sub(lambda _: label, fault.source),
            path=fault.path if place == fault.path else f"{path}{place}",
        )


_MAX_DEPTH = 12


@cache
def known_kinds() -> tuple[CustomKind, ...]:
    """The kinds of the table."""
    text = (
        resources.files("nodewright.documents.formats").joinpath("data/pod_templates.json").read_text("utf-8")
    )
    return msgspec.convert(json.loads(text), tuple[CustomKind, ...])


def custom_pods(
    value: Mapping[str, Any], group: str, added: Sequence[CustomKind] = ()
) -> tuple[CustomPod, ...] | None:
    """The pod templates of an object; None if its kind is not known."""
    known = next(
        (
            known
            for known in (*added, *known_kinds())
            if known.kind == value.get("kind") and known.group in (None, group)
        ),
        None,
    )
    if known is None:
        return None
    sites = [(each, *site) for each in known.pods for site in _sites(value, each.path)]
    pods = []
    for each, path, holder, part in sites:
        try:
            template = POD_FORMS[each.form](part, value)
        except InputError as error:
            raise InputError(
                [replace(fault, path=f"{path}.{fault.path}") for fault in error.faults]
            ) from None
        if isinstance(template, str):
            pods.append(CustomPod(path, {}, 0, "", template))
        elif template is not None:
            suffix = _suffix(path, holder) if len(sites) > 1 else ""
            claimed = _with_claimed_volumes(template, _claim_names(value, each.claims))
            pods.append(CustomPod(path, claimed, _replicas(each, value, holder), suffix))
    return tuple(pods)


def _claim_names(value: Mapping[str, Any], path: str) -> list[str]:
    templates = (template for _, _, template in _sites(value, f"{path}[*]"))
    metas = (template.get("metadata") for template in templates)
    return [meta["name"] for meta in metas if isinstance(meta, dict) and isinstance(meta.get("name"), str)]


def _with_claimed_volumes(template: dict[str, Any], claims: Sequence[str]) -> dict[str, Any]:
    """The template with a volume for each claim that its own volumes do not name; after them, which keeps their places.

    Departs: volumes that no container mounts are there too, which some controllers leave out.
    """
    spec = template.get("spec")
    volumes = spec.get("volumes") or [] if isinstance(spec, dict) else None
    if not claims or not isinstance(volumes, list):
        return template
    own = {volume.get("name") for volume in volumes if isinstance(volume, dict)}
    added = [
        {"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims if name not in own
    ]
    return {**template, "spec": {**template["spec"], "volumes": [*volumes, *added]}}


def template_paths(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """The paths of what looks like pod templates: mappings with a spec that has containers."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        spec = value.get("spec")
        if path and isinstance(spec, dict) and _has_containers(spec.get("containers")):
            yield path
            return
        for key, item in value.items():
            yield from template_paths(item, f"{path}.{key}".lstrip("."), depth + 1)
    elif isinstance(value, list):
        for item in value[:1]:
            yield from template_paths(item, f"{path}[*]", depth + 1)


def _has_containers(containers: Any) -> bool:
    return isinstance(containers, list) and any(
        isinstance(container, dict) and "image" in container for container in containers
    )


def _sites(value: Any, path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Each mapping at the path: its path, the innermost list item or member that holds it, and itself."""
    places: list[tuple[str, Any, Any]] = [("", value, value)]
    for step in path.split("."):
        name = step.removesuffix("[*]")
        after: list[tuple[str, Any, Any]] = []
        for at, holder, part in places:
            if not isinstance(part, dict):
                continue
            if name == "*":
                after += [(f"{at}.{key}".lstrip("."), item, item) for key, item in part.items()]
            elif step == name:
                after.append((f"{at}.{name}".lstrip("."), holder, part.get(name)))
            else:
                items = part.get(name) if isinstance(part.get(name), list) else []
                after += [
                    (f"{at}.{name}[{index}]".lstrip("."), item, item)
                    for index, item in enumerate(items or ())
                ]
        places = after
    return ((at, holder, part) for at, holder, part in places if isinstance(part, dict))


def _replicas(template: TemplatePath, value: Mapping[str, Any], holder: Any) -> int:
    product = 1
    for field in template.replicas:
        root = value if field.startswith("spec.") else holder
        product *= number_of(root, field)
    if template.leader and any(True for _ in _sites(value, template.leader)):
        product -= number_of(value, template.replicas[0])
    return max(product, 0)


def _suffix(path: str, holder: Any) -> str:
    """The name of the list item or member in the path, or of the template's own field."""
    names = holder if isinstance(holder, dict) else {}
    name = names.get("name") or names.get("groupName")
    if isinstance(name, str):
        return name
    steps = [step for step in path.split(".") if step not in ("spec", "template")]
    return steps[-1].partition("[")[0].lower() if steps else ""


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
_MIN_OVERHEAD_MIB, _MAX_OVERHEAD_FACTOR = 384, 1000


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
    spec = _of_type(value, "spec", dict)
    workflow = _of_type(spec, "workflowSpec", dict) or spec
    kind = next((name for name in _WORKFLOW_CONTAINERS if isinstance(part.get(name), dict)), None)
    if kind is None:
        return None
    defaults = workflow.get("templateDefaults")
    if isinstance(defaults, dict):
        others = {name: item for name, item in defaults.items() if name not in _WORKFLOW_CONTAINERS}
        part = _merged({**others, kind: defaults.get(kind) or {}}, part)
    is_set = kind == "containerSet"
    containers = _of_type(part[kind], "containers", list) if is_set else [{**part[kind], "name": "main"}]
    pod: dict[str, Any] = {
        "containers": _plain_containers((*containers, *_of_type(part, "sidecars", list))),
        **{name: holder[name] for holder in (workflow, part) for name in _WORKFLOW_FIELDS if name in holder},
    }
    if init_containers := _of_type(part, "initContainers", list):
        pod["initContainers"] = _plain_containers(init_containers)
    for holder in (workflow, part):
        pod = _patched(pod, holder.get("podSpecPatch"))
    meta = _of_type(part, "metadata", dict)
    return {"metadata": {name: _without_parameters(item) for name, item in meta.items()}, "spec": pod}


def _of_type(part: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """The object or list in a field; an empty one where it is not set.

    Errors: InputError for a value of another type.
    """
    item = part.get(name)
    if item is None:
        return kind()
    if not isinstance(item, kind):
        rule = "must be a list" if kind is list else "must be an object"
        raise InputError([Fault(path=name, value=item, rule=rule)])
    return item


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


def _spark(part: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | str:
    """The pod of a Spark driver or executor: cores, and memory with the overhead for what is not the heap.

    Follows: Spark 3.5, BasicDriverFeatureStep.scala and BasicExecutorFeatureStep.scala: 10 % of the memory, 40 % for
        Python and R, at least 384 MiB.
    Departs: memory that is set for Python workers alone (`spark.executor.pyspark.memory`) is not counted.
    """
    spec = _of_type(value, "spec", dict)
    application = _of_type(spec, "template", dict) or spec
    is_jvm = str(application.get("type", "Scala")) in ("Java", "Scala")
    memory, overhead = (_mebibytes(part.get(*field)) for field in (("memory", "1g"), ("memoryOverhead", "0")))
    try:
        factor = float(application.get("memoryOverheadFactor") or (0.1 if is_jvm else 0.4))
    except (TypeError, ValueError):
        factor = -1.0
    if memory is None or overhead is None or not 0 <= factor <= _MAX_OVERHEAD_FACTOR:
        return "memory, memoryOverhead or memoryOverheadFactor is no amount, so its pods are not judged"
    if "memoryOverhead" not in part:
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
    return None if match is None else int(saturated_int(match[1]) * _MEBIBYTES[match[2].lower()])


def _launcher(part: dict[str, Any], value: Mapping[str, Any]) -> dict[str, Any] | str:
    from nodewright.documents.formats.kubevirt_launcher import launcher_template  # noqa: PLC0415 - rarely needed

    return launcher_template(part, value)


POD_FORMS: Mapping[str, Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any] | str | None]] = {
    "launcher": _launcher,
    "template": _plain,
    "revision": _revision,
    "workflow": _workflow,
    "spark": _spark,
}
"""By the `form` in the table of kinds."""


def _metadata(value: dict[str, Any]) -> dict[str, Any]:
    meta = value.get("metadata")
    return meta if isinstance(meta, dict) else {}


def _owner_name(value: dict[str, Any]) -> str:
    meta = _metadata(value)
    return str(meta.get("name") or meta.get("generateName") or value["kind"].lower())
