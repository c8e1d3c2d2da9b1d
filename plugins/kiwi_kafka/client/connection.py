"""One connection to a broker, on a stream of Trio's: TLS, SASL, and one question after the other.

aiokafka knows the requests and the steps of SASL; its own connections are asyncio's. A broker answers the
requests of a connection in their order, so nothing is gained by asking the next one before.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import trio
from aiokafka import errors as kafka_errors
from aiokafka.conn import SaslPlainAuthenticator, ScramAuthenticator

from kiwi_kafka.client.errors import deadline, readable, unreachable
from kiwi_kafka.client.options import ConnectionOptions
from kiwi_kafka.client.requests import (
    ApiVersionRequest,
    Request,
    SaslAuthenticateRequest,
    SaslHandShakeRequest,
)
from kiwi_kafka.ports import UnreachableError

_RECEIVE: Final = 65_536
_LARGEST: Final = 1 << 28
"""No answer is so large: the other end speaks another protocol, TLS or HTTP."""
_MOST_ITERATIONS: Final = 1_000_000
"""Of SCRAM: a broker must not have us count for minutes."""
_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">ihhih")
"""Size of what follows, and a request header of version 1: API, its version, correlation id, length of the
client's name, which follows."""


class PlainStream:
    """Speak TCP without TLS. Unlike with Trio's own stream, what can be sent at once costs no round of the
    event loop: at everyday rates rounds are most of what reading costs."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._socket = sock

    async def send_all(self, data: bytes) -> None:
        """Send it; OSError if that fails. A checkpoint only if it cannot be sent at once."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(self._socket)

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive what comes next. Returns how many bytes, 0 at the end; OSError if that fails."""
        while True:
            await trio.lowlevel.wait_readable(self._socket)
            try:
                return self._socket.recv_into(buffer)
            except BlockingIOError:
                continue

    def close(self) -> None:
        """Close it at once."""
        if self._socket.fileno() >= 0:
            trio.lowlevel.notify_closing(self._socket)
            self._socket.close()


class TlsStream:
    """Speak TLS."""

    def __init__(self, tcp: trio.SocketStream, context: ssl.SSLContext, host: str) -> None:
        self._socket = tcp.socket
        self._stream = trio.SSLStream(tcp, context, server_hostname=host)
        self.do_handshake = self._stream.do_handshake
        self.send_all = self._stream.send_all

    async def receive_into(self, buffer: memoryview) -> int:
        """Receive what comes next. Returns how many bytes, 0 at the end."""
        data = await self._stream.receive_some(min(len(buffer), _RECEIVE))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close it at once. A broker wants no farewell."""
        self._socket.close()


class BrokerConnection:
    """Speak over a stream that is connected. Whatever fails, or is cancelled half-way, closes it.

    versions: of each API the first and the last that the broker speaks; filled by `open_connection`.
    """

    def __init__(self, stream: PlainStream | TlsStream, client_id: str) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        self.is_open = True
        self.on_progress: Callable[[], None] = lambda: None
        self._stream = stream
        self._client_id = client_id
        self._client = client_id.encode()
        self._correlation_id = 0
        self._buffer = memoryview(bytearray(_RECEIVE))

    async def ask(self, request: Request[Any]) -> Any:
        """Return the broker's answer. UnreachableError: there is none. IncompatibleBrokerVersion (a
        KafkaError): the broker does not know such requests."""
        try:
            prepared = request.prepare(self.versions)
        except NotImplementedError:
            name, versions = type(request).__name__, self.versions[request.API_KEY]
            text = f"the broker speaks versions {versions[0]} to {versions[1]} of {name}, and we do not"
            raise kafka_errors.IncompatibleBrokerVersion(text) from None
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = prepared.build_request_header(self._correlation_id, self._client_id)
        message = header.encode() + prepared.encode()
        answer = BytesIO(await self._exchange(_SIZE.pack(len(message)) + message))
        try:
            with readable():
                got = prepared.parse_response_header(answer).correlation_id
                decoded = prepared.RESPONSE_TYPE.decode(answer)
        except UnreachableError:
            self.close()
            raise
        self._check(got)
        return decoded

    async def exchange(self, api: int, version: int, body: bytes) -> memoryview:
        """Return the body of the answer to a request whose header is of version 1, good until the next one is
        made. UnreachableError: there is none."""
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        size = _HEAD.size - _SIZE.size + len(self._client) + len(body)
        head = _HEAD.pack(size, api, version, self._correlation_id, len(self._client))
        answer = await self._exchange(head + self._client + body)
        if len(answer) < _SIZE.size:
            self.close()
            raise UnreachableError("an answer has no header")
        self._check(_SIZE.unpack_from(answer)[0])
        return answer[_SIZE.size :]

    def close(self) -> None:
        """Close it at once."""
        self.is_open = False
        self._stream.close()

    def _check(self, correlation_id: int) -> None:
        if correlation_id != self._correlation_id:
            self.close()
            raise UnreachableError(f"answer {correlation_id} came for request {self._correlation_id}")

    async def _exchange(self, message: bytes) -> memoryview:
        if not self.is_open:
            raise UnreachableError("the connection is closed")
        try:
            with unreachable():
                await self._stream.send_all(message)
                return await self._receive()
        except BaseException:
            self.close()
            raise

    async def _receive(self) -> memoryview:
        """Receive one answer, without its size."""
        first = self._buffer
        got = await self._more(first)
        while got < _SIZE.size:
            got += await self._more(first[got:])
        size = _SIZE.unpack_from(first)[0]
        if not 0 <= size <= _LARGEST:
            raise UnreachableError("the other end does not speak Kafka's protocol")
        whole = first
        size += _SIZE.size
        if size > len(first):
            whole = memoryview(bytearray(size))
            whole[:got] = first[:got]
        while got < size:
            self.on_progress()
            got += await self._more(whole[got:size])
        if got > size:
            raise UnreachableError("more came than was asked for")
        return whole[_SIZE.size : size]

    async def _more(self, buffer: memoryview) -> int:
        got = await self._stream.receive_into(buffer)
        if not got:
            raise UnreachableError("the broker closed the connection")
        return got


