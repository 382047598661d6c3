"""The images of a container runtime, through CRI's ImageService."""

import os

from nodewright.agent.host.ports import Credentials, ImageFsStats, StoredImage
from nodewright.agent.runtimes.cri import api_pb2 as cri
from nodewright.agent.runtimes.cri.channel import (
    IMAGE_FS_INFO,
    IMAGE_STATUS,
    LIST_CONTAINERS,
    LIST_IMAGES,
    PULL_IMAGE,
    REMOVE_IMAGE,
    STATUS,
    CRIChannel,
    NotFoundError,
)
from nodewright.agent.runtimes.cri.status import sandbox_image
from nodewright.model.errors import HostError


class CRIImageStore:
    """The image store of a container runtime."""

    def __init__(self, channel: CRIChannel) -> None:
        self._channel = channel

    async def image_id(self, image: str) -> str | None:
        """The id of an image; None: it does not exist."""
        image_found = await image_status(self._channel, image)
        return image_found.id if image_found is not None else None

    async def image_size(self, image: str) -> int:
        """The size of an image in bytes; 0: it does not exist."""
        stored = await image_status(self._channel, image)
        return stored.size if stored is not None else 0

    async def pull(self, image: str, credentials: Credentials | None = None) -> str:
        """Pulls an image; its id."""
        request = cri.PullImageRequest(image=cri.ImageSpec(image=image))
        if credentials is not None:
            request.auth.username, request.auth.password = credentials.username, credentials.password
        return (await self._channel.call(PULL_IMAGE, request, image)).image_ref

    async def images(self) -> tuple[StoredImage, ...]:
        """All images; the sandbox image counts as pinned, which not all runtime releases report."""
        response = await self._channel.call(LIST_IMAGES, cri.ListImagesRequest(), "")
        status = await self._channel.call(STATUS, cri.StatusRequest(verbose=True), "")
        sandbox_image_name = sandbox_image(status.info)
        return tuple(
            StoredImage(
                id=image.id,
                size_bytes=image.size,
                is_pinned=image.pinned or sandbox_image_name in (*image.repo_tags, *image.repo_digests),
                tags=tuple(image.repo_tags),
                digests=tuple(image.repo_digests),
            )
            for image in response.images
        )

    async def in_use(self) -> frozenset[str]:
        """The ids of images that containers of any owner use."""
        response = await self._channel.call(LIST_CONTAINERS, cri.ListContainersRequest(), "")
        return frozenset(container.image_id or container.image_ref for container in response.containers)

    async def remove(self, image_id: str) -> None:
        """Removes an image; no error if it does not exist."""
        try:
            await self._channel.call(
                REMOVE_IMAGE, cri.RemoveImageRequest(image=cri.ImageSpec(image=image_id)), image_id
            )
        except NotFoundError:
            return

    async def image_fs_path(self) -> str:
        """A path in the image file system.

        Errors: HostError where the runtime does not name it.
        """
        response = await self._channel.call(IMAGE_FS_INFO, cri.ImageFsInfoRequest(), "")
        if not response.image_filesystems:
            raise HostError("ImageFsInfo", self._channel.endpoint, "the runtime names no image file system")
        path: str = response.image_filesystems[0].fs_id.mountpoint
        return path

    async def image_fs_stats(self) -> ImageFsStats:
        """Capacity and free space of the image file system.

        Errors: as for `image_fs_path`; HostError where it cannot be read.
        """
        path = await self.image_fs_path()
        try:
            file_system = os.statvfs(path)
        except OSError as error:
            raise HostError("statvfs", path, error.strerror or str(error)) from error
        return ImageFsStats(
            capacity_bytes=file_system.f_blocks * file_system.f_frsize,
            available_bytes=file_system.f_bavail * file_system.f_frsize,
        )


async def image_status(channel: CRIChannel, image: str) -> cri.Image | None:
    """The runtime's status of an image; None: it does not exist."""
    request = cri.ImageStatusRequest(image=cri.ImageSpec(image=image))
    try:
        response = await channel.call(IMAGE_STATUS, request, image)
    except NotFoundError:
        return None
    return response.image if response.HasField("image") and response.image.id else None
