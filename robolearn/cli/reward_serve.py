"""``robolearn reward serve``: one reward model, loaded once, for several processes and machines."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.cli.reward import FORMER
from robolearn.core.machine import resolve_device
from robolearn.rewards.serving.settings import TOKEN_VARIABLE, token_file
from robolearn.runs.command import Command

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RewardServe(Command):
    """Load a reward model once and score for others, which name it by --reward serve:HOST:PORT. Ends with Ctrl-C.

    Example: robolearn reward serve --reward robometer:models/robometer-4b,camera=front --data data/lift
    """

    former = FORMER

    reward: str
    """A run or a checkpoint folder of robolearn reward train, a vision-language model (robometer:, topreward:,
    roboreward:, vlac: or gvl:<model>), <module>:<Class>, or what a plug-in adds."""
    data: str
    """A LeRobotDataset v3.0 folder with episodes like those that are to be scored: their cameras and actions."""
    listen: str = "127.0.0.1:7360"
    """HOST:PORT; port 0 takes a free one. Beyond loopback --certs is required."""
    certs: Path | None = None
    """A folder of `robolearn hil certs`: its learner's side is this server, its actors' sides are the callers."""
    token: str = ""
    """Token that callers must bring; by default ROBOLEARN_REWARD_TOKEN, that of --certs, or one in ~/.cache/robolearn,
    which callers on this machine find."""
    queued: int = 8
    """Calls that wait at most; others are turned away and try again."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda or cuda:<i>."""

    def run(self) -> dict[str, Any]:
        from robolearn.data import Dataset
        from robolearn.hil.processes import stopping
        from robolearn.io.wire.security import Address, Certificates, check_encryption, find_token, own_token
        from robolearn.io.wire.server import GrpcServer, Refusals, handshake_refusals
        from robolearn.rewards.choice import make_reward_model
        from robolearn.rewards.serving.service import RewardService
        from robolearn.rewards.stored import model_name

        address, certificates = Address.parse(self.listen, "--listen"), Certificates(self.certs) if self.certs else None
        token = find_token(self.token, certificates, TOKEN_VARIABLE)
        check_encryption(address, certificates)
        interface = Dataset.open(self.data).interface
        model = make_reward_model(self.reward, interface, resolve_device(self.device), "--reward")
        if token is None:
            token_file().parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            token = own_token(token_file())
        service = RewardService(model, interface, self.reward, model_name(self.reward, model), self.queued)
        refusals, begun = Refusals(), time.perf_counter()
        with stopping() as stop, handshake_refusals(refusals) if certificates else contextlib.nullcontext():
            server = GrpcServer(address, service.handlers(), token, certificates, refusals)
            log.info("the reward server listens at %s: --reward serve:%s", server.address, server.address)
            try:
                while not stop():
                    time.sleep(0.1)
            finally:
                server.close()
        return {
            "critic": self.reward,
            "address": str(server.address),
            "served": service.served,
            "withheld": service.withheld,
            "refused": refusals.count,
            "wall_s": {"total": time.perf_counter() - begun},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"{result['served']} episodes scored in {result['wall_s']['total']:.0f} s, {result['withheld']} "
                      f"withheld, {result['refused']} calls refused")  # fmt: skip
