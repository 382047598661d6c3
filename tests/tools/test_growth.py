from tools.fleet_cost import LIMIT
from tools.growth import curves, measured


def test_every_curve_has_a_command_and_files() -> None:
    names = [(command, dimension) for command, dimension, *_ in curves()]
    assert len(set(names)) == len(names)
    for _, _, line, files, least in curves():
        words = {word.strip("{/}") for word in line.split() if word[0] == "{"}
        assert words <= set(files(1))
        assert least > 0


def test_the_cost_of_a_command_is_measured_by_size() -> None:
    line, files = next((line, files) for command, _, line, files, _ in curves() if command == "quota")
    curve = measured(line, files, 1, (1, 2))
    assert [size for size, _ in curve["cpuSeconds"]] == [1, 2]
    assert curve["exponent"] is None
    assert LIMIT == 1.1
