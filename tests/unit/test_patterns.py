"""Regular expressions that are compiled at their first use."""

import re

import pytest

from nodewright.model.patterns import lazy_pattern


def test_nothing_is_compiled_before_the_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []
    compile_pattern = re.compile

    def recorded_compile(text: str, flags: int) -> re.Pattern[str]:
        compiled.append(text)
        return compile_pattern(text, flags)

    monkeypatch.setattr(re, "compile", recorded_compile)
    pattern = lazy_pattern("[a-c]+", re.IGNORECASE)
    assert compiled == []
    matches = [pattern.fullmatch(text) is not None for text in ("abC", "abd", "")]
    assert matches == [True, False, False]
    assert compiled == ["[a-c]+"]


def test_it_answers_as_the_compiled_pattern_does() -> None:
    lazy, compiled = lazy_pattern(rb"a(b)?"), re.compile(rb"a(b)?")
    assert lazy.pattern == compiled.pattern
    assert lazy.sub(rb"<\g<0>>", b"ab a") == compiled.sub(rb"<\g<0>>", b"ab a")
    assert [match.span() for match in lazy.finditer(b"ab a")] == [(0, 2), (3, 4)]


def test_text_that_is_no_regular_expression_is_an_error_at_the_first_use() -> None:
    pattern = lazy_pattern("(")
    with pytest.raises(re.error):
        pattern.match("")
