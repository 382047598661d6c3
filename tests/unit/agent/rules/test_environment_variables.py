"""Variables of containers, and what is made of them, by the kubelet's rules."""

from typing import Any

import pytest

from nodewright.agent.rules.environment_variables import (
    command_and_args,
    environment_variables,
    expand,
    probe_handler,
    resolved_handler,
    service_variables,
    sub_path,
)
from nodewright.agent.rules.value_sources import ReferenceSources, UnresolvedReference, env_file_value
from nodewright.documents.formats.decode import decode
from nodewright.model.kubernetes.cluster_objects import ConfigMap, Secret, Service
from nodewright.model.kubernetes.objects import Container, Pod
from nodewright.model.kubernetes.pod_spec_fields import EnvVar
from nodewright.testing.objects import amounts

AROUND = ReferenceSources(
    host_ips=("192.0.2.1", "2001:db8::1"),
    pod_ips=("10.0.0.7", "fd00::7"),
    allocatable=amounts("cpu=7500m memory=30Gi ephemeral-storage=90G"),
    config_maps={"conf": ConfigMap(data={"b": "2", "a": "$(A)"}, binary_data={"bin": b"\0"})},
    secrets={"key": Secret(data={"token": b"s3cret"}, string_data={"user": "me"})},
    env_files={
        ("vars", "a.env"): "A='1'\n",
        ("vars", "bad.env"): "A=1\n",
        ("vars", "none"): UnresolvedReference("gone"),
    },
)
POD = decode(
    {
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u-1",
            "labels": {"tier": "front", "app": 'the "shop"'},
            "annotations": {"example.com/Note": "line 1\nline 2"},
        },
        "spec": {
            "nodeName": "node-a",
            "serviceAccountName": "robot",
            "initContainers": [{"name": "init"}],
            "containers": [
                {
                    "name": "app",
                    "resources": {
                        "requests": {"cpu": "250m", "memory": "100Mi", "hugepages-2Mi": "4Mi"},
                        "limits": {"cpu": "1500m", "hugepages-2Mi": "4Mi"},
                    },
                },
                {"name": "side"},
            ],
        },
    },
    Pod,
)
APP = POD.spec.containers[0]


def env(
    *listed: dict[str, Any], around: ReferenceSources = AROUND, **fields: Any
) -> dict[str, str] | UnresolvedReference:
    """What a container with these variables has."""
    extra = decode({"env": listed, **fields}, Container)
    container = Container(name="app", resources=APP.resources, env=extra.env, env_from=extra.env_from)
    return environment_variables(POD, container, around)


def one(source: dict[str, Any]) -> str | UnresolvedReference | None:
    """The variable that is taken from this source; None: it is left out."""
    result = env({"name": "X", "valueFrom": source})
    return result if isinstance(result, UnresolvedReference) else result.get("X")


FIELDS = {
    "metadata.name": "web",
    "metadata.namespace": "shop",
    "metadata.uid": "u-1",
    "metadata.labels": 'app="the \\"shop\\""\ntier="front"',
    "metadata.annotations": 'example.com/Note="line 1\\nline 2"',
    "metadata.labels['tier']": "front",
    "metadata.labels['none']": "",
    "metadata.annotations['example.com/Note']": "line 1\nline 2",
    "spec.nodeName": "node-a",
    "spec.host": "node-a",
    "spec.serviceAccountName": "robot",
    "status.hostIP": "192.0.2.1",
    "status.hostIPs": "192.0.2.1,2001:db8::1",
    "status.podIP": "10.0.0.7",
    "status.podIPs": "10.0.0.7,fd00::7",
    "status.phase": UnresolvedReference("unsupported fieldPath: status.phase"),
    "spec.replicas": UnresolvedReference("field label not supported: spec.replicas"),
    "metadata.labels['a b']": UnresolvedReference(
        "invalid key subscript in metadata.labels['a b']: name part must consist of alphanumeric characters, "
        "'-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  "
        "or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
    ),
    "metadata.name['x']": UnresolvedReference("field label does not support subscript: metadata.name['x']"),
}


