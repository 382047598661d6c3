import pytest

from nodewright.model.errors import Fault, HostError, InputError

FAULTS = [
    (Fault(rule="is wrong"), "is wrong"),
    (Fault(rule="is wrong", path="a.b"), "a.b: is wrong"),
    (Fault(rule="is wrong", path="a.b", source="f:1:2"), "f:1:2: a.b: is wrong"),
    (Fault(rule="is wrong", value="x"), 'Invalid value: "x": is wrong'),
    (Fault(rule="is wrong", value=["x", 1, None, True]), 'Invalid value: ["x", 1, null, true]: is wrong'),
    (Fault(rule="", path="a", error="Required value"), "a: Required value"),
    (Fault(rule="", path="a", value="x", error="Duplicate value"), 'a: Duplicate value: "x"'),
    (Fault(rule="may not be", path="a", error="Forbidden"), "a: Forbidden: may not be"),
]


@pytest.mark.parametrize(("fault", "text"), FAULTS)
def test_faults_print_as_in_kubernetes(fault: Fault, text: str) -> None:
    assert str(fault) == text


def test_an_input_error_lists_all_its_faults() -> None:
    assert str(InputError([Fault(rule="a"), Fault(rule="b")])) == "a\nb"


def test_a_host_error_names_operation_and_place() -> None:
    assert str(HostError("write", "cpu.max", "Invalid argument")) == "write cpu.max: Invalid argument"


def test_a_very_long_value_is_shown_by_its_ends_and_its_length() -> None:
    value = "a" * 500_000 + "z" * 500_000
    text = str(Fault(rule="is wrong", path="p" * 10_000, value=value, source="f.yaml"))
    assert len(text) < 3_000
    assert text.startswith("f.yaml: ppp")
    assert "aaa...zzz" in text
    assert text.endswith('z" (1000002 characters): is wrong')


def test_values_of_kubernetes_longest_names_are_shown_whole() -> None:
    name = "a" * 253
    assert str(Fault(rule="is wrong", value=name)) == f'Invalid value: "{name}": is wrong'
