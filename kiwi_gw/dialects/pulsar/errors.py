"""Answer requests that cannot be served: with a code of five digits, of which the first three are
the status of HTTP (document 003), and words."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from kiwi_gw.dialect_api.http import HttpFailure, HttpResponse
from kiwi_gw.errors import KiwiError
from kiwi_gw.struct_errors import sentence

JSON: Final = "application/json"

T = TypeVar("T", bound=msgspec.Struct)


class PulsarCode(enum.IntEnum):
    """Name what is wrong."""

    ELSEWHERE = 30701
    MALFORMED = 40001
    UNAUTHENTICATED = 40101
    FORBIDDEN = 40301
    PATH = 40400
    TOPIC = 40401
    PARTITION = 40402
    METHOD = 40501
    TIMEOUT = 40801
    TOO_LARGE = 41301
    MEDIA_TYPE = 41501
    NO_KEY_VALUE_SCHEMA = 42201
    NO_VALUE_SCHEMA = 42202
    KEY_SCHEMA = 42203
    INCOMPATIBLE = 42203
    VALUE_SCHEMA = 42204
    MESSAGES = 42205
    NOT_IN_KAFKA = 42206
    CONSUMER = 40403
    SUBSCRIPTION = 40404
    IN_USE = 40901
    CONSUMER_EXISTS = 40902
    HAS_CONSUMERS = 40903
    GONE = 40904
    MOVED = 40905
    LIMIT = 42901
    UNAVAILABLE = 50301
    STOPPING = 50303


_OF_STATUS: Final[Mapping[int, PulsarCode]] = {
    400: PulsarCode.MALFORMED,
    401: PulsarCode.UNAUTHENTICATED,
    403: PulsarCode.FORBIDDEN,
    404: PulsarCode.PATH,
    405: PulsarCode.METHOD,
    408: PulsarCode.TIMEOUT,
    413: PulsarCode.TOO_LARGE,
    415: PulsarCode.MEDIA_TYPE,
    429: PulsarCode.LIMIT,
    503: PulsarCode.UNAVAILABLE,
}
_SOON: Final = (("Retry-After", "1"),)
_CHALLENGE: Final = (("WWW-Authenticate", "Bearer"),)


class PulsarError(KiwiError):
    """A request that is answered with an error. more: members beside the code and the message. allow: the
    methods that the path takes, for METHOD. location: where to ask instead, for ELSEWHERE."""

    def __init__(
        self,
        code: PulsarCode,
        message: str,
        more: Mapping[str, object] | None = None,
        *,
        allow: str = "",
        location: str = "",
    ) -> None:
        super().__init__(message)
        self.code, self.more, self.allow, self.location = code, more or {}, allow, location

    @property
    def status(self) -> int:
        """Return that of HTTP."""
        return self.code // 100

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Return those that the status wants."""
        if self.status in (429, 503):
            return _SOON
        if self.status == 401:
            return _CHALLENGE
        if self.location:
            return (("Location", self.location),)
        return (("Allow", self.allow),) if self.allow else ()

    @property
    def response(self) -> HttpResponse:
        """Return the answer."""
        said = {"error_code": int(self.code), "message": str(self), **self.more}
        return HttpResponse(self.status, msgspec.json.encode(said) + b"\n", JSON, self.headers)

    @property
    def broker_response(self) -> HttpResponse:
        """Return the answer as Pulsar's brokers give it."""
        return _reason(self.status, str(self), self.headers)


def page(failure: HttpFailure) -> HttpResponse:
    """Answer what the gateway has refused itself."""
    status = _status(failure)
    code = int(_OF_STATUS.get(status, status * 100))
    if failure.stopping:
        code = int(PulsarCode.STOPPING)
    said = {"error_code": code, "message": failure.message}
    return HttpResponse(status, msgspec.json.encode(said) + b"\n", JSON)


def broker_page(failure: HttpFailure) -> HttpResponse:
    """Answer the same as Pulsar's brokers do."""
    return _reason(_status(failure), failure.message)


def _status(failure: HttpFailure) -> int:
    """Return 400 for a version of HTTP or a coding that is not spoken: nothing is 5xx that a client alone can
    cause."""
    return 400 if failure.status in (501, 505) else failure.status


def _reason(status: int, words: str, headers: tuple[tuple[str, str], ...] = ()) -> HttpResponse:
    return HttpResponse(status, msgspec.json.encode({"reason": words}) + b"\n", JSON, headers)


def read_body(body: bytes, kind: type[T], code: PulsarCode = PulsarCode.MALFORMED) -> T:
    """Read the body of a request. code: of one that is JSON and not as it must be. Raises PulsarError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        raise PulsarError(code, sentence(error, kind)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise PulsarError(PulsarCode.MALFORMED, "the body is not JSON") from None
