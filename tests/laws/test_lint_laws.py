"""What always holds of linting, whatever the files are."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nodewright.cli.linting import question
from nodewright.cli.telling import outcome
from nodewright.lint.rules import BY_ID, EVERYTHING, Selection
from nodewright.render.lint.report import Told
from nodewright.render.lint.words import PAGES
from nodewright.world.inventory import load_inventory

# Manifests that other rules' examples may stand beside: those of pods, without nodes or namespaces' limits.
NAMES = [rule for rule in sorted(PAGES) if rule[2] == "1"]
TEXTS = {rule: PAGES[rule].bad.replace("name: web\n", f"name: {rule.lower()}\n", 1) for rule in NAMES}
KUBELET = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"
    'cpuManagerPolicyOptions: {full-pcpus-only: "true"}\nreservedSystemCPUs: 0-1\n'
)
mixtures = st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True).flatmap(
    lambda chosen: st.tuples(st.just(chosen), st.permutations(chosen))
)


def told(texts: list[str], selection: Selection = EVERYTHING, *, node: str | None = None) -> list[Told]:
    with tempfile.TemporaryDirectory() as folder:
        kubelet = Path(folder, "kubelet.yaml")
        kubelet.write_text(KUBELET)
        paths = []
        for number, text in enumerate(texts):
            path = Path(folder, f"{number}.yaml")
            path.write_text(text)
            paths.append(str(path))
        inventory = load_inventory(paths)
        asked = question(inventory, [node], str(kubelet)) if node else question(inventory)
        return list(outcome(asked, selection).told)


def facts(found: list[Told]) -> set[tuple[str, str, int, str]]:
    return {(one.rule.id, one.subject, one.spot.line, one.text) for one in found}


@given(mixtures, st.sampled_from([None, "vm-4"]))
def test_the_order_of_files_changes_nothing(mixture: tuple[list[str], list[str]], node: str | None) -> None:
    one, other = ([TEXTS[rule] for rule in order] for order in mixture)
    assert facts(told(one, node=node)) == facts(told(other, node=node))


@given(mixtures, st.data())
def test_an_ignored_finding_disappears_and_nothing_else(
    mixture: tuple[list[str], list[str]], data: st.DataObject
) -> None:
    texts = [TEXTS[rule] for rule in mixture[0]]
    before = told(texts)
    gone = data.draw(st.sampled_from(before))
    number = int(Path(gone.spot.file).stem)
    lines = texts[number].splitlines()
    lines[gone.spot.line - 1] += f"  # nodewright: ignore {gone.rule.id} we know"
    after = told([*texts[:number], "\n".join(lines) + "\n", *texts[number + 1 :]])
    assert facts(before) - facts(after) == facts([gone])
    assert facts(after) <= facts(before)


@given(mixtures, st.sets(st.sampled_from(sorted(BY_ID))))
def test_rules_do_not_hear_of_one_another(mixture: tuple[list[str], list[str]], off: set[str]) -> None:
    texts = [TEXTS[rule] for rule in mixture[0]]
    left = {one for one in facts(told(texts)) if one[0] not in off}
    assert facts(told(texts, Selection(disabled=frozenset(off)))) == left
    if off:
        assert facts(told(texts, Selection(only=frozenset(off)))) == facts(told(texts)) - left
