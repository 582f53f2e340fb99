"""Public code of others beside ours: the driver, on a tiny checkout of our own, and its repairs by hand."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.bench.rivals.checkouts import Checkout, CodeFailed, configs_of
from robolearn.bench.rivals.far import repairs
from robolearn.bench.rivals.far.run import begin_with_a_reset, fine_tuning, resolvers
from robolearn.bench.rivals.far.worlds import TheirWorlds
from robolearn.bench.rivals.process import DemoScale, Job, run_job
from robolearn.cli.main import main
from robolearn.core import BadInput, RobolearnError
from sim.registry import WorldConfig

TINY = Path(__file__).parent / "rival_checkout"
ROOMS = ("agent", "env", "hydra", "model", "omegaconf", "util")  # its modules


@pytest.fixture
def theirs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The modules of the tiny checkout, gone afterwards."""
    monkeypatch.syspath_prepend(str(TINY))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in ROOMS]:
        del sys.modules[name]


def cond(worlds: int) -> dict[str, torch.Tensor]:
    return {"state": torch.zeros(worlds, 1, 3)}


def test_the_sampler_has_the_grid_of_the_likelihood(theirs: None) -> None:
    """K = 2 and a velocity that is the time: (0 + 1) / 2 as published, (0 + 1/2) / 2 repaired, from the same noise."""
    from model.flow.ft_ppo.ppoflow import PPOFlow  # type: ignore[import-not-found]

    model = PPOFlow(2, 1)
    torch.manual_seed(0)
    noise = torch.randn(3, 2, 1)
    torch.manual_seed(0)
    assert torch.allclose(model.get_actions(cond(3), eval_mode=True), noise + 0.5)
    repairs.repair(["time grid"], [])
    torch.manual_seed(0)
    found = model.get_actions(cond(3), eval_mode=True, ret_logprob=False)
    assert torch.allclose(found, (noise.clamp(-1, 1) + 0.25).clamp(-1, 1))
    x, chains, logprob = model.get_actions(cond(500), eval_mode=False, save_chains=True)
    assert chains.shape == (500, 3, 2, 1) and torch.equal(chains[:, -1], x)
    step = chains[:, 1] - chains[:, 0].clamp(-1, 1)  # its mean is 0: the velocity at τ = 0
    assert abs(float(step.mean())) < 0.02 and 0.08 < float(step.std()) < 0.12 and float(step.abs().max()) <= 0.3 + 1e-6
    assert torch.equal(logprob, model.get_logprobs(cond(500), chains)[0]), "so that the first ratio is 1"


def test_equal_policies_are_at_no_distance(theirs: None) -> None:
    from model.flow.mlp_flow import FlowMLP  # type: ignore[import-not-found]

    def distance(noise: torch.Tensor) -> float:
        first, second = (FlowMLP().sample_action(cond(4), 2, False, [-1, 1], z=noise).clone() for _ in range(2))
        return float((first - second).abs().max())

    assert distance(torch.zeros(4, 2, 1)) == pytest.approx(0.5), "as published the second begins where the first ended"
    repairs.repair(["W2"], [])
    noise = torch.zeros(4, 2, 1)
    assert distance(noise) == 0 and not noise.any()
    assert FlowMLP().sample_action(cond(4), 2, True, [-1, 1], z=noise)[0, 0, 0] == 0.25


class Said:
    """A channel with the answers of our side."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = list(answers)

    def send(self, kind: str, **values: Any) -> None: ...

    def receive(self) -> tuple[str, dict[str, Any]]:
        return "done", self.answers.pop(0)


def test_an_episode_that_its_clock_ends_is_bootstrapped_from_its_last_state(theirs: None) -> None:
    """Two worlds, two steps; the clock ends the first one's episode at the second: 1/2 + 0.9 · 4 / 3."""
    from util.reward_scaling import RunningRewardScaler  # type: ignore[import-not-found]

    nobody, first = np.zeros(2, np.bool_), np.array([True, False])
    step = {"state": np.zeros((2, 3)), "reward": np.ones(2), "terminated": nobody, "final": np.zeros((2, 3))}
    last = step | {"truncated": first, "final": np.array([[4.0, 0, 0], [9.0, 0, 0]])}
    answers = [step | {"truncated": nobody}, last] * 2
    worlds = TheirWorlds(Said(*answers), 2)  # type: ignore[arg-type]
    (made,) = repairs.repair(["truncation"], [worlds])
    critic = lambda seen: seen["state"][:, 0, :1]  # noqa: E731
    agent = SimpleNamespace(model=SimpleNamespace(critic=critic), gamma=0.9, reward_scale_const=3.0, device="cpu",
                            reward_scale_running=True)  # fmt: skip
    made(agent)
    for _ in range(2):  # a second rollout counts its steps anew
        ends = [worlds.step(np.zeros((2, 4, 1)))[2] for _ in range(2)]
        assert [end.tolist() for end in ends] == [[False, False], [True, False]], "an advantage ends there, too"
        scaled = RunningRewardScaler()(reward=np.ones((2, 2)), first=np.zeros((2, 2)))
        assert np.allclose(scaled, [[0.5, 0.5 + 1.2], [0.5, 0.5]])
    agent.reward_scale_running = False
    with pytest.raises(ValueError, match="reward_scale_running"):
        made(agent)


