"""Preferences: loss and shares of a clip's steps by hand, scores against loops, and a policy that follows them."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig, PolicyConfig
from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.rewards.labels import EpisodeClip, Preference, write_preferences
from robolearn.train.imitation import ImitationTrainer
from robolearn.train.preferences import ClipTable, PreferenceTrainer, preference_loss
from robolearn.train.settings import ImitationConfig, PreferenceConfig

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((2,)), control_hz=20.0)
NETWORK = NetworkConfig(width=32, depth=2)
FLOW = FlowConfig(network=NETWORK, horizon=3, execute=2)
DIFFUSION = DiffusionConfig(network=NETWORK, horizon=3, execute=2)
CONFIG = PreferenceConfig(FLOW, steps=20, steps_per_iteration=5, batch=16, pairs=4, warmup=2, alpha=2.0, gamma=0.9)
LENGTHS = (9, 7, 8, 6)


def written(path: Path) -> Dataset:
    """Episodes 0 and 1 are successes and act by +0.5, 2 and 3 failures by −0.5; what is observed is the same in all."""
    rng = np.random.default_rng(0)
    with EpisodeWriter(path, INTERFACE) as writer:
        for e, length in enumerate(LENGTHS):
            for _ in range(length):
                seen = rng.standard_normal(2).astype(np.float32)
                writer.add({"proprio": seen}, np.full(2, 0.5 if e < 2 else -0.5, np.float32))
            writer.end(success=e < 2, terminated=True, task="toy")
    return Dataset.open(path)


def whole(e: int) -> EpisodeClip:
    return EpisodeClip(e, 0, LENGTHS[e])


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    found = written(tmp_path / "data")
    pairs = [(0, 2, "left"), (3, 1, "right"), (2, 1, "right"), (0, 3, "left"), (2, 3, "same")]
    write_preferences(found, [Preference(whole(a), whole(b), better) for a, b, better in pairs])  # type: ignore[arg-type]
    return found


def test_the_loss_by_hand() -> None:
    """λ = 1/2. The first pair: −log e^−1 / (e^−1 + e^(−2/2)) = log 2."""
    score, label = torch.tensor([[-1.0, -2.0], [-3.0, -0.5], [-1.0, -3.0]]), torch.tensor([1.0, 0.0, 0.5])
    second = -math.log(math.exp(-0.5) / (math.exp(-0.5) + math.exp(-1.5)))
    left = -math.log(math.exp(-1.0) / (math.exp(-1.0) + math.exp(-1.5)))
    right = -math.log(math.exp(-3.0) / (math.exp(-3.0) + math.exp(-0.5)))
    expected = (math.log(2.0) + second + (left + right) / 2) / 3
    assert float(preference_loss(score, label, 0.5)) == pytest.approx(expected, rel=1e-6)


def test_each_executed_step_of_a_clip_counts_once() -> None:
    """Ta = 2, Tp = 3, γ = 1/2: a clip of 5 steps has decisions at 0, 2 and 4, the last of which executes one step."""
    preferences = [
        Preference(EpisodeClip(7, 1, 6), EpisodeClip(4, 0, 2), "left"),
        Preference(EpisodeClip(4, 1, 3), EpisodeClip(7, 2, 4), "same"),
        Preference(EpisodeClip(7, 0, 2), EpisodeClip(7, 4, 8), "right"),
    ]
    table = ClipTable.of(preferences, {4: 0, 7: 10}, execute=2, horizon=3, gamma=0.5)
    assert table.index[0].tolist() == [[11, 13, 15], [0, 0, 0]]
    total = 1 + 1 / 2 + 1 / 4 + 1 / 8 + 1 / 16
    rows = [[1, 1 / 2, 0], [1 / 4, 1 / 8, 0], [1 / 16, 0, 0]]
    torch.testing.assert_close(table.weight[0, 0], torch.tensor(rows) / total)
    torch.testing.assert_close(table.weight[0, 1], torch.tensor([[2 / 3, 1 / 3, 0.0], [0, 0, 0], [0, 0, 0]]))
    assert table.label.tolist() == [1.0, 0.5, 0.0]
    assert table.better.tolist() == [11, 12, 13, 14, 15, 16, 17], "of neither clip of a pair that is the same"


def test_scores_are_those_of_a_loop(dataset: Dataset) -> None:
    trainer = PreferenceTrainer.of_preferences(CONFIG, dataset)
    trainer._generator.manual_seed(3)
    scores = trainer.scores(torch.tensor([1, 4])).detach()
    draws = trainer.net.noises(torch.zeros(2 * 5, 3, 2), torch.Generator().manual_seed(3))  # 9 steps: 5 decisions
    for i, pair in enumerate(((3, 1), (2, 3))):
        for side, e in enumerate(pair):
            length, top, bottom = LENGTHS[e], 0.0, 0.0
            start = int(dataset.starts[e])
            for t in range(length):
                k, j = divmod(t, 2)
                begun = start + 2 * k
                rows = np.minimum(np.arange(begun, begun + 3), start + length - 1)
                chunk = trainer.normalizer.action(torch.from_numpy(dataset.action[rows]))
                seen = {"proprio": torch.from_numpy(dataset.observation["proprio"][[begun]])[None]}
                cond = trainer.net.encode(trainer.normalizer.observation(seen))
                x0, tau = draws["x0"][5 * i + k], draws["tau"][5 * i + k]
                with torch.no_grad():
                    v = trainer.net.velocity((tau * chunk + (1 - tau) * x0)[None], tau[None], cond)[0]
                error = float((v - (chunk - x0))[j].pow(2).sum()) / 2
                top, bottom = top + 0.9**t * error, bottom + 0.9**t
            assert float(scores[i, side]) == pytest.approx(-2.0 * top / bottom, rel=1e-4)


def test_of_a_pair_both_have_the_same_noise(dataset: Dataset) -> None:
    write_preferences(dataset, [Preference(whole(0), whole(2), "left"), Preference(whole(1), whole(1), "same")])
    trainer = PreferenceTrainer.of_preferences(CONFIG, dataset)
    left, right = trainer.scores(torch.tensor([1]))[0].detach()
    assert float(left) == float(right) != 0.0


@pytest.mark.long
@pytest.mark.parametrize("policy", [FLOW, replace(FLOW, kind="shortcut"), DIFFUSION])
def test_the_policy_goes_where_it_is_preferred(policy: PolicyConfig, dataset: Dataset) -> None:
    """Without any imitation, from a policy that does either: what is observed says nothing."""
    begun = ImitationTrainer.of_dataset(
        ImitationConfig(policy, steps=150, batch=32, lr=3e-3, warmup=5, ema=0.9), dataset
    )  # fmt: skip
    for i in range(begun.iterations):
        begun.iterate(i)
    config = replace(CONFIG, policy=policy, steps=60, imitate=0.0, alpha=5.0, ema=0.9)
    trainer = PreferenceTrainer.of_preferences(config, dataset)
    trainer.begin_from(begun.policy())

    def better() -> float:
        """Share of the executed actions that are above 0."""
        draws = torch.Generator().manual_seed(0)
        seen = trainer.normalizer.observation({"proprio": torch.randn(200, 1, 2, generator=draws)})
        noise = torch.randn(200, *trainer.net.noise_shape, generator=draws)
        with torch.no_grad():
            action = trainer.ema.module.sample(trainer.net.encode(seen), noise)
        return float((action[:, :2] > 0).float().mean())

    before = better()
    for i in range(trainer.iterations):
        trainer.iterate(i)
    assert before < 0.6 and better() > before + 0.1


def test_a_resumed_run_is_the_same(dataset: Dataset) -> None:
    straight = PreferenceTrainer.of_preferences(CONFIG, dataset)
    rows = [straight.iterate(i) for i in range(4)]
    begun = PreferenceTrainer.of_preferences(CONFIG, dataset)
    for i in range(2):
        begun.iterate(i)
    resumed = PreferenceTrainer.of_preferences(CONFIG, dataset)
    resumed.load_state(*begun.state())
    assert [resumed.iterate(i) for i in (2, 3)] == rows[2:]
    for key, value in straight.state()[0].items():
        assert torch.equal(resumed.state()[0][key], value), key


def test_episodes_that_are_held_out_are_not_compared(dataset: Dataset) -> None:
    trainer = PreferenceTrainer.of_preferences(replace(CONFIG, validation=0.25), dataset)
    held = next(e for e in range(4) if trainer.windows._frame.tolist().count(int(dataset.starts[e])) == 0)
    expected = [p for p in ((0, 2), (3, 1), (2, 1), (0, 3), (2, 3)) if held not in p]
    assert len(trainer.clips.label) == len(expected) < 5
    assert "validation_loss" in trainer.iterate(0)


def test_what_cannot_be_learned_from(tmp_path: Path) -> None:
    found = written(tmp_path / "data")
    with pytest.raises(BadInput, match=r"no preferences.*reward prefer"):
        PreferenceTrainer.of_preferences(CONFIG, found)
    write_preferences(found, [Preference(whole(0), whole(1), "same")])
    with pytest.raises(BadInput, match="all of them 'same'"):
        PreferenceTrainer.of_preferences(CONFIG, found)
    for wrong in ({"alpha": 0.0}, {"gamma": 1.5}, {"conservative": -0.1}, {"imitate": math.nan}, {"pairs": 0}):
        with pytest.raises(BadInput, match=next(iter(wrong))):
            replace(CONFIG, **wrong)


@pytest.mark.long
def test_the_command_learns_and_refuses(dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, small = str(dataset.path), ["--width", "16", "--depth", "1", "--batch", "8", "--json"]
    bc, run = str(tmp_path / "bc"), str(tmp_path / "run")
    assert main(["train", "--data", data, "--out", bc, "--steps", "5", *small]) == 0
    words = ["train", "--data", data, "--from", bc, "--preferences", "--pairs", "2", "--batch", "8", "--json", "--out"]
    assert main([*words, run, "--steps", "60"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["preferences"] == {"pairs": 5, "better_frames": 16, "accuracy": result["preferences"]["accuracy"]}
    assert main(["train", "--config", f"{run}/flags.yaml", "--out", str(tmp_path / "again"), "--json"]) == 0
    write_preferences(dataset, [Preference(whole(0), whole(2), "left")])
    capsys.readouterr()
    assert main([*words, run, "--steps", "80", "--resume"]) == 2
    assert "preferences" in capsys.readouterr().err
    for more, said in (
        (["--data", data, data], "--data"), (["--goal", "proprio"], "--goal"), (["--weights"], "--weights"),
        (["--accumulate", "2"], "--accumulate"), (["--processes", "2"], "--processes"),
        (["--policy", "act"], "flow, diffusion"), (["--alpha", "-1"], "--alpha"),
    ):  # fmt: skip
        begun = ["train", "--preferences", "--out", str(tmp_path / "new")]
        begun += [] if "--data" in more else ["--data", data]
        assert main([*begun, *more, *small]) == 2, more
        line = capsys.readouterr().err
        assert said in line.splitlines()[-1] and (said == "--alpha" or "--preferences" in line), line
