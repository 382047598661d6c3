"""Token files: read as by the API server, or rejected with the faults of each line."""

import os
from pathlib import Path

import pytest

from nodewright.cluster.serving.access import TokenFile, TokenOwner, read_tokens
from nodewright.model.errors import InputError
from nodewright.model.values.instant import Instant

NOW = Instant.parse("2026-01-31T12:00:00Z")


def a_file(tmp_path: Path, text: str) -> TokenFile:
    place = tmp_path / "tokens.csv"
    place.write_text(text, "utf-8")
    return TokenFile(place)


def test_a_line_is_a_token_a_user_and_what_groups_it_is_in(tmp_path: Path) -> None:
    tokens = a_file(tmp_path, '# people\n\nsecret, anna ,1,"a, b"\nother,bert,2\n')
    assert tokens.owner("secret", NOW) == TokenOwner("anna", "1", ("a", "b"))
    assert tokens.owner("other", NOW) == TokenOwner("bert", "2", ())
    assert tokens.owner("secre", NOW) is None
    assert tokens.owner("", NOW) is None


def test_a_token_is_valid_until_it_expires(tmp_path: Path) -> None:
    tokens = a_file(tmp_path, "secret,anna,1,,2026-01-31T12:00:00Z\n")
    before = Instant(NOW.nanoseconds - 1)
    assert tokens.owner("secret", before) is not None
    assert not tokens.has_expired("secret", before)
    assert tokens.owner("secret", NOW) is None
    assert tokens.has_expired("secret", NOW)
    assert not tokens.has_expired("other", NOW)


def test_every_faulty_line_is_reported_without_its_token() -> None:
    text = b"hush,anna\n,bert,2\nhush2,,3\nhush3,carl,4,,soon\nhush4,dora,5\nhush4,emil,6\nhush5,f,7,g,,h\n"
    with pytest.raises(InputError) as error:
        read_tokens(text, "tokens.csv")
    texts = [str(fault) for fault in error.value.faults]
    assert [text.partition(": ")[2].partition(":")[0] for text in texts] == [
        f"line {number}" for number in (1, 2, 3, 4, 6, 7)
    ]
    assert not any("hush" in text for text in texts)
    for rule, one in zip(
        ("not 2 columns", "token is empty", "user is empty", "soon", "duplicate"), texts, strict=False
    ):
        assert rule in one


@pytest.mark.parametrize("content", [b"\xff\xfe", b'a,"b\n'])
def test_an_invalid_table_is_rejected(content: bytes) -> None:
    with pytest.raises(InputError, match="not valid CSV"):
        read_tokens(content, "tokens.csv")


def test_a_missing_or_too_large_file_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        TokenFile(tmp_path / "none")
    with pytest.raises(InputError, match="larger than"):
        a_file(tmp_path, "x" * (1 << 21))


def test_a_changed_file_is_read_again_and_checked_once_a_second(tmp_path: Path) -> None:
    tokens = a_file(tmp_path, "secret,anna,1\n")
    tokens.path.write_text("another,anna,1\n", "utf-8")
    assert tokens.owner("secret", NOW) is not None
    tokens._checked_s -= 2
    assert tokens.owner("secret", NOW) is None
    assert tokens.owner("another", NOW) is not None
    os.unlink(tokens.path)  # noqa: PTH108 - as somebody else would
    tokens._checked_s -= 2
    assert tokens.owner("another", NOW) is None
    assert "No such file" in tokens.error
