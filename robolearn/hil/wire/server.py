"""The learner's door: gRPC with bytes, a token on every call, limits on every message.

A handler takes one message and returns one; what it raises becomes a status of gRPC. Calls are streams of a single
message, because only those show a message that gRPC itself has refused for its size.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import grpc

from robolearn.core import BadInput, RobolearnError
from robolearn.hil.wire.messages import SERVICE
from robolearn.hil.wire.refusals import Refusals
from robolearn.hil.wire.security import Address, Certificates, check_door

log = logging.getLogger(__name__)

THREADS = 16
MOST_CALLS = 64  # at one time; the rest are turned away by gRPC
HEADER = "authorization"


class Refused(RobolearnError):
    """A call that is not served.

    Attributes:
      status: of gRPC, which says what the caller can do about it.
      said: whether to log it.
    """

    def __init__(self, status: grpc.StatusCode, why: str, *, said: bool = True) -> None:
        super().__init__(why)
        self.status, self.said = status, said


@dataclass(frozen=True)
class Handler:
    """One method: bytes of at most `limit` → bytes."""

    call: Callable[[bytes], bytes]
    limit: int


class Door:
    """Listens at `address` until `close`.

    Args:
      handlers: by the method's name.
      token: every call has to bring it.
      certificates: own and the authority's; beyond loopback they are required, and the caller's are then, too.

    Raises:
      BadInput: an address beyond loopback without certificates, or one that is in use.
    """

    def __init__(
        self,
        address: Address,
        handlers: Mapping[str, Handler],
        token: str,
        certificates: Certificates | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        check_door(address, certificates)
        self.refusals = Refusals() if refusals is None else refusals
        self._handlers, self._header = dict(handlers), f"Bearer {token}".encode()
        most = max(handler.limit for handler in handlers.values())
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="hil-door")
        self._server = grpc.server(
            self._pool,
            maximum_concurrent_rpcs=MOST_CALLS,
            options=[
                ("grpc.max_receive_message_length", most),
                ("grpc.max_metadata_size", 8192),
                ("grpc.so_reuseport", 0),  # two learners at one port would share its calls
                ("grpc.keepalive_time_ms", 5000),
                ("grpc.keepalive_timeout_ms", 5000),
            ],
        )
        self._server.add_generic_rpc_handlers((_Methods(self),))
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

    def serve(self, name: str, messages: Iterator[bytes], context: Any) -> bytes:
        """One call of the method `name`."""
        handler = self._handlers[name]
        try:
            return handler.call(self._message(handler, messages, context))
        except Refused as refused:
            if refused.said:
                self.refusals(context.peer(), f"{name}: {refused}")
            context.abort(refused.status, str(refused)[:500])
        except BadInput as bad:
            self.refusals(context.peer(), f"{name}: {bad}")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(bad)[:500])
        raise AssertionError  # `abort` raises

    def _message(self, handler: Handler, messages: Iterator[bytes], context: Any) -> bytes:
        sent = dict(context.invocation_metadata()).get(HEADER, "")
        given = sent if isinstance(sent, bytes) else str(sent).encode()
        if not hmac.compare_digest(given, self._header):
            raise Refused(grpc.StatusCode.UNAUTHENTICATED, "another token, or none")
        try:
            message = next(messages)
        except StopIteration:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "no message") from None
        except grpc.RpcError:  # the caller is gone, or gRPC has refused the message for its length
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "no message, or one that is too long") from None
        if len(message) > handler.limit:
            why = f"{len(message)} bytes, at most {handler.limit} are taken"
            raise Refused(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        return message


class _Methods(grpc.GenericRpcHandler):
    """Names → methods, without a `.proto`."""

    def __init__(self, door: Door) -> None:
        self._door = door

    def service(self, handler_call_details: Any) -> Any:
        service, _, name = handler_call_details.method.lstrip("/").partition("/")
        if service != SERVICE or name not in self._door._handlers:
            self._door.refusals("a caller", f"method {handler_call_details.method!r}, which there is not")
            return None
        return grpc.stream_unary_rpc_method_handler(lambda messages, context: self._door.serve(name, messages, context))
