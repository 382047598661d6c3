"""The environment variables of a container, and its commands, subPaths, probes and hooks with references resolved.

A text refers to a variable as `$(NAME)`; `$$(NAME)` is the escaped form, which yields `$(NAME)`.
Probes and hooks have ports as numbers; commands of probes are expanded with the manifest's values.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from nodewright.agent.rules.value_sources import (
    ReferenceSources,
    UnresolvedReference,
    config_map,
    env_file_value,
    is_omitted,
    secret,
)
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret, Service, ServicePort
from nodewright.model.kubernetes.name_validation import is_label_key
from nodewright.model.kubernetes.objects import Container, Pod, ResourceList
from nodewright.model.kubernetes.pod_spec_fields import (
    SUBSCRIPTED_FIELDS,
    EnvVar,
    field_label_error,
    split_subscript,
)
from nodewright.model.values.golang import NumberError, parse_int, quoted
from nodewright.model.values.quantity import ZERO, Quantity, QuantityError

_OPERATOR = re.compile(r"\$(?:(\$)|\(([^)]*)\)|.)", re.DOTALL)
_UNCLOSED_OPERATOR = re.compile(r"\$(\$|.|$)", re.DOTALL)
MAX_EXPANDED_LENGTH = 6 << 20
"""What Linux passes to a process at most, arguments and environment together: values that repeat others grow fast."""
_TOO_LONG = UnresolvedReference(f"expanded references have more than {MAX_EXPANDED_LENGTH} characters")


class _TooLongError(Exception):
    pass


def expand(text: str, value_of: Callable[[str], str]) -> str | UnresolvedReference:
    """The text with every reference replaced by the result of ``value_of`` for its name; values are not expanded again.

    `$$` stands for `$`; any other text after a `$` stays unchanged, including a reference that is not closed.

    Follows: v1.36, third_party/forked/golang/expansion/expand.go, Expand.
    Departs: a character beyond ASCII right after a `$` stays whole, where Kubernetes mistakes its first byte for
        a character; more text than a process can get is an unresolved reference, where a kubelet runs out of memory.

    >>> expand("$(A)-$$(A)-$(", str.lower)
    'a-$(A)-$('
    """
    length = 0

    def replaced(match: re.Match[str]) -> str:
        nonlocal length
        if match[1]:
            return "$"
        if match[2] is None:
            return match[0]
        value = value_of(match[2])
        length += len(value)
        if length > MAX_EXPANDED_LENGTH:
            raise _TooLongError
        return value

    # After the last parenthesis no reference is closed; to search for its end each time takes very long.
    end = text.rfind(")") + 1
    try:
        expanded = _OPERATOR.sub(replaced, text[:end])
    except _TooLongError:
        return _TOO_LONG
    return expanded + _UNCLOSED_OPERATOR.sub(
        lambda match: match[0][: 1 if match[1] == "$" else None], text[end:]
    )


def expand_references(text: str, *values: Mapping[str, str]) -> str | UnresolvedReference:
    """The text with references replaced by the first of ``values`` that has them; unknown references stay.

    Follows: v1.36, third_party/forked/golang/expansion/expand.go, MappingFuncFor.

    >>> expand_references("$(A) $(B) $(C)", {"A": "1"}, {"A": "2", "B": "3"})
    '1 3 $(C)'
    """

    def value_of(name: str) -> str:
        return next((known[name] for known in values if name in known), f"$({name})")

    return expand(text, value_of)


def _expand_all(texts: Iterable[str], values: Mapping[str, str]) -> tuple[str, ...] | UnresolvedReference:
    expanded: list[str] = []
    length = 0
    for text in texts:
        result = expand_references(text, values)
        if isinstance(result, UnresolvedReference):
            return result
        expanded.append(result)
        length += len(result)
        if length > MAX_EXPANDED_LENGTH:
            return _TOO_LONG
    return tuple(expanded)


_CONFIG_MAP, _SECRET = "ConfigMap", "Secret"


def environment_variables(
    pod: Pod, container: Container, sources: ReferenceSources
) -> dict[str, str] | UnresolvedReference:
    """The environment of a container, in the order of first occurrence; or the first unresolved reference.

    The variables of `envFrom` precede those of `env`; a later variable replaces an earlier one of the same name, and
    references resolve to earlier variables and to those of Services, which come last.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, makeEnvironmentVariables.
    Departs: keys of ConfigMaps and Secrets are sorted, and so are the variables of Services.
    """
    variables: dict[str, str] = {}
    length = 0
    if isinstance(sources.services, UnresolvedReference):
        return sources.services
    for source in container.env_from:
        entries = _all_entries(source, sources)
        if isinstance(entries, UnresolvedReference):
            return entries
        variables |= {f"{source.get('prefix') or ''}{key}": entries[key] for key in sorted(entries)}
    for variable in container.env:
        value = _value(variable, variables, pod, container, sources)
        if isinstance(value, UnresolvedReference):
            return value
        if value is not None:
            variables[variable.name] = value
            length += len(value)
        if length > MAX_EXPANDED_LENGTH:
            return _TOO_LONG
    return {
        **variables,
        **{name: sources.services[name] for name in sources.services if name not in variables},
    }


def _all_entries(
    source: Mapping[str, Any], sources: ReferenceSources
) -> Mapping[str, str] | UnresolvedReference:
    """All entries of a ConfigMap or a Secret; none if it is missing and optional."""
    for key, kind in (("configMapRef", _CONFIG_MAP), ("secretRef", _SECRET)):
        reference = source.get(key)
        if reference is not None:
            source_object = _object(kind, reference, sources)
            if not isinstance(source_object, UnresolvedReference):
                return _texts(source_object)
            return {} if is_omitted(reference, source_object) else source_object
    return {}


def _value(
    variable: EnvVar, so_far: Mapping[str, str], pod: Pod, container: Container, sources: ReferenceSources
) -> str | UnresolvedReference | None:
    """The value of a variable; None: it is omitted, because its reference is missing and optional."""
    reference = variable.value_from or {}
    if variable.value:
        assert not isinstance(sources.services, UnresolvedReference)
        return expand_references(variable.value, so_far, sources.services)
    if reference.get("fieldRef") is not None:
        return env_field(reference["fieldRef"], pod, sources)
    if reference.get("resourceFieldRef") is not None:
        return env_resource(reference["resourceFieldRef"], pod, container, sources)
    if reference.get("configMapKeyRef") is not None:
        return _entry(_CONFIG_MAP, reference["configMapKeyRef"], pod, sources)
    if reference.get("secretKeyRef") is not None:
        return _entry(_SECRET, reference["secretKeyRef"], pod, sources)
    if reference.get("fileKeyRef") is not None:
        return _in_file(reference["fileKeyRef"], sources)
    return ""


def _entry(
    kind: str, reference: Mapping[str, Any], pod: Pod, sources: ReferenceSources
) -> str | UnresolvedReference | None:
    """One entry of a ConfigMap or a Secret; None: it is missing and optional."""
    source_object = _object(kind, reference, sources)
    if isinstance(source_object, UnresolvedReference):
        return None if is_omitted(reference, source_object) else source_object
    key = reference.get("key") or ""
    texts = _texts(source_object)
    if key in texts:
        return texts[key]
    object_text = f"{kind} {pod.metadata.namespace}/{reference.get('name') or ''}"
    return (
        None
        if reference.get("optional")
        else UnresolvedReference(f"couldn't find key {key} in {object_text}")
    )


def _in_file(reference: Mapping[str, Any], sources: ReferenceSources) -> str | UnresolvedReference | None:
    """One variable of an env file in a volume; None: it is missing and optional."""
    volume, path, key = (reference.get(name) or "" for name in ("volumeName", "path", "key"))
    text = sources.env_files.get((volume, path))
    if text is None:
        return UnresolvedReference(f"cannot find the volume {quoted(volume)} referenced by FileKeyRef")
    value = text if isinstance(text, UnresolvedReference) else env_file_value(text, key)
    if isinstance(value, UnresolvedReference):
        return UnresolvedReference("couldn't parse env file")
    if not value:
        missing = f"environment variable key {quoted(key)} not found in file {quoted(path)}"
        return None if reference.get("optional") else UnresolvedReference(missing)
    return value


def _object(
    kind: str, reference: Mapping[str, Any], sources: ReferenceSources
) -> ConfigMap | Secret | UnresolvedReference:
    name = reference.get("name") or ""
    return config_map(sources, name) if kind == _CONFIG_MAP else secret(sources, name)


def _texts(source_object: ConfigMap | Secret) -> Mapping[str, str]:
    if isinstance(source_object, ConfigMap):
        return source_object.data
    return {key: value.decode(errors="surrogateescape") for key, value in source_object.content.items()}


def command_and_args(
    container: Container, env: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]] | UnresolvedReference:
    """The command and the arguments with references expanded.

    Follows: v1.36, pkg/kubelet/container/helpers.go, ExpandContainerCommandAndArgs.

    >>> command_and_args(Container(command=("echo",), args=("$(A)$(B)",)), {"A": "1"})
    (('echo',), ('1$(B)',))
    """
    count = len(container.command)
    expanded = _expand_all((*container.command, *container.args), env)
    return expanded if isinstance(expanded, UnresolvedReference) else (expanded[:count], expanded[count:])


def probe_command(command: tuple[str, ...], container: Container) -> tuple[str, ...] | UnresolvedReference:
    """The command of a probe, expanded with the literal values of variables in the manifest.

    Follows: v1.36, pkg/kubelet/container/helpers.go, ExpandContainerCommandOnlyStatic.
    """
    return _expand_all(command, {variable.name: variable.value for variable in container.env})


def sub_path(mount: Mapping[str, Any], env: Mapping[str, str]) -> str | UnresolvedReference:
    """The expanded subPath of a mount; every variable in it must have a value.

    Follows: v1.36, pkg/kubelet/container/helpers.go, ExpandContainerVolumeMounts;
        pkg/kubelet/kubelet_pods.go, makeMounts.

    >>> sub_path({"subPathExpr": "$(A)/$(B)"}, {"A": "1"})
    UnresolvedReference(message='missing value for B', may_exist=False)
    """
    path: str = mount.get("subPath") or ""
    if mount.get("subPathExpr"):
        missing: set[str] = set()

        def value_of(name: str) -> str:
            if not env.get(name):
                missing.add(name)
            return env.get(name, "")

        expanded = expand(mount["subPathExpr"], value_of)
        if isinstance(expanded, UnresolvedReference):
            return expanded
        path = expanded
        if missing:
            return UnresolvedReference(f"missing value for {', '.join(sorted(missing))}")
    if path.startswith("/"):
        return UnresolvedReference(f"error SubPath `{path}` must not be an absolute path")
    if ".." in path.split("/"):
        return UnresolvedReference(f"unable to provision SubPath `{path}`: must not contain '..'")
    return path


_HIGHEST_PORT = 65535


def resolved_handler(
    handler: Mapping[str, Any], container: Container
) -> dict[str, Any] | UnresolvedReference:
    """The handler of a probe or hook with its port as a number.

    Follows: v1.36, pkg/probe/util.go, ResolveContainerPort.

    >>> resolved_handler({"tcpSocket": {"port": "8080"}}, Container())
    {'tcpSocket': {'port': 8080}}
    """
    resolved = dict(handler)
    for name in ("httpGet", "tcpSocket", "grpc"):
        if resolved.get(name) is not None:
            port = _port(resolved[name].get("port"), container)
            if isinstance(port, UnresolvedReference):
                return port
            resolved[name] = {**resolved[name], "port": port}
    return resolved


def probe_handler(handler: Mapping[str, Any], container: Container) -> dict[str, Any] | UnresolvedReference:
    """The handler of a probe with its port as a number and its command expanded (`probe_command`).

    Follows: v1.36, pkg/kubelet/prober/prober.go, runProbe.
    """
    resolved = resolved_handler(handler, container)
    if isinstance(resolved, UnresolvedReference) or resolved.get("exec") is None:
        return resolved
    command = probe_command(tuple(resolved["exec"].get("command") or ()), container)
    if isinstance(command, UnresolvedReference):
        return command
    return {**resolved, "exec": {"command": list(command)}}


def _port(reference: object, container: Container) -> int | UnresolvedReference:
    port = reference if isinstance(reference, int) else None
    if port is None:
        named = (port.container_port for port in container.ports if port.name == reference)
        port = next(named, None)
    if port is None:
        try:
            port = parse_int(str(reference or ""))
        except NumberError as error:
            return UnresolvedReference(str(error))
    return port if 0 < port <= _HIGHEST_PORT else UnresolvedReference(f"invalid port number: {port}")


# ---------------------------------------------------------------- the downward API


_DEFAULTED = ("cpu", "memory", "ephemeral-storage")


def env_field(reference: Mapping[str, Any], pod: Pod, sources: ReferenceSources) -> str | UnresolvedReference:
    """The value of a variable with a fieldRef.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, podFieldSelectorRuntimeValue;
        pkg/apis/core/pods/helpers.go, ConvertDownwardAPIFieldLabel.
    """
    version, path = reference.get("apiVersion") or "v1", reference.get("fieldPath") or ""
    error = field_label_error(version, path)
    if error:
        return UnresolvedReference(error)
    if path == "spec.host":
        path = "spec.nodeName"
    values = {
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": sources.host_ips[0] if sources.host_ips else "",
        "status.hostIPs": ",".join(sources.host_ips),
        "status.podIP": sources.pod_ips[0] if sources.pod_ips else "",
        "status.podIPs": ",".join(sources.pod_ips),
    }
    return values[path] if path in values else volume_field(path, pod)


def volume_field(path: str, pod: Pod) -> str | UnresolvedReference:
    """The content of a volume's file with a fieldRef, which may name metadata only.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, ExtractFieldPathAsString.
    """
    metadata = pod.metadata
    base, subscript = split_subscript(path)
    if subscript is not None:
        if base not in SUBSCRIPTED_FIELDS:
            return UnresolvedReference(f'fieldPath "{path}" does not support subscript')
        is_annotation = base == "metadata.annotations"
        if not is_label_key(subscript.lower() if is_annotation else subscript):
            return UnresolvedReference(f"invalid key subscript in {path}: {_NAME_RULE}")
        return (metadata.annotations if is_annotation else metadata.labels).get(subscript, "")
    texts = {
        "metadata.annotations": lambda: format_map(metadata.annotations),
        "metadata.labels": lambda: format_map(metadata.labels),
        "metadata.name": lambda: metadata.name,
        "metadata.namespace": lambda: metadata.namespace,
        "metadata.uid": lambda: metadata.uid,
    }
    return texts[path]() if path in texts else UnresolvedReference(f"unsupported fieldPath: {path}")


_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def format_map(entries: Mapping[str, str]) -> str:
    r"""Labels or annotations in a file or variable: sorted by key, one per line.

    Follows: v1.36, pkg/fieldpath/fieldpath.go, FormatMap.

    >>> print(format_map({"b": "2", "a": 'say "hi"'}))
    a="say \"hi\""
    b="2"
    """
    return "\n".join(f"{key}={quoted(entries[key])}" for key in sorted(entries))


def env_resource(
    reference: Mapping[str, Any], pod: Pod, container: Container, sources: ReferenceSources
) -> str | UnresolvedReference:
    """The value of a variable with a resourceFieldRef: of its own container or of a named one.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, containerResourceRuntimeValue;
        pkg/kubelet/kubelet_resources.go, defaultPodLimitsForDownwardAPI: with a containerName, a missing
        limit defaults to the node's allocatable for app containers only.
    """
    name = reference.get("containerName") or ""
    default_limits = _default_limits(pod, sources)
    if not name:
        return _amount(reference, _with_default_limits(container, default_limits))
    for other in pod.spec.containers:
        if other.name == name:
            return _amount(reference, _with_default_limits(other, default_limits))
    return _named_amount(reference, name, pod, {})


def volume_resource(
    reference: Mapping[str, Any], pod: Pod, sources: ReferenceSources
) -> str | UnresolvedReference:
    """The content of a volume's file with a resourceFieldRef, which names a container.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, ExtractResourceValueByContainerNameAndNodeAllocatable.
    """
    return _named_amount(reference, reference.get("containerName") or "", pod, sources.allocatable)


def _named_amount(
    reference: Mapping[str, Any], name: str, pod: Pod, default_limits: ResourceList
) -> str | UnresolvedReference:
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name == name:
            return _amount(reference, _with_default_limits(container, default_limits))
    return UnresolvedReference(f"container {name} not found")


def _default_limits(pod: Pod, sources: ReferenceSources) -> ResourceList:
    """The default limits of a container: the node's allocatable; for CPU and memory the pod-level limit if set."""
    pod_level_limits = pod.spec.resources.limits if pod.spec.resources is not None else {}
    default_limits = dict(sources.allocatable)
    for name in ("cpu", "memory"):
        if name in default_limits and not pod_level_limits.get(name, ZERO).is_zero():
            default_limits[name] = pod_level_limits[name]
    return default_limits


