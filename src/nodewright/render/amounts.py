"""Integer amounts in the units that people read."""

from nodewright.model.resource_names import CPU, is_in_bytes

_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def amount_text(resource: str, amount: int) -> str:
    """The amount of a resource in the largest unit that shows it exactly.

    Units: thousandths in for cpu, bytes for memory, storage and huge pages, pieces for everything else.

    >>> amount_text("cpu", 1500), amount_text("cpu", 2000), amount_text("memory", 3 << 29), amount_text("pods", 110)
    ('1500m', '2', '1536Mi', '110')
    """
    if resource == CPU:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if is_in_bytes(resource):
        power = 0
        while amount and amount % 1024 == 0 and power < len(_BINARY) - 1:
            amount, power = amount // 1024, power + 1
        return f"{amount}{_BINARY[power]}"
    return str(amount)


def readable(resource: str, amount: int) -> str:
    """The amount in CPUs, in the largest unit of bytes that fits, or as it is.

    Units: as `amount_text`; sizes are rounded to hundredths.

    >>> readable("cpu", 1500), readable("memory", 3 << 29), readable("memory", 10**8)
    ('1.5', '1.5Gi', '95.37Mi')
    """
    if resource == CPU:
        return _trimmed(f"{amount / 1000:.3f}")
    if is_in_bytes(resource):
        power = max(abs(amount).bit_length() - 1, 0) // 10
        return f"{_trimmed(f'{amount / (1 << 10 * power):.2f}')}{_BINARY[power]}"
    return str(amount)


def told_apart(resource: str, *amounts: int) -> list[str]:
    """The amounts, readable; to the last digit if rounding made different ones look alike.

    >>> told_apart("memory", 1 << 30, (1 << 30) + 1)
    ['1073741824', '1073741825']
    """
    texts = [readable(resource, amount) for amount in amounts]
    return texts if len(set(texts)) == len(set(amounts)) else list(map(str, amounts))


def _trimmed(decimal: str) -> str:
    return decimal.rstrip("0").rstrip(".")
