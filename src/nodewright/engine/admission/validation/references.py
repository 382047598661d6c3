"""Validation of references: variables, the fields, resources and keys that they name, and paths below a volume.

Also label selectors of workloads: what is wrong with them, what they select, and how the API server prints them.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from nodewright.engine.admission.validation.placement import label_selector_violations
from nodewright.engine.admission.validation.violation import (
    Violation,
    absent_fields,
    duplicate,
    each_invalid,
    forbidden,
    invalid,
    name_violations,
    not_supported,
    optional_name_violations,
    prefix_errors,
    required,
    too_long,
)
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret
from nodewright.model.kubernetes.name_validation import (
    config_key_errors,
    dns1123_label_errors,
    dns1123_subdomain_errors,
    env_name_errors,
    label_key_errors,
)
from nodewright.model.kubernetes.objects import Pod
from nodewright.model.kubernetes.pod_spec_fields import (
    SUBSCRIPTED_FIELDS,
    EnvVar,
    field_label_error,
    split_subscript,
)
from nodewright.model.values.quantity import Quantity, QuantityError

Fields = Mapping[str, Any]
"""A mapping of a manifest that passed the schema check."""

VOLUME_FIELDS = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_PAGE_PREFIXES = ("limits.hugepages-", "requests.hugepages-")
_BYTE_DIVISORS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")

_EMPTY = {
    "Deployment": "deployment", "ReplicaSet": "deployment", "StatefulSet": "statefulset", "DaemonSet": "daemonset",
}  # fmt: skip
_NO_TEMPLATE_CHECK = {
    "Deployment": "invalid label selector",
    "ReplicaSet": "invalid label selector",
    "StatefulSet": "",
}

_REQUIRES_SELECTOR = tuple(_NO_TEMPLATE_CHECK)

WITH_SELECTORS = (*_EMPTY, "ReplicationController")
"""The kinds whose selector has to select the pods of the template."""


# ---------------------------------------------------------------- the downward API


def field_reference_violations(reference: Fields, fields: tuple[str, ...], path: str) -> Iterator[Violation]:
    """The violations in a fieldRef, which may name these fields.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateObjectFieldSelector.
    """
    label = reference.get("fieldPath") or ""
    if not label:
        yield required(f"{path}.fieldPath")
        return
    error = field_label_error(reference.get("apiVersion") or "v1", label)
    if error:
        yield invalid(f"{path}.fieldPath", label, f"error converting fieldPath: {error}")
        return
    base, subscript = split_subscript("spec.nodeName" if label == "spec.host" else label)
    if subscript is not None:
        assert base in SUBSCRIPTED_FIELDS
        key = subscript.lower() if base == "metadata.annotations" else subscript
        yield from each_invalid(path, key, label_key_errors(key))
    elif base not in fields:
        yield not_supported(f"{path}.fieldPath", base, fields)


def resource_reference_violations(reference: Fields, path: str, *, in_volume: bool) -> Iterator[Violation]:
    """The violations in a resourceFieldRef, which names its container in a volume.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateContainerResourceFieldSelector.
    """
    resource = reference.get("resource") or ""
    if in_volume and not reference.get("containerName"):
        yield required(f"{path}.containerName")
    elif not resource:
        yield required(f"{path}.resource")
    elif resource not in _RESOURCES and not resource.startswith(_PAGE_PREFIXES):
        yield not_supported(f"{path}.resource", resource, _RESOURCES)
    yield from _divisor_violations(resource, reference.get("divisor"), f"{path}.divisor")


def _divisor_violations(resource: str, divisor: object, path: str) -> Iterator[Violation]:
    try:
        amount = Quantity.parse(str(divisor or "0").strip())
    except QuantityError as error:
        yield invalid(path, str(divisor), str(error))
        return
    name = resource.partition(".")[2]
    if amount.is_zero():
        return
    if name == "cpu":
        if str(amount) not in ("1", "1m"):
            yield invalid(
                path, resource, "only divisor's values 1m and 1 are supported with the cpu resource"
            )
    elif resource in _RESOURCES or resource.startswith(_PAGE_PREFIXES):
        kind = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(name, "hugepages")
        if str(amount) not in _BYTE_DIVISORS:
            values = ", ".join(_BYTE_DIVISORS)
            yield invalid(
                path, resource, f"only divisor's values {values} are supported with the {kind} resource"
            )


# ---------------------------------------------------------------- variables


def env_violations(variables: tuple[EnvVar, ...], path: str) -> Iterator[Violation]:
    """The violations in environment variables.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateEnv.
    """
    for index, variable in enumerate(variables):
        yield from name_violations(f"{path}[{index}].name", variable.name, env_name_errors)
        if variable.value_from is not None:
            yield from _value_source_violations(variable, variable.value_from, f"{path}[{index}].valueFrom")


def env_from_violations(sources: tuple[dict[str, Any], ...], path: str) -> Iterator[Violation]:
    """The violations in the sources of all variables at once.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateEnvFrom.
    """
    for index, source in enumerate(sources):
        prefix = source.get("prefix") or None
        yield from optional_name_violations(f"{path}[{index}].prefix", prefix, env_name_errors)
        kinds = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in kinds:
            name, name_path = source[kind].get("name") or "", f"{path}[{index}].{kind}.name"
            # Upstream checks these names as prefixes, which may end in a dash.
            yield from name_violations(name_path, name, prefix_errors)
        if not kinds:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _value_source_violations(variable: EnvVar, source: Fields, path: str) -> Iterator[Violation]:
    kinds = [kind for kind in _VALUE_SOURCES if source.get(kind) is not None]
    for kind in kinds:
        yield from _VALUE_SOURCES[kind](source[kind], f"{path}.{kind}")
    if not kinds:
        names = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        yield invalid(path, "", f"must specify one of: {names}")
    elif variable.value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif len(kinds) > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def _object_key_violations(reference: Fields, path: str) -> Iterator[Violation]:
    """The violations in a reference to a key of a ConfigMap or Secret.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateConfigMapKeySelector, validateSecretKeySelector.
    """
    name, key = reference.get("name") or "", reference.get("key") or ""
    yield from each_invalid(f"{path}.name", name, dns1123_subdomain_errors(name))
    yield from name_violations(f"{path}.key", key, config_key_errors)


def _file_key_violations(reference: Fields, path: str) -> Iterator[Violation]:
    """The violations in a reference to a variable in a file.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateFileKeySelector.
    """
    for field, rules in (("key", env_name_errors), ("volumeName", dns1123_label_errors)):
        yield from name_violations(f"{path}.{field}", reference.get(field) or "", rules)
    yield from absent_fields(reference, path, "path")
    yield from path_backstep_violations(reference.get("path") or "", f"{path}.path")


_VALUE_SOURCES: Mapping[str, Callable[[Fields, str], Iterator[Violation]]] = {
    "fieldRef": lambda reference, path: field_reference_violations(reference, ENV_FIELDS, path),
    "resourceFieldRef": partial(resource_reference_violations, in_volume=False),
    "configMapKeyRef": _object_key_violations,
    "secretKeyRef": _object_key_violations,
    "fileKeyRef": _file_key_violations,
}


# ---------------------------------------------------------------- claims of devices


def resource_claim_violations(pod: Pod, path: str, *, is_template: bool) -> Iterator[Violation]:
    """The violations in the claims that a pod names for its containers.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePodResourceClaims.
    """
    names: set[str] = set()
    for index, reference in enumerate(pod.spec.resource_claims):
        if "kubernetes.io/config.mirror" in pod.metadata.annotations and not is_template:
            yield forbidden("[]", "static pods do not support resource claims")
            continue
        name, claim_path = reference.get("name") or "", f"{path}[{index}]"
        if not name:
            yield required(f"{claim_path}.name")
        elif name in names:
            yield duplicate(f"{claim_path}.name", name)
        else:
            yield from each_invalid(f"{claim_path}.name", name, dns1123_label_errors(name))
            names.add(name)
        yield from _claim_source_violations(reference, claim_path)


def _claim_source_violations(reference: Fields, path: str) -> Iterator[Violation]:
    sources = {field: reference.get(field) for field in ("resourceClaimName", "resourceClaimTemplateName")}
    count = sum(name is not None for name in sources.values())
    if count != 1:
        claim, template = sources.values()
        shown = {
            "Name": reference.get("name") or "",
            "ResourceClaimName": claim,
            "ResourceClaimTemplateName": template,
        }
        rule = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            if count
            else "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        )
        yield invalid(path, shown, rule)
    for field, name in sources.items():
        yield from optional_name_violations(f"{path}.{field}", name)


# ---------------------------------------------------------------- paths below a directory


def path_backstep_violations(text: str, path: str) -> Iterator[Violation]:
    """The violation of a path that contains `..`.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validatePathNoBacksteps.
    """
    if ".." in text.split("/"):
        yield invalid(path, text, "must not contain '..'")


def relative_path_violations(text: str, path: str) -> Iterator[Violation]:
    """The violations of a path that must stay below its directory.

    Follows: v1.36, pkg/apis/core/validation/validation.go, validateLocalDescendingPath.
    """
    if text.startswith("/"):
        yield invalid(path, text, "must be a relative path")
    yield from path_backstep_violations(text, path)


def volume_file_path_violations(text: str, path: str) -> Iterator[Violation]:
    """The violations of a file's path in a volume whose `..data` is reserved.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateLocalNonReservedPath.
    """
    yield from relative_path_violations(text, path)
    if text.startswith("..") and not text.startswith("../"):
        yield invalid(path, text, "must not start with '..'")


# ---------------------------------------------------------------- ConfigMaps and Secrets


def config_object_violations(config_object: ConfigMap | Secret) -> Iterator[Violation]:
    """The violations in the data of a ConfigMap or Secret, whose keys become names of files.

    Follows: v1.36, pkg/apis/core/validation/validation.go, ValidateConfigMap, ValidateSecret.
    Departs: what the types of Secrets require is not checked.
    """
    size = 0
    if isinstance(config_object, Secret):
        fields: dict[str, Mapping[str, str | bytes]] = {"data": config_object.content}
    else:
        fields = {"data": config_object.data, "binaryData": config_object.binary_data}
    for field, entries in fields.items():
        for key in sorted(entries):
            yield from each_invalid(f"{field}[{key}]", key, config_key_errors(key))
            if field == "data" and key in fields.get("binaryData", ()):
                yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
            content = entries[key]
            size += len(content.encode() if isinstance(content, str) else content)
    if size > _MAX_CONFIG_BYTES:
        path = "data" if isinstance(config_object, Secret) else ""
        yield too_long(path, _MAX_CONFIG_BYTES)


_MAX_CONFIG_BYTES = 1 << 20


# ---------------------------------------------------------------- label selectors of workloads


def selector_violations(kind: str, spec: Fields, path: str) -> Iterator[Violation]:
    """The violations in the selector of a workload, and in the labels of its template.

    An absent selector selects nothing, so that the template does not match it either.
    Follows: v1.36, pkg/apis/apps/validation/validation.go, ValidateDeploymentSpec, ValidateReplicaSetSpec,
        ValidateStatefulSetSpec, ValidateDaemonSetSpec; pkg/apis/core/validation/validation.go,
        ValidateReplicationControllerSpec, whose selector is a map of labels and by default those of the template.
    """
    selector: Fields | None = spec.get("selector")
    labels = template_labels(spec)
    if kind == "ReplicationController":
        if not (selector or labels):
            yield required(f"{path}.selector")
        elif selector and not selects({"matchLabels": selector}, labels):
            yield mismatch(spec, path)
        return
    if selector is None:
        if kind in _REQUIRES_SELECTOR:
            yield required(f"{path}.selector")
        yield mismatch(spec, path)
        return
    violations = [*label_selector_violations(selector, f"{path}.selector")]
    yield from violations
    if violations and kind in _NO_TEMPLATE_CHECK:
        yield invalid(f"{path}.selector", shown_selector(selector), _NO_TEMPLATE_CHECK[kind])
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid(f"{path}.selector", {}, f"empty selector is invalid for {_EMPTY[kind]}")
    elif not violations and not selects(selector, labels):
        yield mismatch(spec, path)


def is_template_judged(kind: str, spec: Fields) -> bool:
    """Whether the API server gets as far as the template: it does not where a selector cannot be parsed."""
    if kind == "ReplicationController":
        return spec.get("template") is not None
    if kind not in _NO_TEMPLATE_CHECK:
        return True
    return not any(label_selector_violations(spec.get("selector"), ""))


def template_labels(spec: Fields) -> Mapping[str, str]:
    """The labels of the template."""
    return _written_labels(spec) or {}


def mismatch(spec: Fields, path: str) -> Violation:
    """The selector does not select the template's own pods."""
    labels = _written_labels(spec)
    shown = () if labels is None else dict(sorted(labels.items()))
    return invalid(f"{path}.template.metadata.labels", shown, "`selector` does not match template `labels`")


def selects(selector: Fields, labels: Mapping[str, str]) -> bool:
    """Whether a valid label selector matches the labels."""
    if any(labels.get(key) != value for key, value in (selector.get("matchLabels") or {}).items()):
        return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or ()
        matches = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not matches[expression["operator"]]:
            return False
    return True


def shown_selector(selector: Fields) -> dict[str, Any]:
    """The selector as the API server prints it: the fields in its order, those without content left out."""
    shown: dict[str, Any] = {}
    if labels := selector.get("matchLabels"):
        shown["matchLabels"] = dict(sorted(labels.items()))
    if expressions := selector.get("matchExpressions"):
        shown["matchExpressions"] = [
            {
                "key": expression.get("key") or "",
                "operator": expression.get("operator") or "",
                **({"values": list(values)} if (values := expression.get("values")) else {}),
            }
            for expression in expressions
        ]
    return shown


def _written_labels(spec: Fields) -> Mapping[str, str] | None:
    labels: Mapping[str, str] | None = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    return labels
