"""Optional API keys: who may ask. Kept are names and SHA-256 hashes, never a key; without any, everybody may ask.

A key is 256 random bits (`fillmask key NAME` makes one), so that a plain hash is as good as a slow one: nobody can guess what to
try. Who a caller is, is told by name to the access log and to the rate limit. What a caller may do is the same for all.
"""

import hashlib
import hmac
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from api.errors import respond_to
from api.refusals import BadApiKey, NoApiKey
from common.errors import RequestRefused, StartupError

log = logging.getLogger("fillmask.keys")

OPEN = frozenset(
    ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/health", "/metrics", "/v2/health/live", "/v2/health/ready")
)
"""What may be read without a key: the pages and what machines ask, none of which tells anything of a caller or a text."""

OPEN_BELOW = "/web/"

LOOK_EVERY_S = 1.0
"""A key that was added or taken away holds after so long, without a restart."""

_LINE = re.compile(r"(?P<name>[\w.-]{1,64}):(?P<sha256>[0-9a-fA-F]{64})")


class ApiKey(NamedTuple):
    """One of the keys that let a caller in. A name may have several, while one takes the other's place."""

    name: str
    sha256: bytes


def hashed(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def parse_keys(lines: Iterable[str], source: str) -> list[ApiKey]:
    """`name:sha256hex` a line; # begins a comment. Raises StartupError with the line's number, never with its text."""
    keys = []
    for number, line in enumerate(lines, 1):
        told = line.partition("#")[0].strip()
        match = _LINE.fullmatch(told)
        if match:
            keys.append(ApiKey(match["name"], bytes.fromhex(match["sha256"])))
        elif told:
            raise StartupError(f"{source}: line {number} is not name:sha256hex as `fillmask key NAME` prints it")
    return keys


class KeyRing:
    """The keys of variable and file together. The file is read again when it has changed."""

    def __init__(self, given: str, file: Path | None, clock: Callable[[], float] = time.monotonic) -> None:
        """Raises StartupError if the file cannot be read, or one of the two not understood."""
        self._given = parse_keys(given.replace(",", "\n").splitlines(), "api_keys")
        self._file = file
        self._clock = clock
        self._looked_at_s = clock()
        self._version: object = None
        self._keys = self._given
        if file:
            self._read(file)

    def name_of(self, key: bytes) -> str | None:
        """Whose key it is; None if nobody's. Takes as long whichever it is: all are compared, each in constant time."""
        self._look()
        presented, found = hashed(key), None
        for name, sha256 in self._keys:
            if hmac.compare_digest(sha256, presented):
                found = name
        return found

    def _look(self) -> None:
        """A file that went away or became unreadable changes nothing: who was let in still is, and the log tells."""
        if not self._file or self._clock() - self._looked_at_s < LOOK_EVERY_S:
            return
        self._looked_at_s = self._clock()
        try:
            self._read(self._file)
        except StartupError as error:
            log.error("%s; the keys that were read before still hold", error.message)

    def _read(self, file: Path) -> None:
        try:
            status = os.stat(file)
            version = (status.st_mtime_ns, status.st_ino, status.st_size)
            if version == self._version:
                return
            read = parse_keys(file.read_text(encoding="utf-8").splitlines(), str(file))
        except (OSError, UnicodeError) as error:
            raise StartupError(f"{file} cannot be read: {getattr(error, 'strerror', '') or 'no UTF-8'}") from None
        self._version, self._keys = version, [*self._given, *read]
        log.info("%d API keys", len(self._keys))
        if not self._keys:
            log.warning("%s holds no key: nobody is let in", file)


class ApiKeys:
    """Lets in who presents a key, as `Authorization: Bearer` or `X-API-Key`, and notes the name; refuses all others."""

    def __init__(self, app: ASGIApp, ring: KeyRing) -> None:
        self._app = app
        self._ring = ring

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope):
            await self._app(scope, receive, send)
            return
        try:
            scope["state"]["caller"] = self._name(Headers(scope=scope))
        except RequestRefused as error:
            scope["state"]["error_type"] = error.error_type
            response = respond_to(error)
            invalid = ', error="invalid_token"' if isinstance(error, BadApiKey) else ""
            response.headers["www-authenticate"] = f'Bearer realm="fillmask"{invalid}'  # RFC 6750, section 3
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _name(self, headers: Headers) -> str:
        key = presented_key(headers)
        if not key:
            raise NoApiKey("an API key is needed: send it as Authorization: Bearer KEY, or as X-API-Key: KEY")
        name = self._ring.name_of(key.encode("latin-1"))
        if name is None:
            raise BadApiKey("this API key is not known here, or not any more")
        return name


def presented_key(headers: Headers) -> str:
    """Empty if there is none. Another scheme of Authorization may be a proxy's own, and is no key."""
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")


def _is_open(scope: Scope) -> bool:
    path = scope["path"].removeprefix(scope.get("root_path", ""))
    return scope["method"] in ("GET", "HEAD") and (path in OPEN or path.startswith(OPEN_BELOW))
