"""Names of sysctls and the kernel namespaces that they belong to."""

_IPC = frozenset(
    [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ]
)
_PREFIXES = {"net.": "Net", "fs.mqueue.": "IPC"}


def dotted_sysctl(sysctl: str) -> str:
    """The name of a sysctl with dots between its parts; in names written with slashes, both are swapped.

    >>> dotted_sysctl("net/ipv4/conf/eth0.100/forwarding")
    'net.ipv4.conf.eth0/100.forwarding'
    """
    separators = [character for character in sysctl if character in "./"]
    if not separators or separators[0] == ".":
        return sysctl
    return sysctl.translate(str.maketrans("./", "/."))


def sysctl_namespace(sysctl: str) -> str:
    """The kernel namespace that a sysctl written with dots belongs to: `IPC`, `Net` or nothing.

    Follows: v1.36, component-helpers/node/util/sysctl/namespace.go, namespaceOf.
    """
    if sysctl in _IPC:
        return "IPC"
    return next((namespace for prefix, namespace in _PREFIXES.items() if sysctl.startswith(prefix)), "")
