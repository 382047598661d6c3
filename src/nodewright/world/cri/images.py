"""The images of a container runtime."""

import os

from nodewright.world.cri import api_pb2 as cri
from nodewright.world.cri.channel import (
    IMAGE,
    IMAGE_ROOM,
    LIST,
    LIST_IMAGES,
    PULL,
    REMOVE_IMAGE,
    STATUS,
    Channel,
    NotThere,
)
from nodewright.world.cri.seen import sandbox_image
from nodewright.world.errors import WorldError
from nodewright.world.ports import Credentials, ImageRoom, StoredImage


class CRIImages:
    """Images by the image service of a runtime."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def image_id(self, image: str) -> str | None:
        """The id of an image that is there."""
        found = await image_status(self._channel, image)
        return found.id if found is not None else None

    async def pull(self, image: str, credentials: Credentials | None = None) -> str:
        """The id of an image that was fetched."""
        question = cri.PullImageRequest(image=cri.ImageSpec(image=image))
        if credentials is not None:
            question.auth.username, question.auth.password = credentials.username, credentials.password
        return (await self._channel.ask(PULL, question, image)).image_ref

    async def images(self) -> tuple[StoredImage, ...]:
        """All images that are there; that of sandboxes is needed, though not all releases say so."""
        reply = await self._channel.ask(LIST_IMAGES, cri.ListImagesRequest(), "")
        status = await self._channel.ask(STATUS, cri.StatusRequest(verbose=True), "")
        needed = sandbox_image(status.info)
        return tuple(
            StoredImage(
                id=one.id,
                size_bytes=one.size,
                is_pinned=one.pinned or needed in (*one.repo_tags, *one.repo_digests),
                tags=tuple(one.repo_tags),
            )
            for one in reply.images
        )

    async def in_use(self) -> frozenset[str]:
        """The ids of images that containers are made of, those of others than ours too."""
        reply = await self._channel.ask(LIST, cri.ListContainersRequest(), "")
        return frozenset(one.image_id or one.image_ref for one in reply.containers)

    async def remove(self, image_id: str) -> None:
        """It is gone; not an error if it was not there."""
        try:
            await self._channel.ask(
                REMOVE_IMAGE, cri.RemoveImageRequest(image=cri.ImageSpec(image=image_id)), image_id
            )
        except NotThere:
            return

    async def place(self) -> str:
        """A path in the file system of images.

        Errors: WorldError where the runtime does not say which it is.
        """
        reply = await self._channel.ask(IMAGE_ROOM, cri.ImageFsInfoRequest(), "")
        if not reply.image_filesystems:
            raise WorldError("ImageFsInfo", self._channel.endpoint, "no file system of images is named")
        return reply.image_filesystems[0].fs_id.mountpoint

    async def room(self) -> ImageRoom:
        """How full the file system of images is.

        Errors: as for `place`; WorldError where that cannot be asked.
        """
        place = await self.place()
        try:
            told = os.statvfs(place)
        except OSError as error:
            raise WorldError("statvfs", place, error.strerror or str(error)) from error
        return ImageRoom(
            capacity_bytes=told.f_blocks * told.f_frsize, available_bytes=told.f_bavail * told.f_frsize
        )


async def image_status(channel: Channel, image: str) -> cri.Image | None:
    """What the runtime says of an image; None: it is not there."""
    question = cri.ImageStatusRequest(image=cri.ImageSpec(image=image))
    try:
        reply = await channel.ask(IMAGE, question, image)
    except NotThere:
        return None
    return reply.image if reply.HasField("image") and reply.image.id else None
