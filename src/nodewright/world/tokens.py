"""Bearer tokens in a file, as the API server's `--token-auth-file` has them; ours may say until when one is good."""

import csv
import hashlib
import hmac
import io
import os
import time
from pathlib import Path
from typing import NamedTuple

from nodewright.values.instant import Instant, InstantError
from nodewright.world.errors import Fault, InputError

MOST_BYTES = 1 << 20
LOOK_EVERY_S = 1.0


class TokenOwner(NamedTuple):
    """Whose a token is."""

    name: str
    uid: str
    groups: tuple[str, ...]
    expires: Instant | None = None
    """From when on it is nobody's; None: never."""


def read_tokens(content: bytes, source: str) -> dict[bytes, TokenOwner]:
    """The owners of tokens by the SHA-256 of the token: `token,user,uid[,"group,group"[,expiry]]`, a line each.

    Errors:  InputError with all faults; no fault names a token.
    Follows: v1.36, apiserver/pkg/authentication/token/tokenfile/tokenfile.go, NewCSV: three columns at least, groups
        in the fourth, spaces around names are dropped.
    Departs: a token that is there twice is an error, where the API server takes the last; a fifth column says until
        when the token is good.
    """
    found: dict[bytes, TokenOwner] = {}
    faults: list[Fault] = []
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8")), strict=True, skipinitialspace=True)
        for row in rows:
            where = f"line {rows.line_num}"
            if row and not (row[0].startswith("#") and len(row) == 1):
                _add(found, faults, row, (where, source))
    except (UnicodeDecodeError, csv.Error) as error:
        faults.append(Fault(rule=f"rows of comma-separated values are wanted: {error}", source=source))
    if faults:
        raise InputError(faults)
    return found


def _add(found: dict[bytes, TokenOwner], faults: list[Fault], row: list[str], place: tuple[str, str]) -> None:
    where, source = place
    token, *columns = (one.strip() for one in row)
    if len(columns) < 2 or len(columns) > 4:
        rule = f"token,user,uid, then groups and an expiry if there are any: not {len(columns) + 1} columns"
        faults.append(Fault(path=where, rule=rule, source=source))
        return
    if not token or not columns[0]:
        what = "user" if token else "token"
        faults.append(Fault(path=where, rule=f"the {what} is empty", source=source))
        return
    expires = None
    if len(columns) > 3 and columns[3]:
        try:
            expires = Instant.parse(columns[3])
        except InstantError as error:
            faults.append(Fault(path=where, value=columns[3], rule=str(error), source=source))
            return
    groups = tuple(one for each in columns[2:3] for one in map(str.strip, each.split(",")) if one)
    digest = hashlib.sha256(token.encode()).digest()
    if digest in found:
        faults.append(Fault(path=where, rule="this token is another line's already", source=source))
        return
    found[digest] = TokenOwner(columns[0], columns[1], groups, expires)


class TokenFile:
    """A file of tokens, read again when it has changed. One that cannot be read lets nobody in until it is mended."""

    def __init__(self, path: Path) -> None:
        """Errors: InputError where it cannot be read at first."""
        self.path = path
        self.trouble: str = ""
        """What is wrong with the file now; empty: nothing is."""
        self._looked_s = time.monotonic()
        self._stamp = self._stamp_now()
        self._owners = self._read()

    def owner(self, token: str, now: Instant) -> TokenOwner | None:
        """Whose token it is; None: nobody's.

        All tokens are compared, each in the same time, so that how long it takes tells nothing of them.
        """
        self._look()
        digest, found = hashlib.sha256(token.encode()).digest(), None
        for one, owner in self._owners.items():
            if hmac.compare_digest(one, digest):
                found = owner
        if found is None or (found.expires is not None and found.expires <= now):
            return None
        return found

    def has_expired(self, token: str, now: Instant) -> bool:
        """Whether it was somebody's, and is too old."""
        owner = self._owners.get(hashlib.sha256(token.encode()).digest())
        return owner is not None and owner.expires is not None and owner.expires <= now

    def _look(self) -> None:
        now_s = time.monotonic()
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._owners, self.trouble = self._read(), ""
        except InputError as error:
            self._owners, self.trouble = {}, str(error)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _read(self) -> dict[bytes, TokenOwner]:
        source = os.fspath(self.path)
        try:
            with self.path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        except OSError as error:
            rule = f"a file of tokens is wanted: {error.strerror or error}"
            raise InputError([Fault(rule=rule, source=source)]) from None
        if len(content) > MOST_BYTES:
            raise InputError([Fault(rule=f"it is larger than {MOST_BYTES} bytes", source=source)])
        return read_tokens(content, source)