def test_states_and_actions_are_scaled_by_the_demonstrations() -> None:
    spec = SimpleNamespace(shape=(2,), dtype="float32")
    states, actions = np.array([[0.0, 5.0], [4.0, 5.0]]), np.array([[-0.5, 0.25], [0.5, 0.25]])
    data = SimpleNamespace(interface=SimpleNamespace(observation={"proprio": spec}), observation={"proprio": states},
                           action=actions, lengths=[2])  # fmt: skip
    scale = DemoScale(data)  # type: ignore[arg-type]
    assert np.allclose(scale.data["states"], [[-1, -1], [1, -1]], atol=1e-5)
    assert np.allclose(scale.data["actions"], [[-1, 0], [1, 0]])
    assert np.allclose(scale.actions(np.array([[0.0, 0.7], [3.0, -1.0]], np.float32)), [[0.0, 0.25], [1.0, 0.25]])
    with pytest.raises(RobolearnError, match="NaN"):
        scale.actions(np.array([[np.nan, 0]], np.float32))


@pytest.mark.parametrize(
    ("word", "python", "says"),
    [
        ("reinflo=x", None, "--checkout: got reinflo=x, expected NAME=PATH"),
        ("reinflow", None, "expected NAME=PATH"),
        ("reinflow=/nowhere", None, "no such folder, expected a checkout of github.com/ReinFlow/ReinFlow"),
        (f"dppo={TINY}", None, "no cfg/gym/pretrain/kitchen-complete-v0/pre_diffusion_mlp.yaml there"),
        (f"reinflow={TINY}", Path("/nowhere/python"), "--checkout-python /nowhere/python: got a file that cannot be"),
        (f"reinflow={TINY}", Path("/bin/false"), "--checkout-python /bin/false: got no answer"),
    ],
)
def test_a_checkout_that_lacks_something_is_refused(word: str, python: Path | None, says: str) -> None:
    with pytest.raises(BadInput) as refused:
        Checkout.of(word, python)
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_an_interpreter_that_lacks_a_package_is_refused(tmp_path: Path) -> None:
    shutil.copytree(TINY, tmp_path / "checkout")
    shutil.rmtree(tmp_path / "checkout" / "hydra")
    with pytest.raises(BadInput, match=r"got no .*hydra.* expected an interpreter in which reinflow was installed"):
        Checkout.of(f"reinflow={tmp_path / 'checkout'}", None)


@pytest.fixture(scope="module")
def demonstrations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rivals") / "demos"
    assert main(["collect", "--task", "lift", "--quality", "narrow", "--episodes", "3", "--out", str(out)]) == 0
    return out


def job(demonstrations: Path, out: Path, repaired: bool, env_steps: int = 2000) -> Job:
    checkout, base = Checkout.of(f"reinflow={TINY}", None), out.parent / "base"
    return Job(checkout, repaired, WorldConfig("lift"), demonstrations, out, base, 0, 30, env_steps, 4, 1000, 4, "cpu")


