"""Has a certificate of the node issued when there is none, and again before it expires."""

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from nodewright.agent.member.certificates import (
    CLIENT_SIGNER,
    CertificateCounts,
    CertificateFacts,
    CertificateStore,
    CertificateSubject,
    RequestRejectedError,
    Signer,
    certificate_request,
    issued_certificate,
)
from nodewright.cluster.client.cluster_api import ClusterAPI
from nodewright.cluster.tasks.timing import Clock
from nodewright.model.errors import HostError
from nodewright.model.kubernetes.recorded_events import RecordEvent
from nodewright.model.values.instant import Instant

_CHECK_S = 10.0
"""How often the wall clock and the subject are looked at; the clock may jump."""
_SIGNING_TIMEOUT_S = 900.0
_DELAYS_S = (2.0, 4.0, 8.0, 16.0)
_LAST_DELAY_S = 32.0
_LEAST_SHARE, _SHARE_SPREAD = 0.7, 0.2


class CertificateRotation:
    """Keeps the current certificate of ``store`` valid and for the right subject.

    ``open_api`` opens a connection for requests; it gets whether the current certificate can be used for it.

    Follows: v1.36, client-go/util/certificate/certificate_manager.go.
    Departs: the agent does not exit when its certificate has expired: it tries on, and pods keep running.
    """

    def __init__(
        self,
        store: CertificateStore,
        signer: Signer,
        open_api: Callable[[bool], AbstractAsyncContextManager[ClusterAPI]],
        clock: Clock,
    ) -> None:
        self._store, self._signer, self._open_api, self._clock = store, signer, open_api, clock
        self.subject: Callable[[], CertificateSubject | None]
        """The subject of the certificate; None: not known yet."""
        self.is_forced = False
        """Whether the first certificate is replaced at once."""
        self.is_renewed = True
        """Whether the certificate is renewed before it expires; otherwise one is requested only where there is none."""
        self.record_event: Callable[[RecordEvent], None] = lambda _event: None
        self.has_certificate = asyncio.Event()
        """Set once there is a certificate that has not expired."""
        self._share = self._next_share()
        self._last_error = ""
        self._counts = CertificateCounts("client" if signer is CLIENT_SIGNER else "server")

    @property
    def current(self) -> CertificateFacts | None:
        """The current certificate; None: there is none, or it has expired."""
        facts = self._store.current()
        return facts if facts is not None and self._now_s() < facts.not_after_s else None

    def metrics_text(self) -> str:
        """The metrics of the certificate."""
        facts = self._store.current()
        return self._counts.text(facts.not_after_s - self._now_s() if facts is not None else None)

    async def run(self) -> None:
        """Has certificates issued until it is cancelled."""
        if self.current is not None:
            self.has_certificate.set()
        delays = iter(_DELAYS_S)
        while True:
            wait_s = self._wait_s()
            if wait_s > 0:
                await self._clock.sleep(min(wait_s, _CHECK_S))
                continue
            subject = self.subject()
            if subject is None:
                await self._clock.sleep(1.0)
                continue
            if await self._rotate(subject):
                delays = iter(_DELAYS_S)
            else:
                await self._clock.sleep(next(delays, _LAST_DELAY_S))

    def _wait_s(self) -> float:
        """How long the current certificate is kept; 0 or less: another one is needed.

        Follows: v1.36, client-go/util/certificate/certificate_manager.go, nextRotationDeadline: after 70 % to 90 % of
            its time.
        """
        facts, subject = self.current, self.subject()
        if facts is None or self.is_forced or (subject is not None and not facts.satisfies(subject)):
            return 0.0
        if not self.is_renewed:
            return facts.not_after_s - self._now_s()
        total_s = facts.not_after_s - facts.not_before_s
        return facts.not_before_s + self._share * total_s - self._now_s()

    async def _rotate(self, subject: CertificateSubject) -> bool:
        """Requests and stores a certificate; whether that succeeded."""
        try:
            request = certificate_request(self._store.pending_key(), subject)
            async with (
                asyncio.timeout(_SIGNING_TIMEOUT_S),
                self._open_api(self.current is not None) as api,
            ):
                certificate = await issued_certificate(api, self._clock, request, self._signer)
            before = self._store.current()
            facts = self._store.update(certificate, request.key)
        except RequestRejectedError as error:
            self._store.forget_pending_key()
            self._report_error(str(error))
            return False
        except TimeoutError:
            self._report_error(f"{self._signer.name} has not signed the request for {_SIGNING_TIMEOUT_S:g} s")
            return False
        except HostError as error:
            self._report_error(str(error))
            return False
        if before is not None:
            self._counts.rotations.observe(self._now_s() - before.not_before_s)
        self.is_forced, self._last_error, self._share = False, "", self._next_share()
        self.has_certificate.set()
        end = Instant(round(facts.not_after_s) * 10**9).whole_second
        message = f"{self._signer.usage}: a certificate for {subject.common_name} is valid until {end}"
        self.record_event(RecordEvent(uid="", is_warning=False, reason="CertificateIssued", message=message))
        return True

    def _report_error(self, text: str) -> None:
        """Counts an error, and reports it once, until another one follows."""
        self._counts.renew_errors += 1
        if text != self._last_error:
            self._last_error = text
            message = f"{self._signer.usage}: {text}; it is tried again until it succeeds"
            self.record_event(
                RecordEvent(uid="", is_warning=True, reason="CertificateNotIssued", message=message)
            )

    def _now_s(self) -> float:
        return self._clock.now_ns() / 10**9

    def _next_share(self) -> float:
        return _LEAST_SHARE + _SHARE_SPREAD * random.random()
