r"""Repairs of errors in the public code of ReinFlow and DPPO, made while it runs; nothing of it is changed on disk.

time grid    the sampler takes the velocities at τ = k / K, k = 0 … K − 1, as the likelihood does, and the logarithm of
             an old action's probability is the likelihood's own: every ratio is 1 before the first update
W2           neither policy writes over the noise that both begin with: the distance of equal policies is 0
truncation   an episode that its clock ends is cut there and bootstrapped from its own last state: its last reward
             becomes r + γ V(s_T), and the advantage does not reach into the next episode
scheduler    the learning rates are not moved by the drawing of their curves

The repeated samples of ReinFlow are a setting, ``train.repeat_samples``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from .worlds import TheirWorlds


def repair(names: list[str], worlds: list[TheirWorlds]) -> list[Any]:
    """Make the repairs `names`; `worlds` holds the training's once they are made.

    Returns:
      functions to be called with the agent when it is made.
    """
    return [made for made in (REPAIRS[name](worlds) for name in names) if made is not None]


def time_grid(worlds: list[TheirWorlds]) -> None:
    """Sample on the grid of the likelihood."""
    torch = import_module("torch")
    model = import_module("model.flow.ft_ppo.ppoflow").PPOFlow

    @torch.no_grad()
    def get_actions(
        self: Any, cond: Any, eval_mode: bool, save_chains: bool = False, ret_logprob: bool = True, **likelihood: Any
    ) -> Any:
        rows, steps = cond["state"].shape[0], self.inference_steps
        x = torch.randn(rows, self.horizon_steps, self.action_dim, device=self.device)
        chain = [x]
        for k in range(steps):
            tau = torch.full((rows,), k / steps, device=self.device)
            velocity, std = self.actor_ft(x, tau, cond, False, k)
            x = x + velocity / steps
            if likelihood.get("clip_intermediate_actions", True):
                x = x.clamp(-self.denoised_clip_value, self.denoised_clip_value)
            if not eval_mode:
                std = std.reshape(x.shape).clamp(min=self.min_sampling_denoising_std)
                reach = self.randn_clip_value
                x = x + std * torch.randn_like(x).clamp(-reach, reach)
            if k == steps - 1:
                x = x.clamp(self.act_min, self.act_max)
            chain.append(x)
        chains = torch.stack(chain, 1)
        found = [x, *([chains] if save_chains else [])]
        if ret_logprob:
            found.append(self.get_logprobs(cond, chains, **likelihood)[0])
        return tuple(found) if len(found) > 1 else x

    model.get_actions = get_actions


def same_noise(worlds: list[TheirWorlds]) -> None:
    """Leave the noise that a policy is given as it is, and integrate on the grid of the likelihood."""
    torch = import_module("torch")
    network = import_module("model.flow.mlp_flow").FlowMLP

    def sample_action(
        self: Any, cond: Any, inference_steps: int, clip_intermediate_actions: bool, act_range: Any, z: Any = None,
        save_chains: bool = False,
    ) -> Any:  # fmt: skip
        state, steps = cond["state"], inference_steps
        shape = (state.shape[0], self.horizon_steps, self.action_dim)
        x = torch.randn(shape, device=state.device) if z is None else z
        chain = [x]
        for k in range(steps):
            x = x + self(x, torch.full(shape[:1], k / steps, device=state.device), cond) / steps
            if clip_intermediate_actions or k == steps - 1:
                x = x.clamp(*act_range)
            chain.append(x)
        return (x, torch.stack(chain, 1)) if save_chains else x

    network.sample_action = sample_action


def truncation(worlds: list[TheirWorlds]) -> Any:
    """Cut episodes where the clock ends them, and add γ V(s_T) to the reward there, after the rewards are scaled."""
    scaler = import_module("util.reward_scaling").RunningRewardScaler
    scale: Any = scaler.__call__
    agents: list[Any] = []

    def scaled(self: Any, reward: np.ndarray, first: np.ndarray) -> np.ndarray:
        found = scale(self, reward=reward, first=first)  # (N, T)
        here = worlds[0]
        if here.cut:
            steps, rows = [step for step, _, _ in here.cut], [row for _, row, _ in here.cut]
            ahead = values(agents[0], np.stack([state for _, _, state in here.cut]))
            found[rows, steps] += agents[0].gamma * ahead / agents[0].reward_scale_const
        here.cut, here.steps = [], 0
        return found

    def made(agent: Any) -> None:
        if not agent.reward_scale_running:
            raise ValueError("the repair of truncation needs train.reward_scale_running")
        agents.append(agent)
        worlds[0].folded = True

    scaler.__call__ = scaled
    return made


def values(agent: Any, states: np.ndarray) -> np.ndarray:
    """V of states (n, Do), by the agent's critic: (n,)."""
    torch = import_module("torch")
    with torch.no_grad():
        cond = {"state": torch.as_tensor(states[:, None], dtype=torch.float32, device=agent.device)}
        return agent.model.critic(cond).reshape(-1).cpu().numpy()


def scheduler(worlds: list[TheirWorlds]) -> None:
    """Draw no curves of the learning rates."""
    import_module("agent.finetune.reinflow.train_ppo_agent").TrainPPOAgent.visualize_lr = lambda self, cfg: None


REPAIRS = {"time grid": time_grid, "W2": same_noise, "truncation": truncation, "scheduler": scheduler}
