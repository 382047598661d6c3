"""Readings of a node in a few words, for tests and notebooks: `memory="400Mi/16Gi"` is available/capacity."""

from nodewright.model.usage import (
    ContainerUse,
    FilesystemUse,
    MemoryUse,
    NodeUse,
    PodReference,
    PodUse,
    ProcessLimit,
    ProcessUse,
    RuntimeUse,
    Usage,
    VolumeUse,
)
from nodewright.values.instant import Instant
from nodewright.values.quantity import Quantity


def a_reading(*pods: PodUse, at_s: int | None = None, **signals: str) -> Usage:
    """A reading of a node of 16Gi and 100Gi of disk, of which half is available, but for what is said otherwise.

    ``signals`` are `memory`, `allocatable` (that of all pods), `nodefs`, `imagefs`, `containerfs` and their
    inodes (`nodefs_inodes`, ...), and `pids`: each available/capacity, or empty for "not observed". ``at_s`` is
    when it was measured, in seconds since 1970.

    >>> a_reading(memory="400Mi/16Gi", imagefs="").node.memory.available_bytes
    419430400
    """
    at = None if at_s is None else Instant(at_s * 10**9)
    pids = _pair(signals.get("pids", "16384/32768"))
    container_of_pods = ContainerUse(name="pods", memory=_memory(signals.get("allocatable", "8Gi/16Gi"), at))
    node = NodeUse(
        node_name="node1",
        memory=_memory(signals.get("memory", "8Gi/16Gi"), at),
        system_containers=(container_of_pods,),
        fs=_filesystem("nodefs", signals, at),
        runtime=RuntimeUse(
            image_fs=_filesystem("imagefs", signals, at), container_fs=_filesystem("containerfs", signals, at)
        ),
        rlimit=ProcessLimit(time=at, max_pid=pids[1], running=pids[1] - pids[0]) if pids else None,
    )
    return Usage(node=node, pods=pods)


def a_use(name: str, memory: str = "0", *, processes: int = 0, **disk: str) -> PodUse:
    """What a pod with one container, `main`, uses; its uid is its name.

    ``disk`` are `rootfs`, `logs`, `storage` (ephemeral storage as a whole) and volumes by name: bytes, or
    bytes/inodes.

    >>> a_use("web", "1Gi", rootfs="5Gi/300", cache="1Gi").volumes[0].used_bytes
    1073741824
    """
    used = MemoryUse(working_set_bytes=_count(memory))
    main = ContainerUse(name="main", memory=used, rootfs=_held(disk, "rootfs"), logs=_held(disk, "logs"))
    storage = _held(disk, "storage")
    return PodUse(
        pod_ref=PodReference(name=name, namespace="default", uid=name),
        containers=(main,),
        memory=used,
        volumes=tuple(_volume(volume, text) for volume, text in disk.items()),
        ephemeral_storage=storage,
        processes=ProcessUse(process_count=processes),
    )


def _memory(text: str, at: Instant | None) -> MemoryUse | None:
    pair = _pair(text)
    return MemoryUse(time=at, available_bytes=pair[0], working_set_bytes=pair[1] - pair[0]) if pair else None


def _filesystem(name: str, signals: dict[str, str], at: Instant | None) -> FilesystemUse | None:
    space = _pair(signals.get(name, "50Gi/100Gi"))
    inodes = _pair(signals.get(f"{name}_inodes", "500000/1000000"))
    if not space and not inodes:
        return None
    return FilesystemUse(
        time=at,
        available_bytes=space[0] if space else None,
        capacity_bytes=space[1] if space else None,
        inodes_free=inodes[0] if inodes else None,
        inodes=inodes[1] if inodes else None,
    )


def _held(disk: dict[str, str], part: str) -> FilesystemUse | None:
    text = disk.pop(part, None)
    if text is None:
        return None
    used, _, inodes = text.partition("/")
    return FilesystemUse(used_bytes=_count(used), inodes_used=_count(inodes or "0"))


def _volume(name: str, text: str) -> VolumeUse:
    used, _, inodes = text.partition("/")
    return VolumeUse(name=name, used_bytes=_count(used) if used else None, inodes_used=_count(inodes or "0"))


def _pair(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    available, _, capacity = text.partition("/")
    return _count(available), _count(capacity)


def _count(text: str) -> int:
    return Quantity.parse(text).value()
