"""Integer amounts in the units that people read."""

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def amount_text(resource: str, amount: int) -> str:
    """The amount of a resource in the largest unit that shows it exactly.

    Units: thousandths in for cpu, bytes for memory, storage and huge pages, pieces for everything else.

    >>> amount_text("cpu", 1500), amount_text("cpu", 2000), amount_text("memory", 3 << 29), amount_text("pods", 110)
    ('1500m', '2', '1536Mi', '110')
    """
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        power = 0
        while amount and amount % 1024 == 0 and power < len(_BINARY) - 1:
            amount, power = amount // 1024, power + 1
        return f"{amount}{_BINARY[power]}"
    return str(amount)
