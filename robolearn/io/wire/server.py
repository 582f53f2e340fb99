"""A gRPC server: a token on every call, a limit on every message, refusals logged now and then.

A handler takes one message and returns one; what it raises becomes a status of gRPC. Calls are streams of a single
message, because only those show a message that gRPC itself has refused for its size.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc

from robolearn.core import BadInput, RobolearnError
from robolearn.io.wire.protocol import SHORT, Method, parse
from robolearn.io.wire.security import Address, Certificates, check_encryption

log = logging.getLogger(__name__)

THREADS = 16
MOST_CALLS = 64  # at one time; the rest are turned away by gRPC
HEADER = "authorization"
REFUSALS_S = 10.0
_FAILED = re.compile(rb"Handshake failed.*?:([A-Z_]{4,})\b(?!.*:[A-Z_]{4,}\b)")


class CallRefused(RobolearnError):
    """A call that is not served.

    Attributes:
      status: of gRPC: whether the caller should try again, connect again or give up.
      logged: whether to log it.
    """

    def __init__(self, status: grpc.StatusCode, why: str, *, logged: bool = True) -> None:
        super().__init__(why)
        self.status, self.logged = status, logged


class Refusals:
    """Logs refusals, at most one line in `every_s`; the next one says how many came in between.

    Attributes:
      count: all of them.
    """

    def __init__(self, every_s: float = REFUSALS_S) -> None:
        self._every_s, self._lock = every_s, threading.Lock()
        self._last, self._silent = -float("inf"), 0
        self.count = 0

    def __call__(self, who: str, why: str) -> None:
        """Note that `who` was refused, and `why`, which may contain text of the caller."""
        with self._lock:
            self.count += 1
            now = time.monotonic()
            if now - self._last < self._every_s:
                self._silent += 1
                return
            more = f" ({self._silent} more since the last line)" if self._silent else ""
            self._last, self._silent = now, 0
        line = "".join(c if c.isprintable() else "?" for c in f"{who}: {why}"[:400])
        log.warning("refused %s%s", line, more)


@dataclass(frozen=True)
class Handler:
    """A method: message → message; requests have at most `limit` bytes."""

    method: Method
    call: Callable[[Any], Any]
    limit: int = SHORT


class GrpcServer:
    """Listens at `address` until `close`.

    Args:
      token: every call has to bring it.
      certificates: own and the authority's; beyond loopback they are required, and then the caller's are, too.

    Raises:
      BadInput: an address beyond loopback without certificates, or one that is in use.
    """

    def __init__(
        self,
        address: Address,
        handlers: Sequence[Handler],
        token: str,
        certificates: Certificates | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        check_encryption(address, certificates)
        self.refusals = Refusals() if refusals is None else refusals
        self._header = f"Bearer {token}".encode()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="grpc-server")
        self._server = grpc.server(
            self._pool,
            maximum_concurrent_rpcs=MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", max(handler.limit for handler in handlers)),
                ("grpc.max_metadata_size", 8192),
                ("grpc.so_reuseport", 0),  # two servers at one port would share its calls
                ("grpc.keepalive_time_ms", 5000),
                ("grpc.keepalive_timeout_ms", 5000),
            ],
        )
        self._server.add_generic_rpc_handlers((_Methods(handlers, self._serve, self.refusals),))
        try:
            port = (
                self._server.add_secure_port(str(address), certificates.server())
                if certificates
                else self._server.add_insecure_port(str(address))
            )
        except RuntimeError:
            port = 0
        if not port:
            raise BadInput("--listen", got=str(address), expected="an address of this machine that is free")
        self.address = Address(address.host, port)
        self._server.start()

    def close(self, grace_s: float = 0.5) -> None:
        """Let running calls end, for so long, then stop. May be called twice."""
        self._server.stop(grace_s).wait()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _serve(self, handler: Handler, contents: Iterator[bytes], context: Any) -> bytes:
        name = handler.method.name
        try:
            request = parse(handler.method.request, self._receive(handler, contents, context))
            return handler.call(request).SerializeToString()
        except CallRefused as refused:
            if refused.logged:
                self.refusals(context.peer(), f"{name}: {refused}")
            context.abort(refused.status, str(refused)[:500])
        except BadInput as bad:
            self.refusals(context.peer(), f"{name}: {bad}")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(bad)[:500])
        raise AssertionError  # `abort` raises

    def _receive(self, handler: Handler, contents: Iterator[bytes], context: Any) -> bytes:
        sent = dict(context.invocation_metadata()).get(HEADER, "")
        given = sent if isinstance(sent, bytes) else str(sent).encode()
        if not hmac.compare_digest(given, self._header):
            raise CallRefused(grpc.StatusCode.UNAUTHENTICATED, "another token, or none")
        try:
            content = next(contents)
        except StopIteration:
            raise CallRefused(grpc.StatusCode.INVALID_ARGUMENT, "no message") from None
        except grpc.RpcError:  # the caller is gone, or gRPC has refused the message for its length
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, "no message, or one that is too long") from None
        if len(content) > handler.limit:
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{len(content)} bytes, at most {handler.limit}")
        return content


class _Methods(grpc.GenericRpcHandler):
    """Methods by name; calls of others are logged."""

    def __init__(self, handlers: Sequence[Handler], serve: Callable[..., bytes], refusals: Refusals) -> None:
        self._handlers = {handler.method.path: handler for handler in handlers}
        self._serve, self._refusals = serve, refusals

    def service(self, handler_call_details: Any) -> Any:
        handler = self._handlers.get(handler_call_details.method)
        if handler is None:
            self._refusals("a caller", f"method {handler_call_details.method!r}, which there is not")
            return None
        return grpc.stream_unary_rpc_method_handler(lambda contents, context: self._serve(handler, contents, context))


@contextmanager
def handshake_refusals(refuse: Callable[[str, str], None]) -> Iterator[None]:
    """Within, failed TLS handshakes are handed to `refuse` (who, why) instead of being written to stderr.

    gRPC's C core writes a line for each to the process's stderr, and no call of Python is reached: that line is the
    only sign of a caller who speaks plain text at a TLS port, or has no certificate. All other lines pass.
    """
    reading, writing = os.pipe()
    stderr = os.dup(2)
    os.dup2(writing, 2)
    os.close(writing)
    reader = threading.Thread(target=_filter, args=(reading, stderr, refuse), name="grpc-stderr", daemon=True)
    reader.start()
    try:
        yield
    finally:
        os.dup2(stderr, 2)  # the last end of the pipe to write to: the reader comes to its end
        reader.join(1.0)
        os.close(stderr)


def _filter(reading: int, stderr: int, refuse: Callable[[str, str], None]) -> None:
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            failed = _FAILED.search(line)
            if failed is None:
                os.write(stderr, line)
            else:
                refuse("a caller", f"TLS: {failed[1].decode().lower().replace('_', ' ')}")
