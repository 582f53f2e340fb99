"""That RL improves a simulated task: `lift`, from a policy that imitation left half-way, by success over 100 episodes.

Both policies begin denoising with the same noise and meet the same starts, so what lies between them is what was
learned from rollouts.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from robolearn.data import Dataset, EpisodeWriter
from robolearn.eval import evaluate
from robolearn.rl.runner import Runner
from robolearn.rl.settings import NoiseConfig, ReinFlowConfig
from robolearn.rollout.collect import collect
from robolearn.train.imitation import ImitationConfig, ImitationTrainer
from sim.experts import make_expert
from sim.registry import make_env

pytestmark = pytest.mark.long

SEED, DEMONSTRATIONS, INITIAL = 0, 40, 0.5


@pytest.mark.timeout(200)
def test_reinforcement_learning_makes_lift_succeed_more_often(tmp_path: Path) -> None:
    env = make_env("lift", DEMONSTRATIONS, threads=1)
    with EpisodeWriter(tmp_path / "data", env.interface) as writer:
        expert = make_expert("lift", env.interface, DEMONSTRATIONS, "mixed", SEED)
        collect(env, expert, writer, DEMONSTRATIONS, SEED)
    env.close()
    config = ImitationConfig(steps=300, warmup=20, lr=2e-3, seed=SEED)
    imitation = ImitationTrainer.of_dataset(config, Dataset.open(tmp_path / "data"))
    for i in range(imitation.iterations):
        imitation.iterate(i)
    policy = imitation.policy().with_initial_noise(INITIAL)

    judge = make_env("lift", 50, threads=1)
    before = evaluate(judge, policy, 100, 1000 + SEED)
    worlds = make_env("lift", 64, threads=1)
    noise = NoiseConfig(sigma_max=0.18, initial=INITIAL)
    settings = ReinFlowConfig(noise=noise, actor_lr=1e-3, target_kl=0.8, critic_warmup=1, threads=1)
    runner = Runner(policy, worlds, settings, env_steps=110_000, seed=SEED)
    i = 0
    while i < runner.iterations:
        runner.iterate(i)
        i += 1
    after = evaluate(judge, runner.algorithm.policy(), 100, 1000 + SEED)
    judge.close()
    worlds.close()
    assert runner.env_steps <= 110_000
    assert after.success.low > before.success.high