def _with_default_limits(container: Container, default_limits: ResourceList) -> Container:
    """The container with default limits for resources without one.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, MergeContainerResourceLimits.
    """
    limits = container.resources.limits
    added = {
        name: default_limits[name]
        for name in _DEFAULTED
        if name in default_limits and limits.get(name, ZERO).is_zero()
    }
    return replace(container, resources=replace(container.resources, limits={**limits, **added}))


def _amount(reference: Mapping[str, Any], container: Container) -> str | UnresolvedReference:
    """The container's amount in units of the divisor, rounded up.

    Follows: v1.36, pkg/api/v1/resource/helpers.go, ExtractContainerResourceValue, in float64 as in Go.
    """
    resource = reference.get("resource") or ""
    kind, _, name = resource.partition(".")
    amounts = {"limits": container.resources.limits, "requests": container.resources.requests}
    if kind not in amounts or not (name in _DEFAULTED or name.startswith("hugepages-")):
        return UnresolvedReference(f"unsupported container resource : {resource}")
    try:
        divisor = Quantity.parse(str(reference.get("divisor") or "1"))
    except QuantityError as error:
        return UnresolvedReference(str(error))
    if divisor.is_zero():
        divisor = Quantity.of(1)
    amount = amounts[kind].get(name, ZERO)
    is_cpu = name == "cpu"
    counted = divisor.milli_value() if is_cpu else divisor.value()
    if counted == 0:
        # Beyond 64 bits nothing may be left of it. The API server refuses such divisors.
        return UnresolvedReference(f"unsupported divisor: {divisor}")
    return str(math.ceil(float(amount.milli_value() if is_cpu else amount.value()) / float(counted)))


