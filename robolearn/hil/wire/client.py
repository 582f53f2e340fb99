"""The actor's side of the wire: one message there, one back; errors sorted by what can be done about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from robolearn.core import BadInput, RobolearnError
from robolearn.hil.wire.messages import SERVICE
from robolearn.hil.wire.security import Address, Certificates, check_door
from robolearn.hil.wire.server import HEADER

_AGAIN = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}
_BUSY = grpc.StatusCode.UNAVAILABLE


class LinkDown(RobolearnError):
    """The learner cannot be reached, or has no time: try again."""


class SessionLost(RobolearnError):
    """The learner was started anew: connect again."""


class Client:
    """Calls the learner at `address`.

    Args:
      limit: no answer is longer [bytes].

    Raises:
      BadInput: an address beyond loopback without certificates: the token would be read on the way.
    """

    def __init__(self, address: Address, token: str, certificates: Certificates | None, limit: int) -> None:
        check_door(address, certificates)
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
        self._methods: dict[str, Callable[..., Any]] = {}

    def call(self, method: str, message: bytes, timeout_s: float) -> bytes:
        """The answer.

        Raises:
          LinkDown, SessionLost: see there.
          BadInput: the learner refuses, and would do so again.
        """
        if method not in self._methods:
            self._methods[method] = self._channel.stream_unary(f"/{SERVICE}/{method}")
        try:
            return self._methods[method](iter((message,)), timeout=timeout_s, metadata=self._header)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()  # type: ignore[attr-defined]
            if code in _AGAIN:
                raise LinkDown(f"{method}: {code.name} ({details})") from None
            if code is grpc.StatusCode.ABORTED:
                raise SessionLost(f"{method}: {details}") from None
            raise BadInput("the learner refuses", got=details or code.name) from None
        except ValueError as error:  # the channel was closed beside us
            raise LinkDown(f"{method}: {error}") from None

    def close(self) -> None:
        """May be called twice; calls that are running end with `LinkDown`."""
        self._channel.close()
