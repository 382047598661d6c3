"""Files of web servers, as `-f https://...` names them."""

import base64
from http.client import HTTPException, HTTPMessage
from typing import IO, BinaryIO
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urljoin, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirects without credentials, but not from https to http; with credentials to the same origin only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """The next request; None: the answer counts as an error."""
        old, new = urlsplit(req.full_url), urlsplit(urljoin(req.full_url, newurl))
        is_downgrade = (old.scheme, new.scheme) == ("https", "http")
        if is_downgrade or (req.has_header("Authorization") and _origin(old) != _origin(new)):
            return None
        target = new._replace(netloc=new.netloc.rpartition("@")[2]).geturl()
        return super().redirect_request(req, fp, code, msg, headers, target)


def _origin(url: SplitResult) -> tuple[str, str, int]:
    return url.scheme, url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def open_url(url: str, timeout_s: float) -> BinaryIO:
    """The content of an http or https URL; user information is sent as a password, as kubectl does.

    Errors: OSError, whose text has no part of the URL.
    """
    try:
        parts = urlsplit(url)
        request = Request(parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl())  # noqa: S310 - as above
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_header("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")
        response: BinaryIO = build_opener(_SafeRedirects).open(request, timeout=timeout_s)
    except HTTPError as error:
        error.close()
        raise
    except (HTTPException, ValueError):
        raise OSError("the URL, or that of a proxy, is malformed, or the answer is not HTTP") from None
    return response
