import pytest

from nodewright.documents.output.terminal import NO, USAGE
from tools.consoles import Shown, blocks, console_commands, execute, is_as_shown, outputs, refreshed

PAGE = """# Page

```console
$ nodewright frobnicate
Usage: ...
Error: No such command 'frobnicate'. `nodewright help` lists the commands.
$ echo $?
2
$ kubectl get pods
NAME   READY
```

```python
>>> 1
1
```
"""


def test_blocks_are_found_by_their_language() -> None:
    (console,) = blocks(PAGE, "console")
    assert (console.line, console.body.splitlines()[0]) == (4, "$ nodewright frobnicate")
    assert [block.language for block in blocks(PAGE, "python", "yaml")] == ["python"]


def test_a_block_shows_commands_with_their_output() -> None:
    (console,) = blocks(PAGE, "console")
    assert [each.command for each in console_commands(console)] == [
        "nodewright frobnicate",
        "echo $?",
        "kubectl get pods",
    ]
    assert console_commands(console)[2] == Shown(9, "kubectl get pods", "NAME   READY\n")


def test_a_backslash_continues_a_command() -> None:
    (block,) = blocks("```console\n$ nodewright \\\n    frobnicate\nout\n```\n", "console")
    assert console_commands(block) == [Shown(2, "nodewright \\\n    frobnicate", "out\n")]


def test_an_output_without_a_command_is_a_mistake() -> None:
    (block,) = blocks("```console\nout\n```\n", "console")
    with pytest.raises(AssertionError, match="line 2"):
        console_commands(block)


def test_commands_are_run_with_data_and_messages_in_one() -> None:
    ran = execute("nodewright frobnicate")
    assert ran.code == USAGE != NO
    assert ran.output.endswith("Error: No such command 'frobnicate'. `nodewright help` lists the commands.\n")


def test_other_programs_are_not_run() -> None:
    (console,) = blocks(PAGE, "console")
    assert [(each.line, is_as_shown(each.output, printed)) for each, printed in outputs(console)] == [
        (4, True),
        (7, True),
    ]


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a  \n\n", True),
        ("a\n", "b\n", False),
        ("a  b\n", "a b\n", False),
        ("a ... c\n", "a b\nb c\n", True),
        ("", "a\n", False),
    ],
)
def test_dots_stand_for_anything_and_blanks_count(expected: str, printed: str, *, same: bool) -> None:
    assert is_as_shown(expected, printed) is same


def test_a_fresh_document_stays_as_it_is() -> None:
    assert refreshed(PAGE) == PAGE


def test_an_outdated_output_is_written_anew() -> None:
    outdated = PAGE.replace("No such command", "No command").replace("\n2\n", "\n3\n")
    fresh = refreshed(outdated)
    assert (
        "`nodewright help` lists the commands.\n$ echo $?\n2\n$ kubectl get pods\nNAME   READY\n```\n"
        in fresh
    )
    assert refreshed(fresh) == fresh