@pytest.mark.parametrize("path", FIELDS)
def test_fields_of_the_pod(path: str) -> None:
    assert one({"fieldRef": {"fieldPath": path}}) == FIELDS[path]


def test_fields_have_one_version() -> None:
    expected = UnresolvedReference("unsupported pod version: v2")
    assert one({"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}) == expected


AMOUNTS = """
    limits.cpu                     ->  2
    limits.cpu              1m     ->  1500
    requests.cpu                   ->  1
    requests.cpu            100m   ->  3
    requests.memory                ->  104857600
    requests.memory         1Mi    ->  100
    requests.memory         1M     ->  105
    requests.memory         0      ->  104857600
    limits.memory           1Gi    ->  30
    limits.ephemeral-storage 1G    ->  90
    requests.ephemeral-storage     ->  0
    requests.hugepages-2Mi  1Mi    ->  4
    limits.hugepages-1Gi           ->  0
"""


@pytest.mark.parametrize("line", AMOUNTS.strip().splitlines())
def test_amounts_are_rounded_up_in_units_of_the_divisor(line: str) -> None:
    asked, _, expected = line.partition("->")
    resource, *divisor = asked.split()
    document = {"resource": resource, **({"divisor": divisor[0]} if divisor else {})}
    assert one({"resourceFieldRef": document}) == expected.strip()


def test_a_container_named_has_the_node_for_its_limit_but_an_init_container_has_none() -> None:
    document = {"resource": "limits.cpu", "divisor": "1m"}
    assert one({"resourceFieldRef": {**document, "containerName": "side"}}) == "7500"
    assert one({"resourceFieldRef": {**document, "containerName": "init"}}) == "0"
    assert one({"resourceFieldRef": {**document, "containerName": "no"}}) == UnresolvedReference(
        "container no not found"
    )


def test_a_pods_own_limit_is_the_limit_of_those_that_have_none() -> None:
    pod = decode({"spec": {"resources": {"limits": {"memory": "1Gi"}}, "containers": [{"name": "a"}]}}, Pod)
    document = {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}
    container = Container(name="a", env=(EnvVar("M", value_from=document),))
    assert environment_variables(pod, container, AROUND) == {"M": "1024"}


def test_other_amounts_are_refused() -> None:
    expected = UnresolvedReference("unsupported container resource : limits.nvidia.com/gpu")
    assert one({"resourceFieldRef": {"resource": "limits.nvidia.com/gpu"}}) == expected
    assert isinstance(
        one({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "one"}}), UnresolvedReference
    )


SOURCES: tuple[tuple[dict[str, Any], object], ...] = (
    ({"configMapKeyRef": {"name": "conf", "key": "a"}}, "$(A)"),
    ({"configMapKeyRef": {"name": "none", "key": "a"}}, UnresolvedReference('configmap "none" not found')),
    ({"configMapKeyRef": {"name": "none", "key": "a", "optional": True}}, None),
    (
        {"configMapKeyRef": {"name": "conf", "key": "x"}},
        UnresolvedReference("couldn't find key x in ConfigMap shop/conf"),
    ),
    (
        {"configMapKeyRef": {"name": "conf", "key": "bin"}},
        UnresolvedReference("couldn't find key bin in ConfigMap shop/conf"),
    ),
    ({"configMapKeyRef": {"name": "conf", "key": "x", "optional": True}}, None),
    ({"secretKeyRef": {"name": "key", "key": "token"}}, "s3cret"),
    ({"secretKeyRef": {"name": "key", "key": "user"}}, "me"),
    ({"secretKeyRef": {"name": "none", "key": "a"}}, UnresolvedReference('secret "none" not found')),
    (
        {"secretKeyRef": {"name": "key", "key": "x"}},
        UnresolvedReference("couldn't find key x in Secret shop/key"),
    ),
    ({"fileKeyRef": {"volumeName": "vars", "path": "a.env", "key": "A"}}, "1"),
    ({"fileKeyRef": {"volumeName": "vars", "path": "a.env", "key": "B", "optional": True}}, None),
    (
        {"fileKeyRef": {"volumeName": "vars", "path": "a.env", "key": "B"}},
        UnresolvedReference('environment variable key "B" not found in file "a.env"'),
    ),
    (
        {"fileKeyRef": {"volumeName": "vars", "path": "bad.env", "key": "A"}},
        UnresolvedReference("couldn't parse env file"),
    ),
    (
        {"fileKeyRef": {"volumeName": "vars", "path": "none", "key": "A"}},
        UnresolvedReference("couldn't parse env file"),
    ),
    (
        {"fileKeyRef": {"volumeName": "v", "path": "x", "key": "A"}},
        UnresolvedReference('cannot find the volume "v" referenced by FileKeyRef'),
    ),
    ({}, ""),
)


@pytest.mark.parametrize(("source", "expected"), SOURCES)
def test_variables_from_objects(source: dict[str, Any], expected: object) -> None:
    assert one(source) == expected


def test_whole_objects_come_first_and_later_ones_win() -> None:
    result = env(
        {"name": "a", "value": "mine"},
        {"name": "c", "value": "$(P_token)"},
        envFrom=[
            {"configMapRef": {"name": "conf"}},
            {"prefix": "P_", "secretRef": {"name": "key"}},
            {"secretRef": {"name": "none", "optional": True}},
        ],
    )
    assert result == {"a": "mine", "b": "2", "P_token": "s3cret", "P_user": "me", "c": "s3cret"}


def test_a_whole_object_that_is_not_there_is_told() -> None:
    assert env(envFrom=[{"secretRef": {"name": "none"}}]) == UnresolvedReference('secret "none" not found')
    assert env(envFrom=[{}]) == {}


def test_references_see_what_comes_before_and_values_are_not_expanded_again() -> None:
    result = env(
        {"name": "EARLY", "value": "$(LATE)"},
        {"name": "LATE", "value": "x"},
        {"name": "TWICE", "value": "$(LATE)$(LATE)$$(LATE)"},
        {"name": "RAW", "valueFrom": {"configMapKeyRef": {"name": "conf", "key": "a"}}},
        {"name": "COPY", "value": "$(RAW)"},
    )
    expected = {"EARLY": "$(LATE)", "LATE": "x", "TWICE": "xx$(LATE)", "RAW": "$(A)", "COPY": "$(A)"}
    assert result == expected


def test_command_and_arguments_are_expanded_apart() -> None:
    container = Container(command=("sh", "-c", "echo $(A)"), args=("$(A)", "$(B)", "$$(A)"))
    expected = (("sh", "-c", "echo 1"), ("1", "$(B)", "$(A)"))
    assert command_and_args(container, {"A": "1"}) == expected


SUB_PATHS: tuple[tuple[dict[str, str], object], ...] = (
    ({}, ""),
    ({"subPath": "a/b"}, "a/b"),
    ({"subPathExpr": "$(A)/logs"}, "1/logs"),
    ({"subPathExpr": "$(B)/$(NO)$(EMPTY)"}, UnresolvedReference("missing value for B, EMPTY, NO")),
    ({"subPath": "/etc"}, UnresolvedReference("error SubPath `/etc` must not be an absolute path")),
    (
        {"subPath": "a/../.."},
        UnresolvedReference("unable to provision SubPath `a/../..`: must not contain '..'"),
    ),
    (
        {"subPathExpr": "$(UP)"},
        UnresolvedReference("unable to provision SubPath `..`: must not contain '..'"),
    ),
)


@pytest.mark.parametrize(("mount", "expected"), SUB_PATHS)
def test_paths_below_volumes(mount: dict[str, str], expected: object) -> None:
    assert sub_path(mount, {"A": "1", "EMPTY": "", "UP": ".."}) == expected


FILES = (
    ("A='1'", "1"),
    ("# A='0'\n\n  A='x # y' # z", "x # y"),
    ("A='1'\r\n", "1"),
    ("A='two\nlines'\nB='2'", "two\nlines"),
    ("A= '1'", ""),
    ("B='1'", ""),
    ("A='1'\nnonsense", "1"),
    ("nonsense", UnresolvedReference("invalid environment variable format at line 1: missing '='")),
    ("B=''\n='1'", UnresolvedReference("invalid environment variable format at line 2: empty variable name")),
    (
        "A ='1'",
        UnresolvedReference(
            "invalid environment variable format at line 1: whitespace before '=' is not allowed"
        ),
    ),
    (
        "A=1",
        UnresolvedReference(
            "invalid environment variable format at line 1: value must be enclosed in single quotes"
        ),
    ),
    (
        "A=",
        UnresolvedReference(
            "invalid environment variable format at line 1: value must be enclosed in single quotes"
        ),
    ),
    (
        "A='1' x",
        UnresolvedReference(
            "invalid environment variable format at line 1: unexpected content after closing quote"
        ),
    ),
    (
        "B='1\n2",
        UnresolvedReference("invalid environment variable format starting at line 1: unclosed single quote"),
    ),
)


@pytest.mark.parametrize(("text", "expected"), FILES)
def test_files_of_variables(text: str, expected: object) -> None:
    assert env_file_value(text, "A") == expected


def test_ports_of_probes_and_hooks_are_looked_up() -> None:
    container = decode(
        {"ports": [{"name": "web", "containerPort": 80}], "env": [{"name": "A", "value": "$(B)"}]}, Container
    )
    assert resolved_handler({"httpGet": {"port": "web", "path": "/"}}, container) == {
        "httpGet": {"port": 80, "path": "/"}
    }
    assert resolved_handler({"grpc": {"port": 5000}}, container) == {"grpc": {"port": 5000}}
    expected = UnresolvedReference('strconv.Atoi: parsing "no": invalid syntax')
    assert resolved_handler({"tcpSocket": {"port": "no"}}, container) == expected
    assert probe_handler({"tcpSocket": {"port": 0}}, container) == UnresolvedReference(
        "invalid port number: 0"
    )


def test_probes_know_only_what_the_manifest_says_and_hooks_nothing() -> None:
    container = Container(env=(EnvVar("A", "1"), EnvVar("B", value_from={"fieldRef": {}})))
    handler = {"exec": {"command": ["test", "$(A)$(B)$(C)"]}}
    assert probe_handler(handler, container) == {"exec": {"command": ["test", "1$(C)"]}}
    assert resolved_handler(handler, container) == handler


def doubling(count: int) -> tuple[EnvVar, ...]:
    """Variables of which each has its predecessor twice."""
    return (
        EnvVar(name="V0", value="x" * 8),
        *(EnvVar(name=f"V{number}", value=f"$(V{number - 1})" * 2) for number in range(1, count)),
    )


def test_variables_that_grow_beyond_what_a_process_can_get_are_unresolved() -> None:
    small = environment_variables(POD, Container(name="a", env=doubling(10)), ReferenceSources())
    assert not isinstance(small, UnresolvedReference)
    assert len(small["V9"]) == 8 << 9
    large = environment_variables(POD, Container(name="a", env=doubling(60)), ReferenceSources())
    assert large == UnresolvedReference("expanded references have more than 6291456 characters")


def test_arguments_that_grow_beyond_what_a_process_can_get_are_unresolved() -> None:
    env = {"A": "x" * 1000}
    assert isinstance(command_and_args(Container(args=("$(A)" * 10_000,)), env), UnresolvedReference)
    assert isinstance(command_and_args(Container(args=("$(A)",) * 10_000), env), UnresolvedReference)
    assert isinstance(sub_path({"subPathExpr": "$(A)" * 10_000}, env), UnresolvedReference)
    container = Container(env=(EnvVar(name="A", value="x" * 1000),))
    handler = {"exec": {"command": ["$(A)" * 10_000]}}
    assert isinstance(probe_handler(handler, container), UnresolvedReference)


@pytest.mark.parametrize("text", ["$(", "$(a", "$", "$$(", "$($"])
def test_references_without_an_end_are_read_in_linear_time(text: str) -> None:
    text *= 200_000
    assert expand(text, str) == text.replace("$$", "$")
    assert expand("$(A)" + text, str.lower) == "a" + text.replace("$$", "$")


def a_service(
    name: str, address: str = "10.0.0.9", namespace: str = "shop", ports: list[dict[str, Any]] | None = None
) -> Service:
    spec = {"clusterIP": address, "ports": [{"port": 80}] if ports is None else ports}
    return decode({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, Service)


API_SERVER = a_service("kubernetes", "10.0.0.1", "default", [{"name": "https", "port": 443}])


def test_a_service_has_the_variables_of_docker_links() -> None:
    ports = [
        {"name": "web-ui", "port": 8080, "protocol": "TCP"},
        {"name": "dns", "port": 53, "protocol": "UDP"},
    ]
    assert service_variables([a_service("my-db", ports=ports)], "shop", has_service_links=True) == {
        "MY_DB_SERVICE_HOST": "10.0.0.9",
        "MY_DB_SERVICE_PORT": "8080",
        "MY_DB_SERVICE_PORT_WEB_UI": "8080",
        "MY_DB_SERVICE_PORT_DNS": "53",
        "MY_DB_PORT": "tcp://10.0.0.9:8080",
        "MY_DB_PORT_8080_TCP": "tcp://10.0.0.9:8080",
        "MY_DB_PORT_8080_TCP_PROTO": "tcp",
        "MY_DB_PORT_8080_TCP_PORT": "8080",
        "MY_DB_PORT_8080_TCP_ADDR": "10.0.0.9",
        "MY_DB_PORT_53_UDP": "udp://10.0.0.9:53",
        "MY_DB_PORT_53_UDP_PROTO": "udp",
        "MY_DB_PORT_53_UDP_PORT": "53",
        "MY_DB_PORT_53_UDP_ADDR": "10.0.0.9",
    }


def test_an_address_of_ipv6_is_in_brackets_in_urls_only() -> None:
    variables = service_variables([a_service("a", "fd00::9")], "shop", has_service_links=True)
    assert variables["A_SERVICE_HOST"] == variables["A_PORT_80_TCP_ADDR"] == "fd00::9"
    assert variables["A_PORT"] == "tcp://[fd00::9]:80"


def hosts(*services: Service, has_links: bool = True) -> dict[str, str]:
    variables = service_variables(services, "shop", has_service_links=has_links)
    return {name: value for name, value in variables.items() if name.endswith("_SERVICE_HOST")}


def test_services_of_the_namespace_and_the_api_server_count() -> None:
    services = (a_service("web"), a_service("other", namespace="elsewhere"), API_SERVER)
    assert hosts(*services) == {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "WEB_SERVICE_HOST": "10.0.0.9"}
    assert hosts(*services, has_links=False) == {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize(
    "services", [(a_service("kubernetes"), API_SERVER), (API_SERVER, a_service("kubernetes"))]
)
def test_a_service_of_the_api_servers_name_does_not_hide_it(services: tuple[Service, ...]) -> None:
    assert hosts(*services) == {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


@pytest.mark.parametrize("address", ["", "None"])
def test_services_without_an_address_have_no_variables(address: str) -> None:
    assert hosts(a_service("headless", address)) == {}


def test_a_containers_own_variables_replace_and_use_those_of_services() -> None:
    env = [
        {"name": "URL", "value": "http://$(WEB_SERVICE_HOST)/"},
        {"name": "WEB_SERVICE_PORT", "value": "1"},
    ]
    container = decode({"name": "main", "env": env}, Container)
    sources = ReferenceSources(services={"WEB_SERVICE_HOST": "10.0.0.9", "WEB_SERVICE_PORT": "80"})
    assert environment_variables(Pod(), container, sources) == {
        "URL": "http://10.0.0.9/",
        "WEB_SERVICE_PORT": "1",
        "WEB_SERVICE_HOST": "10.0.0.9",
    }


def test_without_the_services_no_container_starts() -> None:
    unread = UnresolvedReference("services have not yet been read at least once, cannot construct envvars")
    assert environment_variables(Pod(), Container(name="main"), ReferenceSources(services=unread)) == unread
