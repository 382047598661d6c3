"""Eviction thresholds as they are written on a kubelet's command line."""

from nodewright.model.thresholds import DEFAULT_EVICTION_HARD, EvictionSettings


class FlagError(ValueError):
    """A text that the flag does not take; the message is the kubelet's own."""


def settings_of_flags(
    hard: str | None = None, soft: str = "", soft_grace_period: str = "", minimum_reclaim: str = ""
) -> EvictionSettings:
    """What `--eviction-hard`, `--eviction-soft` and the two others beside them say, as the configuration has it.

    Without ``hard``, the defaults; with it, none of them.

    Errors:  FlagError.
    Follows: v1.36, cmd/kubelet/app/options/options.go, AddKubeletConfigFlags.

    >>> settings_of_flags("memory.available<500Mi, nodefs.available<5%").hard
    {'memory.available': '500Mi', 'nodefs.available': '5%'}
    """
    return EvictionSettings(
        hard=dict(DEFAULT_EVICTION_HARD) if hard is None else parse_pairs(hard, "<"),
        soft=parse_pairs(soft, "<"),
        soft_grace_period=parse_pairs(soft_grace_period, "="),
        minimum_reclaim=parse_pairs(minimum_reclaim, "="),
    )


def parse_pairs(text: str, separator: str) -> dict[str, str]:
    """Names and values of a flag that takes a list of pairs; of a name that comes twice, the last value.

    Errors:  FlagError.
    Follows: v1.36, component-base/cli/flag/{map_string_string,langle_separated_map_string_string}.go, Set.
    """
    pairs: dict[str, str] = {}
    for part in text.split(","):
        if not part:
            continue
        name, found, value = part.partition(separator)
        if not found:
            raise FlagError(f"malformed pair, expect string{separator}string")
        pairs[name.strip()] = value.strip()
    return pairs