@pytest.mark.long
@pytest.mark.parametrize("repaired", [False, True])
def test_their_code_learns_in_our_world_and_is_judged_by_it(
    demonstrations: Path, tmp_path: Path, repaired: bool
) -> None:
    """3 worlds, chunks of 4, episodes of 64: 16 chunks a rollout, and 2000 / 192 = 10 rollouts of whole episodes."""
    found = run_job(job(demonstrations, tmp_path / "run", repaired))
    assert found["length"] == {"iterations": 10, "worlds": 3, "chunks": 16, "execute": 4}
    assert found["imitation"]["episodes"] == found["success"]["episodes"] == 4
    assert found["imitation"] == found["success"], "it learns nothing, and is judged from the same starts and noise"
    # Every episode ends in its rollout, of which some succeed and leave the rest of their time to the next.
    assert 1000 < found["env_steps"] <= 1920 and 30 <= found["episodes"] <= 40 and found["stopped"] == ""
    assert found["repairs"] == (["time grid", "W2", "truncation", "scheduler"] if repaired else [])
    (seconds,) = (tmp_path / "base").glob("seconds_*.json")
    assert found["seconds"]["imitation"] == json.loads(seconds.read_text())
    if not repaired:  # a second run has the first one's imitation, and says what it cost
        seconds.write_text("123.0")
        again = run_job(job(demonstrations, tmp_path / "again", True))
        assert again["seconds"]["imitation"] == 123.0 and again["imitation"] == found["imitation"]


def test_worlds_are_reset_once_where_their_code_leaves_it_to_an_evaluation() -> None:
    """Kitchen's configs do not reset where a rollout begins; no evaluation of theirs comes before the first one."""
    calls: list[dict[str, Any]] = []
    kept = SimpleNamespace(reset_at_iteration=False, reset_env_all=lambda **named: calls.append(named))
    begin_with_a_reset(kept)
    for _ in range(3):  # as both agents do
        if kept.reset_at_iteration:
            kept.reset_env_all(options_venv=[1])
    assert calls == [{"options_venv": [1]}] and kept.reset_at_iteration is False
    for agent in (SimpleNamespace(), SimpleNamespace(reset_at_iteration=True)):
        before = dict(vars(agent))
        begin_with_a_reset(agent)
        assert vars(agent) == before


def test_rollouts_are_whole_episodes_only_where_they_begin_with_a_reset(theirs: None, tmp_path: Path) -> None:
    """20 iterations of 3 worlds with chunks of 4 steps in 2,400 control steps: 10 chunks; an episode has 16."""
    text = (TINY / "cfg/gym/finetune/kitchen-complete-v0/ft_ppo_reflow_mlp.yaml").read_text()
    work = {"env_steps": 2400, "episode": 64, "least_iterations": 20}
    resolvers()
    for flag, chunks, iterations in (("true", 16, 12), ("false", 10, 20)):
        config = tmp_path / f"{flag}.yaml"
        config.write_text(text.replace("n_envs: 3,", f"n_envs: 3, reset_at_iteration: {flag},"))
        _, length = fine_tuning(work | {"tuning": {"config": str(config), "set": {"logdir": "x"}}}, "base")
        assert length == {"iterations": iterations, "worlds": 3, "chunks": chunks, "execute": 4}


def test_a_user_names_the_configs_of_a_checkout() -> None:
    default = Checkout.of(f"reinflow={TINY}", None)
    assert default.tuning == "cfg/gym/finetune/kitchen-complete-v0/ft_ppo_reflow_mlp.yaml"
    configs = configs_of([f"reinflow={default.imitation},cfg/own.yaml"])
    with pytest.raises(BadInput, match=r"no cfg/own\.yaml there"):
        Checkout.of(f"reinflow={TINY}", None, configs)
    own = Checkout.of(f"reinflow={TINY}", None, configs_of([f"reinflow={default.tuning},{default.imitation}"]))
    assert (own.imitation, own.tuning) == (default.tuning, default.imitation)
    for words in (["reinflow=a"], ["reinflo=a,b"], ["reinflow=a,b,c"], ["reinflow=,b"], ["dppo=a,b", "dppo=a,b"]):
        with pytest.raises(BadInput, match=r"--checkout-configs: got .* expected NAME=IMITATION,TUNING"):
            configs_of(words)


@pytest.mark.long
def test_code_that_ends_itself_is_judged_and_a_process_that_ends_is_named(
    demonstrations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIVAL_ENDS", "error")
    found = run_job(job(demonstrations, tmp_path / "one", False))
    assert found["stopped"] == "ValueError: ratio = 0.8" and found["success"]["episodes"] == 4
    monkeypatch.setenv("RIVAL_ENDS", "exit")
    with pytest.raises(CodeFailed, match="reinflow ended with exit code 3: out of memory"):
        run_job(job(demonstrations, tmp_path / "two", False))
    with pytest.raises(CodeFailed, match="100 control steps do not pay for two iterations, 384"):
        run_job(job(demonstrations, tmp_path / "three", False, env_steps=100))
