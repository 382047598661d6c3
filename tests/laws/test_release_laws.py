"""What holds for the gates of every release."""

from hypothesis import given
from hypothesis import strategies as st

from nodewright.model.releases.feature_gates import default_gates, resolve_gates
from nodewright.model.releases.release_rules import FeatureStage, ReleaseTable
from nodewright.model.releases.release_table import RELEASE_TABLES

GROUPS = {"AllAlpha", "AllBeta"}
TABLES = st.sampled_from(list(RELEASE_TABLES.values()))


@st.composite
def settings_of(draw: st.DrawFn) -> tuple[ReleaseTable, dict[str, bool]]:
    table = draw(TABLES)
    names = st.sampled_from(sorted(table.gates.keys() - GROUPS))
    return table, draw(st.dictionaries(names, st.booleans(), max_size=8))


@given(settings_of())
def test_accepted_settings_hold_and_all_other_gates_keep_their_defaults(
    settings: tuple[ReleaseTable, dict[str, bool]],
) -> None:
    table, asked = settings
    resolved = resolve_gates(asked, release=table)
    default = default_gates(table)
    for name in table.gates:
        expected = default[name] if resolved.errors else asked.get(name, default[name])
        assert resolved.gates[name] is expected


@given(settings_of())
def test_settings_are_refused_exactly_for_locks_and_missing_dependencies(
    settings: tuple[ReleaseTable, dict[str, bool]],
) -> None:
    table, asked = settings
    is_on = {name: asked.get(name, gate.default) for name, gate in table.gates.items()}
    breaks_lock = any(
        table.gates[name].locked and value != table.gates[name].default for name, value in asked.items()
    )
    lacks = any(
        is_on[name] and not is_on[needed]
        for name, gate in table.gates.items()
        for needed in gate.dependencies
    )
    assert bool(resolve_gates(asked, release=table).errors) == (breaks_lock or lacks)


@given(
    st.sampled_from(sorted(RELEASE_TABLES)),
    st.sampled_from(sorted({name for table in RELEASE_TABLES.values() for name in table.gates})),
)
def test_a_gate_of_another_release_only_cannot_be_set_and_is_on_if_it_was_ga(release: str, name: str) -> None:
    table = RELEASE_TABLES[release]
    if name not in table.gates:
        older = [
            each.gates[name] for each in RELEASE_TABLES.values() if each.name < release and name in each.gates
        ]
        was_ga = bool(older) and older[-1].stage is FeatureStage.GA and older[-1].default
        assert default_gates(table)[name] == was_ga
        assert resolve_gates({name: True}, release=table).unknown == (name,)
