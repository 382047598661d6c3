"""Histories of usage in tables."""

import gzip
from pathlib import Path

import pytest

from nodewright.documents.profiles import usage_history
from nodewright.documents.profiles.usage_history import UsageHistory, load_usage_history
from nodewright.model.errors import InputError

ROWS = [
    ("0", "shop/web", "100m", "1Mi"),
    ("0", "shop/db", "", "2Mi"),
    ("60", "shop/web", "200m", "7"),
    ("60", "shop/db", "1", "3Mi"),
    ("30", "shop/db", "1", "3Mi"),
]


def history_of(path: Path, text: str) -> UsageHistory:
    path.write_text(text, "utf-8", newline="")
    return load_usage_history([str(path)])


def test_quoted_cells_and_plain_ones_give_the_same_history(tmp_path: Path) -> None:
    plain = "time,pod,cpu,memory\n" + "".join(",".join(row) + "\n" for row in ROWS)
    quoted = "time,pod,cpu,memory\r\n" + "".join(
        ",".join(f'"{cell}"' for cell in row) + "\r\n" for row in ROWS
    )
    histories = [history_of(tmp_path / "usage.csv", text) for text in (plain, quoted, plain.rstrip("\n"))]
    assert histories[0].cpu == histories[1].cpu == histories[2].cpu
    assert histories[0].memory == histories[1].memory == histories[2].memory
    assert histories[0].left_out == histories[1].left_out == histories[2].left_out
    assert histories[0].cpu["shop/db", ""].times_ns == [60 * 10**9]
    assert histories[0].memory["shop/web", ""].amounts == [1 << 20]
    assert sum(histories[0].left_out.values()) == 3


@pytest.mark.parametrize("column", ["", ",c"])
def test_the_order_of_the_series_does_not_matter(tmp_path: Path, column: str) -> None:
    """Tables in which the series take turns are read by another way than others."""
    header = f"time,pod{column and ',container'},cpu,memory\n"
    names = ["web", "shop/db", "default/cache"]
    rows = [(at, f"{at * 60},{name}{column},{at + 1}m,{at}Mi") for at in range(9) for name in names]
    in_turns = "".join(f"{row}\n" for _, row in rows)
    one_by_one = "".join(f"{row}\n" for name in names for _, row in rows if f",{name}" in row)
    same_pod = in_turns.replace("default/cache", "default/web")
    histories = [
        history_of(tmp_path / "usage.csv", header + text) for text in (in_turns, one_by_one, same_pod)
    ]
    assert histories[0].cpu == histories[1].cpu
    assert histories[0].memory == histories[1].memory
    assert histories[0].memory["default/web", column[1:]].amounts == [at << 20 for at in range(9)]
    assert not histories[0].left_out
    assert sum(histories[2].left_out.values()) == 18


def test_more_texts_than_are_kept_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage_history, "_MAX_CELLS", 2)
    history = history_of(
        tmp_path / "usage.csv", "time,pod,cpu\n" + "".join(f"{at},a,{at}m\n" for at in range(9))
    )
    assert history.cpu["default/a", ""].amounts == list(range(9))


def test_gzipped_tables_are_unpacked_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = gzip.compress(b"time,pod,cpu\n0,a,1\n60,a,2\n")
    path = tmp_path / "usage.csv.gz"
    path.write_bytes(packed)
    assert load_usage_history([str(path)]).cpu["default/a", ""].amounts == [1000, 2000]
    path.write_bytes(packed[:-9])
    with pytest.raises(InputError, match="cannot be read: Compressed file ended"):
        load_usage_history([str(path)])
    path.write_bytes(packed)
    monkeypatch.setattr(usage_history, "MAX_BYTES", 20)
    with pytest.raises(InputError, match="unpacked, it has more than 20 bytes, the limit"):
        load_usage_history([str(path)])


@pytest.mark.parametrize("quote", ["", '"'])
def test_faults_are_in_the_order_of_lines(tmp_path: Path, quote: str) -> None:
    text = f"time,pod,cpu\n0,a,{quote}1{quote}\n\n60,a,much\n120,a\nnever,a,1\n"
    with pytest.raises(InputError) as caught:
        history_of(tmp_path / "usage.csv", text)
    places = [fault.source.rpartition(":")[2] for fault in caught.value.faults]
    assert places == ["4", "5", "6"]
