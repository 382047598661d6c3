from collections.abc import Callable

import pytest

from nodewright.core.validation.names import key_rules, label_rules, subdomain_rules, value_rules

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
    (label_rules, "web-1", []),
    (label_rules, "a" * 63, []),
    (label_rules, "a" * 64, [LONG]),
    (label_rules, "a.b", ["must not contain dots"]),
    (label_rules, "A", [LABEL]),
    (label_rules, "-a", [LABEL]),
    (label_rules, "a\n", [LABEL]),
    (label_rules, "", [LABEL]),
    (subdomain_rules, "a.b-c.1", []),
    (subdomain_rules, "a" * 254, ["must be no more than 253 bytes"]),
    (subdomain_rules, "a..b", [SUBDOMAIN]),
    (key_rules, "My_name.1", []),
    (key_rules, "example.org/My-name", []),
    (key_rules, "", ["name part must be non-empty", f"name part {KEY}"]),
    (key_rules, "/a", ["prefix part must be non-empty"]),
    (key_rules, "A/a", [f"prefix part {SUBDOMAIN}"]),
    (key_rules, "a/" + "b" * 64, [f"name part {LONG}"]),
    (key_rules, "é" * 32, [f"name part {LONG}", f"name part {KEY}"]),
    (
        key_rules,
        "a/b/c",
        [
            f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ],
    ),
    (value_rules, "", []),
    (value_rules, "v_1.2-x", []),
    (value_rules, "-", [VALUE]),
    (value_rules, "a" * 64, [LONG]),
]


@pytest.mark.parametrize(("rules", "text", "found"), RULES)
def test_names_are_judged_in_the_api_servers_words(
    rules: Callable[[str], list[str]], text: str, found: list[str]
) -> None:
    assert rules(text) == found
