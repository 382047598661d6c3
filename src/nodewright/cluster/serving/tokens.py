"""Reads bearer tokens from a file in the format of the API server's `--token-auth-file`, with an optional expiry."""

import csv
import hashlib
import hmac
import io
import os
import time
from pathlib import Path
from typing import NamedTuple

from nodewright.model.errors import Fault, InputError
from nodewright.model.values.instant import Instant, InstantError

MAX_BYTES = 1 << 20
CHECK_PERIOD_S = 1.0


class TokenOwner(NamedTuple):
    """The user of a token."""

    name: str
    uid: str
    groups: tuple[str, ...]
    expires: Instant | None = None
    """When the token expires; None: never."""


def read_tokens(content: bytes, source: str) -> dict[bytes, TokenOwner]:
    """The users by the SHA-256 of their token, from lines `token,user,uid[,"group,group"[,expiry]]`.

    Errors:  InputError with all faults; no fault contains a token.
    Follows: v1.36, apiserver/pkg/authentication/token/tokenfile/tokenfile.go, NewCSV: three columns at least, groups
        in the fourth, spaces around names are dropped.
    Departs: a duplicate token is an error, where the API server uses the last one; a fifth column is the time at
        which the token expires.
    """
    owners: dict[bytes, TokenOwner] = {}
    faults: list[Fault] = []
    try:
        rows = csv.reader(io.StringIO(content.decode("utf-8")), strict=True, skipinitialspace=True)
        for row in rows:
            line = f"line {rows.line_num}"
            if row and not (row[0].startswith("#") and len(row) == 1):
                _add_owner(owners, faults, row, (line, source))
    except (UnicodeDecodeError, csv.Error) as error:
        faults.append(Fault(rule=f"not valid CSV: {error}", source=source))
    if faults:
        raise InputError(faults)
    return owners


def _add_owner(
    owners: dict[bytes, TokenOwner], faults: list[Fault], row: list[str], place: tuple[str, str]
) -> None:
    line, source = place
    token, *columns = (column.strip() for column in row)
    if len(columns) < 2 or len(columns) > 4:
        rule = f"expected token,user,uid and optionally groups and an expiry, not {len(columns) + 1} columns"
        faults.append(Fault(path=line, rule=rule, source=source))
        return
    if not token or not columns[0]:
        column = "user" if token else "token"
        faults.append(Fault(path=line, rule=f"the {column} is empty", source=source))
        return
    expires = None
    if len(columns) > 3 and columns[3]:
        try:
            expires = Instant.parse(columns[3])
        except InstantError as error:
            faults.append(Fault(path=line, value=columns[3], rule=str(error), source=source))
            return
    groups = tuple(group for text in columns[2:3] for group in map(str.strip, text.split(",")) if group)
    digest = hashlib.sha256(token.encode()).digest()
    if digest in owners:
        faults.append(Fault(path=line, rule="this token is a duplicate of another line's", source=source))
        return
    owners[digest] = TokenOwner(columns[0], columns[1], groups, expires)


class TokenFile:
    """A token file, read again when it changes. While it cannot be read, no token is valid."""

    def __init__(self, path: Path) -> None:
        """Reads the file.

        Errors: InputError if it cannot be read.
        """
        self.path = path
        self.error: str = ""
        """Why the file cannot be read now; empty if it can."""
        self._checked_s = time.monotonic()
        self._stamp = self._stamp_now()
        self._owners = self._read()

    def owner(self, token: str, now: Instant) -> TokenOwner | None:
        """The user of a token; None if the token is unknown or has expired.

        Compares all tokens in constant time, so that the duration reveals nothing about them.
        """
        self._reload_if_changed()
        digest, match = hashlib.sha256(token.encode()).digest(), None
        for known_digest, owner in self._owners.items():
            if hmac.compare_digest(known_digest, digest):
                match = owner
        if match is None or (match.expires is not None and match.expires <= now):
            return None
        return match

    def has_expired(self, token: str, now: Instant) -> bool:
        """Whether the token is known and has expired."""
        owner = self._owners.get(hashlib.sha256(token.encode()).digest())
        return owner is not None and owner.expires is not None and owner.expires <= now

    def _reload_if_changed(self) -> None:
        now_s = time.monotonic()
        if now_s - self._checked_s < CHECK_PERIOD_S:
            return
        self._checked_s = now_s
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._owners, self.error = self._read(), ""
        except InputError as error:
            self._owners, self.error = {}, str(error)

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> dict[bytes, TokenOwner]:
        source = os.fspath(self.path)
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_BYTES + 1)
        except OSError as error:
            rule = f"the token file cannot be read: {error.strerror or error}"
            raise InputError([Fault(rule=rule, source=source)]) from None
        if len(content) > MAX_BYTES:
            raise InputError([Fault(rule=f"the file is larger than {MAX_BYTES} bytes", source=source)])
        return read_tokens(content, source)
