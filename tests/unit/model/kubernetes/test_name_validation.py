import os
from collections.abc import Callable

import pytest

from nodewright.model.kubernetes.name_validation import (
    dns1123_label_errors,
    dns1123_subdomain_errors,
    is_label_key,
    is_label_value,
    label_key_errors,
    label_value_errors,
    port_name_errors,
    sysctl_namespace,
)

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
LONG = "must be no more than 63 bytes"

RULES: list[tuple[Callable[[str], list[str]], str, list[str]]] = [
    (port_name_errors, "http-1", []),
    (port_name_errors, "8080", ["must contain at least one letter (a-z)"]),
    (port_name_errors, "a--b", ["must not contain consecutive hyphens"]),
    (port_name_errors, "a-", ["must not begin or end with a hyphen"]),
    (dns1123_label_errors, "web-1", []),
    (dns1123_label_errors, "a" * 63, []),
    (dns1123_label_errors, "a" * 64, ["must be no more than 63 characters"]),
    (dns1123_label_errors, "a.b", ["must not contain dots"]),
    (dns1123_label_errors, "A", [LABEL]),
    (dns1123_label_errors, "-a", [LABEL]),
    (dns1123_label_errors, "a\n", [LABEL]),
    (dns1123_label_errors, "", [LABEL]),
    (dns1123_subdomain_errors, "a.b-c.1", []),
    (dns1123_subdomain_errors, "a" * 254, ["must be no more than 253 characters"]),
    (dns1123_subdomain_errors, "a..b", [SUBDOMAIN]),
    (label_key_errors, "My_name.1", []),
    (label_key_errors, "example.org/My-name", []),
    (label_key_errors, "", ["name part must be non-empty", f"name part {KEY}"]),
    (label_key_errors, "/a", ["prefix part must be non-empty"]),
    (label_key_errors, "A/a", [f"prefix part {SUBDOMAIN}"]),
    (label_key_errors, "a/" + "b" * 64, [f"name part {LONG}"]),
    (label_key_errors, "é" * 32, [f"name part {LONG}", f"name part {KEY}"]),
    (
        label_key_errors,
        "a/b/c",
        [
            f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ],
    ),
    (label_value_errors, "", []),
    (label_value_errors, "v_1.2-x", []),
    (label_value_errors, "-", [VALUE]),
    (label_value_errors, "a" * 64, [LONG]),
]


@pytest.mark.parametrize(("rules", "text", "messages"), RULES)
def test_invalid_names_have_the_api_servers_messages(
    rules: Callable[[str], list[str]], text: str, messages: list[str]
) -> None:
    assert rules(text) == messages


LABEL_KEYS = """
    yes  gpu
    yes  A_b.c-9
    yes  example.com/gpu
    no   example.com/
    no   /gpu
    no   a/b/c
    no   -gpu
    no   gpu-
    no   Example.com/gpu
    no   ex..ample/gpu
    no   gpü
"""


def lines(table: str) -> list[str]:
    return [line.strip() for line in table.strip().splitlines()]


@pytest.mark.parametrize("line", lines(LABEL_KEYS))
def test_label_keys_are_a_name_with_an_optional_subdomain_prefix(line: str) -> None:
    verdict, key = line.split()
    assert is_label_key(key) == (verdict == "yes")


def test_a_label_key_has_at_most_63_characters_of_name_and_253_of_domain() -> None:
    assert is_label_key("a" * 63)
    assert not is_label_key("a" * 64)
    assert is_label_key("a" * 253 + "/b")
    assert not is_label_key("a" * 254 + "/b")


def test_a_label_value_may_be_empty_but_not_too_long_or_malformed() -> None:
    assert is_label_value("")
    assert is_label_value("a" * 63)
    assert not is_label_value("a" * 64)
    assert not is_label_value("+5")


def test_bytes_of_a_command_line_that_are_no_text_are_no_name() -> None:
    assert dns1123_subdomain_errors(os.fsdecode(b"\x8d"))
    assert dns1123_subdomain_errors(os.fsdecode(b"\x8d" * 254))[0].startswith("must be no more than 253")


def test_a_sysctl_belongs_to_a_kernel_namespace() -> None:
    names = (
        "kernel.sem",
        "net.core.somaxconn",
        "kernel.domainname",
        "user.max_net_namespaces",
        "vm.swappiness",
    )
    assert [sysctl_namespace(name) for name in names] == ["IPC", "Net", "UTS", "User", ""]
    assert [sysctl_namespace(name, uts_and_user=False) for name in names[2:]] == ["", "", ""]
