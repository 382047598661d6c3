"""Patches do what they say."""

from hypothesis import given
from hypothesis import strategies as st
from tests.support.memory_cluster import merged_document

from nodewright.agent.member.merge_patch import POD_LISTS, merge_patch

STATUSES = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(("Pending", "Running")),
        "nested": st.dictionaries(st.sampled_from("abc"), st.integers(0, 2), min_size=1),
        "list": st.lists(st.integers(0, 2), min_size=1),
        "conditions": st.dictionaries(
            st.sampled_from(("Ready", "Other", "Third")), st.sampled_from(("True", "False")), min_size=1
        ).map(lambda states: [{"type": kind, "status": status} for kind, status in sorted(states.items())]),
    },
)


@given(old=STATUSES, new=STATUSES)
def test_the_patch_makes_the_one_document_the_other(old: dict[str, object], new: dict[str, object]) -> None:
    if "conditions" in old:
        # The status of a pod or node never loses all of its conditions.
        new = {**new, "conditions": new.get("conditions", old["conditions"])}
    patch = merge_patch({"status": old}, {"status": new}, POD_LISTS)
    patched = merged_document({"status": old}, patch)["status"]
    if "conditions" in patched:
        patched["conditions"] = sorted(patched["conditions"], key=lambda condition: condition["type"])
    assert patched == new
