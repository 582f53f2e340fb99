"""LeRobot's part of `robolearn benchmark hil-updates`, run by its own interpreter; imports nothing of robolearn.

Its own policy, buffers and optimisers, put together as the main loop of its learner does: a batch from both buffers,
the critics, the actor, the temperature, the targets. Left out is what costs it time and is not learning: queues, wandb
and the log line of each step. Its observation encoder is taken out, so that both sides train networks of one size.

Says {"ready": version, "parameters": of its critics}. Each line on stdin is for how many seconds to measure, and
{"updates_per_s": …} the answer.
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn


def main() -> None:
    import lerobot

    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    learner = _Learner(task)
    for _ in range(5):
        learner.update()
    parameters = sum(p.numel() for p in learner.policy.critic_ensemble.parameters())
    print(json.dumps({"ready": getattr(lerobot, "__version__", "unknown"), "parameters": parameters}), flush=True)
    for line in sys.stdin:
        seconds, count, begun = float(line), 0, time.perf_counter()
        while time.perf_counter() - begun < seconds:
            learner.update()
            count += 1
        print(json.dumps({"updates_per_s": count / (time.perf_counter() - begun)}), flush=True)


class _Learner:
    def __init__(self, task: dict[str, Any]) -> None:
        from lerobot.configs.types import FeatureType, PolicyFeature
        from lerobot.policies.sac.configuration_sac import ActorNetworkConfig, CriticNetworkConfig, SACConfig
        from lerobot.policies.sac.modeling_sac import SACPolicy
        from lerobot.rl.buffer import ReplayBuffer
        from lerobot.rl.learner import make_optimizers_and_scheduler

        hidden = [task["width"]] * task["depth"]
        config = SACConfig(
            input_features={"observation.state": PolicyFeature(FeatureType.STATE, (task["features"],))},
            output_features={"action": PolicyFeature(FeatureType.ACTION, (task["actions"],))},
            device="cpu",
            latent_dim=task["features"],
            num_critics=task["critics"],
            num_subsample_critics=task["subset"],
            use_backup_entropy=False,
            critic_network_kwargs=CriticNetworkConfig(hidden_dims=hidden),
            actor_network_kwargs=ActorNetworkConfig(hidden_dims=hidden),
            use_torch_compile=task["compile"],
        )
        self.policy = SACPolicy(config)
        self.policy.encoder_critic.state_encoder = nn.Identity()
        self.policy.train()
        self.optimizers, _ = make_optimizers_and_scheduler(SimpleNamespace(policy=config), self.policy)
        self.clip = config.grad_clip_norm
        generator = torch.Generator().manual_seed(0)
        self.batches = []
        for _ in range(2):
            buffer = ReplayBuffer(task["transitions"], "cpu", ["observation.state"], lambda images: images)
            seen = torch.randn(task["transitions"] + 1, task["features"], generator=generator)
            for t in range(task["transitions"]):
                action = torch.rand(task["actions"], generator=generator) * 2 - 1
                now, after = ({"observation.state": seen[t + i][None]} for i in range(2))
                buffer.add(now, action[None], float(t % 50 == 49), after, t % 50 == 49, False)
            self.batches.append(buffer.get_iterator(task["batch"] // 2, async_prefetch=False, queue_size=2))

    def update(self) -> dict[str, float]:
        from lerobot.rl.buffer import concatenate_batch_transitions
        from lerobot.rl.learner import check_nan_in_transition

        online, shown = (next(batches) for batches in self.batches)
        batch: Any = concatenate_batch_transitions(left_batch_transitions=online, right_batch_transition=shown)
        check_nan_in_transition(batch["state"], batch["action"], batch["next_state"])
        names = ("action", "reward", "state", "next_state", "done")
        forward = {name: batch[name] for name in names} | dict.fromkeys(
            ("observation_feature", "next_observation_feature")
        )
        parameters = {
            "critic": self.policy.critic_ensemble.parameters(),
            "actor": self.policy.actor.parameters(),
            "temperature": [self.policy.log_alpha],
        }
        told = {}
        for model, trained in parameters.items():
            loss = self.policy.forward(forward, model=model)[f"loss_{model}"]
            self.optimizers[model].zero_grad()
            loss.backward()
            told[f"{model}_grad_norm"] = nn.utils.clip_grad_norm_(parameters=trained, max_norm=self.clip).item()
            self.optimizers[model].step()
            told[f"loss_{model}"] = loss.item()
        told["temperature"] = self.policy.temperature
        self.policy.update_target_networks()
        return told


if __name__ == "__main__":
    main()
