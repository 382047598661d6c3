"""What changed on the board is known for a while; then everything may have."""

from nodewright.fleet.simulation.cluster_view import AssignedPod
from nodewright.testing.fleets import a_cluster_view, a_node_slot, a_pod_template

TEMPLATE = a_pod_template()


def test_changed_nodes_are_listed_once_each_in_order() -> None:
    board = a_cluster_view([a_node_slot(number) for number in range(9)], [(TEMPLATE, "0")])
    before = board.generation
    for number, node in enumerate((5, 2, 5)):
        board.add_pod(board.nodes[node], f"x{number}", AssignedPod(number, TEMPLATE, 0.0))
    assert list(board.changed_since(before)) == [5, 2]
    assert list(board.changed_since(0)) == [0, 5, 2]


def test_for_old_generations_all_nodes_are_listed_and_the_log_is_bounded() -> None:
    board = a_cluster_view([a_node_slot(number) for number in range(3)])
    for _ in range(5000):
        board.add_pod(board.nodes[1], "x", AssignedPod(0, TEMPLATE, 0.0))
        board.remove_pod(board.nodes[1], "x")
    assert list(board.changed_since(9000)) == [0, 1, 2]
    assert list(board.changed_since(9998)) == [1]


def test_a_trial_leaves_the_cluster_view_unchanged() -> None:
    board = a_cluster_view([a_node_slot(0), a_node_slot(1)], [(TEMPLATE, "0")])
    seat, before = board.nodes[0], board.generation
    uid = next(iter(seat.pods))
    with board.restored_afterwards(seat):
        board.add_pod(seat, uid, board.remove_pod(seat, uid))
    assert (board.generation, seat.generation, list(seat.pods)) == (before, 1, [uid])
    board.add_pod(board.nodes[1], "y", AssignedPod(1, TEMPLATE, 0.0))
    assert list(board.changed_since(before)) == [1]