# ---------------------------------------------------------------- Services


_DEFAULT_NAMESPACE, _API_SERVER = "default", "kubernetes"


def service_variables(
    services: Iterable[Service], namespace: str, *, has_service_links: bool
) -> dict[str, str]:
    """The variables of the Services in a pod's namespace, sorted; that of the API server is there without links too.

    Follows: v1.36, pkg/kubelet/kubelet_pods.go, getServiceEnvVarMap; kubelet/envvars/envvars.go, FromServices.
    Departs: where the namespace has a Service `kubernetes` of its own, the API server's counts; a kubelet takes
        one of the two at random.
    """
    by_name: dict[str, Service] = {}
    for service in services:
        name, own_namespace = service.metadata.name, service.metadata.namespace
        if service.spec.cluster_ip in ("", "None") or not service.spec.ports:
            continue
        if (own_namespace, name) == (_DEFAULT_NAMESPACE, _API_SERVER):
            by_name[name] = service
        elif has_service_links and own_namespace == namespace:
            by_name.setdefault(name, service)
    variables: dict[str, str] = {}
    for name in sorted(by_name):
        variables |= _of_service(name, by_name[name])
    return variables


def _of_service(name: str, service: Service) -> Iterator[tuple[str, str]]:
    prefix, address, ports = _variable_name(name), service.spec.cluster_ip, service.spec.ports
    yield f"{prefix}_SERVICE_HOST", address
    yield f"{prefix}_SERVICE_PORT", str(ports[0].port)
    for port in ports:
        if port.name:
            yield f"{prefix}_SERVICE_PORT_{_variable_name(port.name)}", str(port.port)
    yield f"{prefix}_PORT", _url(address, ports[0])
    for port in ports:
        protocol = port.protocol or "TCP"
        link = f"{prefix}_PORT_{port.port}_{protocol.upper()}"
        yield link, _url(address, port)
        yield f"{link}_PROTO", protocol.lower()
        yield f"{link}_PORT", str(port.port)
        yield f"{link}_ADDR", address


def _url(address: str, port: ServicePort) -> str:
    host = f"[{address}]" if ":" in address else address
    return f"{(port.protocol or 'TCP').lower()}://{host}:{port.port}"


def _variable_name(name: str) -> str:
    return name.replace("-", "_").upper()
