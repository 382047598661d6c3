"""Label selectors, as kubectl's option -l has them."""

import pytest

from nodewright.documents.formats.object_selection import ObjectSelection, parsed_selector
from nodewright.model.errors import InputError

LABELS = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("selector", "is_selected"),
    [
        ("", True),
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app=web,tier=back", False),
        ("app!=web", False),
        ("other!=web", True),
        ("app", True),
        ("!app", False),
        ("!other", True),
        ("app in (web, db)", True),
        ("app notin (web,db)", False),
        ("other notin (web)", True),
        ("app in (web,db),tier notin (back)", True),
        ("app=", False),
    ],
)
def test_a_selector_chooses_objects_by_their_labels(selector: str, is_selected: bool) -> None:
    selection = ObjectSelection(requirements=parsed_selector(selector))
    assert selection.includes({"metadata": {"labels": LABELS}}) == is_selected


@pytest.mark.parametrize("selector", ["a b", "app in web", "app in (", "=", "a=(b)"])
def test_a_malformed_selector_is_an_error(selector: str) -> None:
    with pytest.raises(InputError, match="must be requirements such as"):
        parsed_selector(selector)


@pytest.mark.parametrize("meta", [None, {}, {"labels": None}, []])
def test_objects_without_labels_meet_only_negations(meta: object) -> None:
    assert not ObjectSelection(requirements=parsed_selector("app")).includes({"metadata": meta})
    assert ObjectSelection(requirements=parsed_selector("!app")).includes({"metadata": meta})
