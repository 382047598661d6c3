"""What changed on the board is known for a while; then everything may have."""

from nodewright.sim.fleet.board import Tenant
from nodewright.testing.fleets import a_board, a_seat, a_shape

SHAPE = a_shape()


def test_nodes_that_changed_are_told_once_each_in_order() -> None:
    board = a_board([a_seat(number) for number in range(9)], [(SHAPE, "0")])
    before = board.changes
    for number, node in enumerate((5, 2, 5)):
        board.put(board.seats[node], f"x{number}", Tenant(number, SHAPE, 0.0))
    assert list(board.changed_since(before)) == [5, 2]
    assert list(board.changed_since(0)) == [0, 5, 2]


def test_of_changes_long_ago_all_nodes_are_told_and_no_more_is_kept_than_that_takes() -> None:
    board = a_board([a_seat(number) for number in range(3)])
    for _ in range(5000):
        board.put(board.seats[1], "x", Tenant(0, SHAPE, 0.0))
        board.take(board.seats[1], "x")
    assert list(board.changed_since(9000)) == [0, 1, 2]
    assert list(board.changed_since(9998)) == [1]


def test_a_trial_leaves_no_trace() -> None:
    board = a_board([a_seat(0), a_seat(1)], [(SHAPE, "0")])
    seat, before = board.seats[0], board.changes
    uid = next(iter(seat.tenants))
    with board.trial(seat):
        board.put(seat, uid, board.take(seat, uid))
    assert (board.changes, seat.version, list(seat.tenants)) == (before, 1, [uid])
    board.put(board.seats[1], "y", Tenant(1, SHAPE, 0.0))
    assert list(board.changed_since(before)) == [1]
