import pytest

from nodewright.render.amounts import amount_text, readable, told_apart

TEXTS = """
    cpu                 1500         1.5
    cpu                 250          0.25
    cpu                 4000         4
    cpu                 1            0.001
    cpu                 -500         -0.5
    memory              0            0
    memory              1023         1023
    memory              1024         1Ki
    memory              1610612736   1.5Gi
    memory              100000000    95.37Mi
    memory              -1073741824  -1Gi
    ephemeral-storage   53687091200  50Gi
    hugepages-2Mi       67108864     64Mi
    example.com/gpu     2048         2048
    pods                110          110
"""


@pytest.mark.parametrize("line", TEXTS.strip().splitlines())
def test_amounts_are_in_the_units_that_people_read(line: str) -> None:
    resource, amount, text = line.split()
    assert readable(resource, int(amount)) == text


def test_different_amounts_never_look_alike() -> None:
    assert told_apart("memory", 1 << 30, 1 << 29) == ["1Gi", "512Mi"]
    assert told_apart("memory", (1 << 30) + 1, 1 << 30, 1 << 30) == ["1073741825", "1073741824", "1073741824"]


def test_an_exact_text_keeps_every_unit_of_the_amount() -> None:
    texts = [amount_text("memory", amount) for amount in (0, 1, 1 << 60, (1 << 30) + 1, 3 << 29)]
    assert texts == ["0", "1", "1Ei", "1073741825", "1536Mi"]
    assert [amount_text("cpu", amount) for amount in (1500, 2000)] == ["1500m", "2"]
    assert amount_text("pods", 1024) == "1024"
