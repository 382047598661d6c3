from nodewright.predict.lint.rules import RULES_BY_ID
from tools.reference import (
    DEPARTURES,
    LAYERS,
    LINT,
    MACHINES,
    PROFILE,
    departures,
    followed,
    lint_pages,
    machines_page,
    page,
    profile_page,
)
from tools.source import PACKAGE, Module, modules


def test_the_page_of_departures_is_what_docstrings_say() -> None:
    assert DEPARTURES.read_text("utf-8") == departures(), "python -m tools regenerate"


def test_the_pages_of_profiles_and_machines_are_what_the_code_says() -> None:
    assert PROFILE.read_text("utf-8") == profile_page(), "python -m tools regenerate"
    assert MACHINES.read_text("utf-8") == machines_page(), "python -m tools regenerate"


def test_every_field_of_a_profile_has_its_meaning() -> None:
    assert [line for line in profile_page().splitlines() if line.endswith("|  |")] == []


def test_the_pages_of_lint_rules_are_what_the_code_says() -> None:
    assert all(path.read_text("utf-8") == text for path, text in lint_pages()), "python -m tools regenerate"
    assert {path.name for path in LINT.glob("NW*.md")} == {f"{rule}.md" for rule in RULES_BY_ID}


def test_a_departure_is_listed_with_its_symbol() -> None:
    assert (
        "\n## nodewright.model.values.quantity\n\n- `Quantity`: a value, never changed in place;"
        in departures()
    )


def test_a_source_is_listed_with_what_follows_it() -> None:
    assert (
        "- v1.36, apimachinery/pkg/api/resource/quantity.go\n    - `nodewright.model.values.quantity"
        in followed()
    )


def test_the_page_of_a_module_shows_what_is_public() -> None:
    text = page(Module(PACKAGE / "model" / "values" / "quantity.py"))
    assert text.startswith("# nodewright.model.values.quantity\n\nAmounts of resources")
    assert "\n## Quantity.parse\n" in text


def test_every_floor_has_its_place() -> None:
    assert {module.name.split(".")[1] for module in modules("src") if "." in module.name} == {
        *LAYERS,
        "__main__",
    }
