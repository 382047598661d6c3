"""How vectors write resource lists."""

from nodewright.model.objects import ResourceList


def texts(amounts: ResourceList) -> dict[str, str]:
    """The amounts as Kubernetes prints them."""
    return {name: str(amount) for name, amount in amounts.items()}
