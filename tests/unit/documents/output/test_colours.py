"""Colours: which words, and on which streams."""

import io

import pytest

from nodewright.documents.output.terminal import ColourMode, coloured, has_colours


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("mode", "stream", "environment", "wanted"),
    [
        (ColourMode.AUTO, Terminal(), {"TERM": "xterm"}, True),
        (ColourMode.AUTO, Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (ColourMode.AUTO, Terminal(), {"TERM": "xterm", "NO_COLOR": ""}, True),
        (ColourMode.AUTO, Terminal(), {"TERM": "dumb"}, False),
        (ColourMode.AUTO, io.StringIO(), {"TERM": "xterm"}, False),
        (ColourMode.ALWAYS, io.StringIO(), {"NO_COLOR": "1"}, True),
        (ColourMode.NEVER, Terminal(), {"TERM": "xterm"}, False),
    ],
)
def test_when_there_are_colours(
    mode: ColourMode, stream: io.StringIO, environment: dict[str, str], wanted: bool
) -> None:
    assert has_colours(mode, stream, environment) is wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("error: no such file\n", "\x1b[31merror\x1b[0m: no such file\n"),
        ("a.yaml:3:1: info: x", "a.yaml:3:1: \x1b[36minfo\x1b[0m: x"),
        (
            "POD   VERDICT\nweb   refused   OutOfcpu",
            "\x1b[1mPOD   VERDICT\x1b[0m\nweb   \x1b[31mrefused\x1b[0m   OutOfcpu",
        ),
        ("jobs/a: admitted now", "jobs/a: \x1b[32madmitted\x1b[0m now"),
        ("the kubelet admitted it", "the kubelet admitted it"),
        ("--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n z\n", None),
        ('{"verdict": "x"}', '{"verdict": "x"}'),
        ("apiVersion: v1\nreason: refused\n", "apiVersion: v1\nreason: refused\n"),
    ],
)
def test_which_words_have_colours(text: str, wanted: str | None) -> None:
    result = coloured(text)
    if wanted is None:
        assert "\x1b[31m-x\x1b[0m\n\x1b[32m+y\x1b[0m\n z\n" in result
    else:
        assert result == wanted
