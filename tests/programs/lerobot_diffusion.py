"""A diffusion policy of LeRobot's, trained by its own loss on a set of vectors: what critics of ours are to guide.

    .venv-lerobot/bin/python tests/programs/lerobot_diffusion.py data/mixed POLICY

`lerobot-train` reads window by window, which for sets without pictures is nearly all of its time; here the same
networks, processors and loss learn from a table in memory. The folder is one that LeRobot and `lerobot:POLICY` open.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.datasets.lerobot_dataset import LeRobotDataset
from lerobot.policies.diffusion.configuration_diffusion import DiffusionConfig
from lerobot.policies.factory import get_policy_class, make_pre_post_processors

STATE, OBJECTS, ACTION = "observation.state", "observation.environment_state", "action"
HORIZON, EXECUTED, ROWS = 8, 4, 128
EVERY = 200  # steps between two lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    found = LeRobotDataset("local/set", root=given.data)
    table = found.hf_dataset.with_format("numpy")
    columns = {key: np.stack(list(table[key])).astype(np.float32) for key in (STATE, OBJECTS, ACTION)}
    episode = np.asarray(list(table["episode_index"]))
    last = np.searchsorted(episode, episode, side="right") - 1  # frame of its episode's end
    kinds = {STATE: FeatureType.STATE, OBJECTS: FeatureType.ENV, ACTION: FeatureType.ACTION}
    features = {key: PolicyFeature(kind, columns[key].shape[1:]) for key, kind in kinds.items()}
    config = DiffusionConfig(
        input_features={key: features[key] for key in (STATE, OBJECTS)}, output_features={ACTION: features[ACTION]},
        device="cpu", push_to_hub=False, n_obs_steps=1, horizon=HORIZON, n_action_steps=EXECUTED,
        noise_scheduler_type="DDIM", num_inference_steps=10, down_dims=(64, 128), diffusion_step_embed_dim=64,
    )  # fmt: skip
    before, after = make_pre_post_processors(config, dataset_stats=found.meta.stats)
    policy = get_policy_class("diffusion")(config)
    policy.train()
    adam = torch.optim.AdamW(policy.parameters(), lr=5e-4, weight_decay=1e-6)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, given.steps)
    rng = np.random.default_rng(given.seed)
    for step in range(given.steps):
        at = rng.integers(len(episode), size=ROWS)
        ahead = at[:, None] + np.arange(HORIZON)
        ends = last[at][:, None]
        batch = before(
            {STATE: torch.tensor(columns[STATE][at]), OBJECTS: torch.tensor(columns[OBJECTS][at]),
             ACTION: torch.tensor(columns[ACTION][np.minimum(ahead, ends)]),
             "action_is_pad": torch.tensor(ahead > ends)}
        )  # fmt: skip
        batch |= {key: batch[key][:, None] for key in (STATE, OBJECTS)}  # of one observed step
        loss, _ = policy.forward(batch)
        adam.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        adam.step()
        schedule.step()
        if step % EVERY == 0:
            print(f"{step} of {given.steps} steps, loss {loss.item():.3f}", flush=True)
    for part in (policy, before, after):
        part.save_pretrained(given.out)
    interface = json.loads((given.data / "meta/info.json").read_text())["robolearn_interface"]
    (given.out / "robolearn.json").write_text(json.dumps(interface))


if __name__ == "__main__":
    main()
