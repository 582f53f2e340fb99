"""A reward model that another process has loaded, as a `RewardModel`.

A server that cannot be reached, is too slow, has loaded another model since, or answers what is no score, withholds
(`RewardWithheld`); the next call asks it again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from robolearn.core import BadInput, Interface, RewardWithheld, Score, Window
from robolearn.io.wire.client import Client, LinkDown
from robolearn.io.wire.protocol import Method
from robolearn.io.wire.security import Address, Certificates, find_token
from robolearn.rewards.serving.messages import (
    DESCRIBE,
    PROTOCOL,
    SCORE,
    SCORE_LIMIT,
    pack_windows,
    unpack_scores,
)
from robolearn.rewards.serving.settings import TOKEN_VARIABLE, ServedReward, token_file

RETRY_S = 0.2


class ServedRewardModel:
    """See the module.

    Attributes:
      model: its text at the server.
      reads: the features that it reads; empty for all.
      sees_images, needs_prompt, is_privileged: see `robolearn.rewards.config.RewardConfig`.
      frame_by_frame: it judges each frame beside the first one alone.

    Raises:
      BadInput: no server there in time, no token, or the interface does not suit its model.
    """

    def __init__(self, config: ServedReward, interface: Interface) -> None:
        self._what, self._timeout_s = f"serve:{config.address}", config.timeout_s
        address = Address.parse(config.address, "serve")
        certificates = Certificates(config.certs) if config.certs else None
        token = find_token("", certificates, TOKEN_VARIABLE)
        if token is None and address.is_loopback and token_file().exists():
            token = token_file().read_text().strip()
        if token is None:
            raise BadInput(self._what, got="no token", expected=f"{TOKEN_VARIABLE}, or the server's own in certs/token")
        self._client = Client(address, token, certificates, SCORE_LIMIT, "the reward server")
        self._identity = ""
        try:
            described = self._describe(interface)
        except RewardWithheld as why:
            self._client.close()
            raise BadInput(self._what, got=str(why), expected="robolearn reward serve") from None
        self._identity, self.model = described.identity, described.model
        self.reads = tuple(described.features)
        self.sees_images, self.needs_prompt = described.sees_images, described.needs_prompt
        self.is_privileged, self.frame_by_frame = described.is_privileged, described.frame_by_frame

    def identity(self) -> str:
        """That of the model at the server."""
        return self._identity

    def check(self, interface: Interface) -> None:
        """Raise `BadInput` where the model does not suit `interface`."""
        self._describe(interface)

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """See `robolearn.core.RewardModel`.

        Raises:
          BadInput: the model refuses these windows, or these words.
          RewardWithheld: see the module.
        """
        if not windows:
            return []
        content = pack_windows(windows, self.reads)
        request = SCORE.request(
            identity=self._identity, wait_s=self._timeout_s, prompts=list(prompts), windows=content
        )  # fmt: skip
        try:
            reply = self._call(SCORE, request)
            if reply.refused:
                raise _Refused(reply.refused)
            if reply.withheld:
                raise RewardWithheld(f"{self._what}: {reply.withheld}")
            return unpack_scores(reply.scores, windows)
        except _Refused as refused:
            raise BadInput(f"{self._what}: {refused}") from None
        except BadInput as bad:
            raise RewardWithheld(f"{self._what}: {bad}") from None

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _describe(self, interface: Interface) -> Any:
        text = json.dumps(interface.to_json(), sort_keys=True)
        return self._call(DESCRIBE, DESCRIBE.request(protocol=PROTOCOL, interface=text))

    def _call(self, method: Method, request: Any) -> Any:
        """The reply; a server that is away is asked again until the time is over."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            left = deadline - time.monotonic()
            try:
                return self._client.call(method, request, max(left, 0.001))
            except LinkDown as down:
                if deadline - time.monotonic() <= RETRY_S:
                    raise RewardWithheld(f"{self._what}: nothing within {self._timeout_s:g} s ({down})") from None
                time.sleep(RETRY_S)


class _Refused(Exception):
    """Why the model takes no windows like these."""
