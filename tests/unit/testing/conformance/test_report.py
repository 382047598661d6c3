from nodewright.documents.output.json_yaml import plain_value
from nodewright.model.errors import Fault
from nodewright.testing.conformance.judge import Mismatch
from nodewright.testing.conformance.vector_run import ConformanceReport, VectorOutcome

RIGHT = VectorOutcome("a", "quota", is_judged=True)
WRONG = VectorOutcome("b", "quota", is_judged=True, mismatches=(Mismatch("x[0]", 1, "1"),))
BROKEN = VectorOutcome("c", "node", is_judged=True, error="KeyError: 'x' (node.py:1, step)")
OPEN = VectorOutcome("d", "cgroup", is_judged=False)


def report(*outcomes: VectorOutcome, to_show: int = 0) -> ConformanceReport:
    made = ConformanceReport(max_shown=to_show)
    for outcome in outcomes:
        made.add(outcome)
    return made


def test_families_are_in_order_before_the_total() -> None:
    unknown = VectorOutcome("e", "astrology", is_judged=True, error="unknown family")
    text = report(unknown, BROKEN, RIGHT, WRONG).lines()
    assert text == "quota 1/2\nnode 0/1\nastrology 0/1\n1 passed, 3 failed\n"


def test_the_requested_number_of_failures_is_shown() -> None:
    text = report(WRONG, BROKEN, WRONG, to_show=2).lines()
    assert text.splitlines()[:6] == [
        "--- b",
        "  x[0]",
        "    - 1",
        '    + "1"',
        "--- c",
        "  no answer: KeyError: 'x' (node.py:1, step)",
    ]
    assert text.count("---") == 2


def test_long_values_and_many_differences_are_cut_with_their_number() -> None:
    many = tuple(Mismatch(f"x[{number}]", "y" * 500, 2) for number in range(15))
    text = report(VectorOutcome("a", "quota", is_judged=True, mismatches=many), to_show=1).lines()
    assert "... (502 characters)" in text
    assert "  and 3 more differences\n" in text


def test_an_exception_is_reported_once_per_family() -> None:
    made = ConformanceReport()
    assert made.add(BROKEN) == "node: c: KeyError: 'x' (node.py:1, step)"
    assert made.add(BROKEN) == ""


def test_answers_that_cannot_be_judged_are_counted_apart() -> None:
    made = report(OPEN, RIGHT)
    assert made.lines() == "quota 1/1\n1 passed, 0 failed\n"
    assert made.unjudged_lines() == "cgroup: 1 answered, nothing recorded to compare with\n"


def test_a_line_that_is_no_vector_has_failed() -> None:
    made = report(RIGHT)
    made.faults.append(Fault(source="f:1", rule="not JSON"))
    assert made.lines().endswith("1 passed, 1 failed\n")


def test_the_document_equals_the_lines() -> None:
    made = report(RIGHT, WRONG, BROKEN, OPEN, to_show=1)
    assert plain_value(made.report()) == {
        "apiVersion": "nodewright.dev/v1alpha1",
        "kind": "VerificationReport",
        "families": {
            "cgroup": {"passed": 0, "total": 0, "unjudged": 1},
            "quota": {"passed": 1, "total": 2, "unjudged": 0},
            "node": {"passed": 0, "total": 1, "unjudged": 0},
        },
        "mismatches": [
            {"id": "b", "family": "quota", "differences": [{"path": "x[0]", "expected": 1, "got": "1"}]}
        ],
        "failures": [
            {"id": "c", "family": "node", "differences": [], "failure": "KeyError: 'x' (node.py:1, step)"}
        ],
        "faults": [],
        "passed": 1,
        "failed": 2,
    }
