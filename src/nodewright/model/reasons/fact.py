"""What every fact has: the kubelet's text, byte for byte, and a sentence of ours."""

from abc import abstractmethod
from typing import NamedTuple

import msgspec

from nodewright.model.values.idset import NUMASet


class KubeletText(NamedTuple):
    """Reason and message of a pod's status, as the kubelet writes them."""

    reason: str
    message: str


class Fact(msgspec.Struct, frozen=True):
    """A fact that decides, with the numbers that decided it."""

    @abstractmethod
    def kubelet(self) -> KubeletText:
        """The kubelet's reason and message for a pod; without a reason: the error with which the kubelet ends."""

    @abstractmethod
    def sentence(self) -> str:
        """The fact in words, without a full stop."""


class StartFact(Fact, frozen=True):
    """Why the kubelet does not start: an error, without the status of a pod."""

    @abstractmethod
    def kubelet_error(self) -> str:
        """The error with which the kubelet ends."""

    def kubelet(self) -> KubeletText:
        """The error, as a text without a reason."""
        return KubeletText("", self.kubelet_error())

    def sentence(self) -> str:
        """The kubelet's error, where it states everything."""
        return self.kubelet_error()


class ManagerFact(Fact, frozen=True):
    """A fact of the CPU, memory or device manager, which is an error inside the kubelet."""

    @abstractmethod
    def kubelet_error(self) -> str:
        """The text of the kubelet's error; ours where the kubelet reports nothing or never returns."""

    def error_type(self) -> str:
        """The type that the kubelet gives the error, which becomes the pod's reason; empty: none."""
        return ""

    def kubelet(self) -> KubeletText:
        """The status of a pod whose resources the manager cannot allocate.

        Follows: v1.36, cm/admission/errors.go, GetPodAdmitResult.
        """
        if reason := self.error_type():
            return KubeletText(reason, self.kubelet_error())
        return unexpected_admission_error(
            f"Allocate failed due to {self.kubelet_error()}, which is unexpected"
        )

    def sentence(self) -> str:
        """The fact in words, without a full stop: the kubelet's own, where they state everything."""
        return self.kubelet_error()


def unexpected_admission_error(message: str) -> KubeletText:
    """The status of a pod that the kubelet rejects for an error without a type.

    Follows: v1.36, cm/admission/errors.go, GetPodAdmitResult.
    """
    return KubeletText("UnexpectedAdmissionError", message)


def numa_nodes(numa: NUMASet) -> str:
    """A set of NUMA nodes in words.

    >>> numa_nodes(NUMASet.of(0)), numa_nodes(NUMASet.of(0, 1))
    ('NUMA node 0', 'NUMA nodes 0-1')
    """
    return f"NUMA node{'s' if len(numa) > 1 else ''} {numa}"
