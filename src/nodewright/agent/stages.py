"""Which stages of pods count for what."""

from nodewright.agent.values import Stage

STAYS = (Stage.ALLOCATING, Stage.WAITING, Stage.ACTIVE)
"""Of pods that the node has taken and that are to stay."""
THERE = (*STAYS, Stage.ENDING)
"""Of pods that the node counts."""
