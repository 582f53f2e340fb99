"""Settings of the client of a served reward model: ``--reward serve:HOST:PORT``. No import of torch or gRPC."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Self

from robolearn.core import BadInput, Interface, RewardModel
from robolearn.io.paths import user_cache
from robolearn.rewards.config import RewardConfig, options_of

TOKEN_VARIABLE = "ROBOLEARN_REWARD_TOKEN"
TIMEOUT_S = 30.0


def token_file() -> Path:
    """The token of this user's reward servers on this machine: only the user can read it."""
    return user_cache() / "reward.token"


@dataclass(frozen=True)
class ServedReward(RewardConfig):
    """A model that ``robolearn reward serve`` has loaded, here or on another machine.

    Attributes:
      address: HOST:PORT.
      timeout_s: after which a score is withheld, waiting for other callers included.
      certs: a folder of ``robolearn hil certs``; needed beyond loopback.
    """

    name = "serve"
    usage = "serve:<host>:<port>"
    address: str
    timeout_s: float = TIMEOUT_S
    certs: Path | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.timeout_s <= 86400.0:
            raise BadInput("serve: timeout_s", got=self.timeout_s, expected="seconds, more than 0")

    @classmethod
    def of(cls, text: str) -> Self | None:
        return options_of(cls, text, "address")

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel:
        return resolve_name("robolearn.rewards.serving.client:ServedRewardModel")(self, interface)  # which needs gRPC
