"""The metrics of the certificates that the cluster issues to the node, with the kubelet's names.

Follows: v1.36, kubelet/certificate/kubelet.go; cmd/kubelet/app/server.go, buildKubeletClientConfig.
"""

from collections.abc import Iterator, Sequence

from nodewright.documents.output.exposition import (
    HistogramBuckets,
    MetricFamily,
    MetricHistogram,
    MetricSample,
    MetricType,
    family_text,
)

ROTATION_BOUNDS = (
    *(60.0, 3600.0, 14_400.0, 86_400.0, 604_800.0, 2_592_000.0, 7_776_000.0, 15_552_000.0, 31_104_000.0),
    124_416_000.0,
)
"""Bounds of the time for which a serving certificate was in use, in seconds."""
_CLIENT = "client"
_RENEW_ERRORS = {
    _CLIENT: "kubelet_certificate_manager_client_expiration_renew_errors",
    "server": "kubelet_server_expiration_renew_errors",
}


class CertificateCounts:
    """What is counted of the rotation of one kind of certificate: `client` or `server`."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.renew_errors = 0
        """Requests that failed."""
        self.rotations = HistogramBuckets(ROTATION_BOUNDS)
        """For how long the certificates that were replaced had been valid."""

    def text(self, left_s: float | None) -> str:
        """The metrics.

        Units: ``left_s`` in seconds until the current certificate expires; None: there is none.
        """
        return "".join(family_text(family, samples) for family, samples in self._families(left_s))

    def _families(
        self, left_s: float | None
    ) -> Iterator[tuple[MetricFamily, Sequence[MetricSample | MetricHistogram]]]:
        ttl = MetricFamily(
            f"kubelet_certificate_manager_{self.kind}_ttl_seconds",
            MetricType.GAUGE,
            f"Time until the {self.kind} certificate expires, in seconds; +Inf without one.",
        )
        yield ttl, [MetricSample((), float("inf") if left_s is None else int(left_s))]
        errors = MetricFamily(
            _RENEW_ERRORS[self.kind],
            MetricType.COUNTER,
            f"Failed requests for a {self.kind} certificate.",
        )
        yield errors, [MetricSample((), self.renew_errors)]
        if self.kind != _CLIENT:
            rotations = MetricFamily(
                "kubelet_certificate_manager_server_rotation_seconds",
                MetricType.HISTOGRAM,
                "For how long replaced certificates had been valid, in seconds.",
            )
            buckets = self.rotations
            yield rotations, [MetricHistogram((), buckets.bounds, buckets.counts, buckets.total)]