async def open_connection(host: str, port: int, options: ConnectionOptions) -> BrokerConnection:
    """Connect to a broker and log in. UnreachableError if it takes longer than `options.timeout`, and why
    else."""
    within = options.timeout
    with deadline(within, f"{host}:{port} did not answer within {within:g} s"):
        stream = await _connected(host, port, options.tls)
        connection = BrokerConnection(stream, options.client_id)
        try:
            if isinstance(stream, TlsStream):
                await stream.do_handshake()
            answer = await connection.ask(ApiVersionRequest())
            with readable():
                connection.versions = {api: (first, last) for api, first, last in answer.api_versions}
            if options.mechanism is not None:
                await _log_in(connection, options)
        except BaseException:
            connection.close()
            raise
    return connection


async def _connected(host: str, port: int, tls: ssl.SSLContext | None) -> PlainStream | TlsStream:
    try:
        tcp = await trio.open_tcp_stream(host, port)
        try:
            if tls is not None:
                return TlsStream(tcp, tls, host)
        except BaseException:
            tcp.socket.close()
            raise
    except (ValueError, TypeError) as error:  # a broker may say so of itself
        raise UnreachableError(f"{host!r} is no name of a host: {error}") from error
    return PlainStream(socket.socket(fileno=tcp.socket.detach()))


async def _log_in(connection: BrokerConnection, options: ConnectionOptions) -> None:
    mechanism, name, password = options.mechanism, options.username, options.password
    answer = await connection.ask(SaslHandShakeRequest(mechanism))
    if answer.error_code:
        known = ", ".join(answer.enabled_mechanisms)
        raise UnreachableError(f"the broker does not take {mechanism}; it takes: {known}")
    user = {"loop": None, "sasl_plain_username": name, "sasl_plain_password": password}
    if mechanism == "PLAIN":
        authenticator: Any = SaslPlainAuthenticator(**user)
    else:
        authenticator = ScramAuthenticator(sasl_mechanism=mechanism, **user)
    token: bytes | None = None
    while True:
        with readable():
            if mechanism != "PLAIN" and token is not None:
                _check_iterations(token.decode())
            # SCRAM derives a key, which takes some milliseconds.
            step = await trio.to_thread.run_sync(authenticator._step, token)
        if step is None:
            return
        answer = await connection.ask(SaslAuthenticateRequest(step[0]))
        if answer.error_code:
            error = kafka_errors.for_code(answer.error_code)
            raise UnreachableError(answer.error_message or error.description)
        token = answer.sasl_auth_bytes


def _check_iterations(said: str) -> None:
    """Refuse too many, as aiokafka reads them of what the broker says (RFC 5802, 5.1)."""
    attributes = dict(pair.split("=", 1) for pair in said.split(","))
    if int(attributes.get("i", 0)) > _MOST_ITERATIONS:
        raise UnreachableError(f"the broker wants more than {_MOST_ITERATIONS:,} iterations of SCRAM")
