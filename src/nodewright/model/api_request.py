"""What the API server is asked to do with an object."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from nodewright.model.objects import ObjectMeta


class Operation(StrEnum):
    """The kind of a request."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"
    CONNECT = "CONNECT"


@dataclass(frozen=True, slots=True)
class GroupResource:
    """A kind of objects by its plural and API group, printed as messages name it.

    >>> str(GroupResource("pods")), str(GroupResource("deployments", "apps"))
    ('pods', 'deployments.apps')
    """

    resource: str
    group: str = ""

    def __str__(self) -> str:
        return f"{self.resource}.{self.group}" if self.group else self.resource


class APIObject(Protocol):
    """Anything with a name."""

    @property
    def metadata(self) -> ObjectMeta:
        """The object's metadata."""
        ...


T = TypeVar("T", bound=APIObject)
T_co = TypeVar("T_co", bound=APIObject, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class APIRequest(Generic[T_co]):
    """A request to create or change an object."""

    operation: Operation
    object: T_co
    old: T_co | None = None
    """The object as it was before an update."""
    subresource: str = ""


def creation(item: T) -> APIRequest[T]:
    """The request to create the object."""
    return APIRequest(operation=Operation.CREATE, object=item)


def update(old: T, new: T, subresource: str = "") -> APIRequest[T]:
    """The request to change the object."""
    return APIRequest(operation=Operation.UPDATE, object=new, old=old, subresource=subresource)
