"""A gRPC client: one message there, one back; errors sorted by whether to try again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from robolearn.core import BadInput, RobolearnError
from robolearn.io.wire.protocol import Method, parse
from robolearn.io.wire.security import Address, Certificates, check_encryption
from robolearn.io.wire.server import HEADER

_AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


class LinkDown(RobolearnError):
    """The server cannot be reached, or has no time: try again."""


class SessionLost(RobolearnError):
    """The server was started anew: connect again."""


class Client:
    """Calls the server at `address`.

    Args:
      limit: no reply is longer [bytes].
      server: its name in messages.

    Raises:
      BadInput: an address beyond loopback without certificates: the token could be read on the way.
    """

    def __init__(
        self, address: Address, token: str, certificates: Certificates | None, limit: int, server: str = "the learner"
    ) -> None:
        check_encryption(address, certificates)
        self._server = server
        options = [
            ("grpc.max_receive_message_length", limit),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 1000),
            ("grpc.enable_http_proxy", 0),
        ]
        self._channel = (
            grpc.secure_channel(str(address), certificates.client(), options)
            if certificates
            else grpc.insecure_channel(str(address), options)
        )
        self._header = ((HEADER, f"Bearer {token}"),)
        self._calls: dict[str, Callable[..., Any]] = {}

    def call(self, method: Method, request: Any, timeout_s: float) -> Any:
        """The reply.

        Raises:
          LinkDown, SessionLost: see there.
          BadInput: the server refuses, and would do so again.
        """
        name = method.name
        if name not in self._calls:
            self._calls[name] = self._channel.stream_unary(method.path)
        try:
            reply = self._calls[name](iter((request.SerializeToString(),)), timeout=timeout_s, metadata=self._header)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()  # type: ignore[attr-defined]
            if code in _AGAIN:
                raise LinkDown(f"{name}: {code.name} ({details})") from None
            if code is grpc.StatusCode.ABORTED:
                raise SessionLost(f"{name}: {details}") from None
            raise BadInput(f"{self._server} refuses", got=details or code.name) from None
        except ValueError as error:  # the channel was closed by another thread
            raise LinkDown(f"{name}: {error}") from None
        return parse(method.reply, reply)

    def close(self) -> None:
        """May be called twice; calls that are running end with `LinkDown`."""
        self._channel.close()
