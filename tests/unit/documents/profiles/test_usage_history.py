"""Histories of usage in tables."""

from pathlib import Path

import pytest

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


@pytest.mark.parametrize("quote", ["", '"'])
def test_faults_are_in_the_order_of_lines(tmp_path: Path, quote: str) -> None:
    text = f"time,pod,cpu\n0,a,{quote}1{quote}\n\n60,a,much\n120,a\nnever,a,1\n"
    with pytest.raises(InputError) as caught:
        history_of(tmp_path / "usage.csv", text)
    places = [fault.source.rpartition(":")[2] for fault in caught.value.faults]
    assert places == ["4", "5", "6"]
