"""One `--reward` for every command, and its names of before."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.choices import rewarded
from robolearn.cli.hil.commands import HilActor, HilLearner, HilRun
from robolearn.cli.main import main, parse
from robolearn.cli.registry import ENTRIES
from robolearn.core import BadInput
from robolearn.rewards.choice import REWARDS, world_and_model
from sim.registry import WorldConfig

FORMER = {
    "finetune": ("--reward-model", ["--policy", "p", "--out", "o"]),
    "trial plan": ("--classifier", ["--policies", "a=p", "b=p", "--out", "o"]),
    "reward score": ("--critic", ["--data", "d"]),
    "reward evaluate": ("--critic", ["--data", "d"]),
    "reward label": ("--critic", ["--data", "d"]),
    "reward serve": ("--critic", ["--data", "d"]),
}


def command(name: str, *words: str) -> Any:
    return parse(next(entry for entry in ENTRIES if entry.name == name), [*words])


@pytest.mark.parametrize(("name", "flag", "rest"), [(name, *known) for name, known in FORMER.items()])
def test_a_former_name_is_the_flag_of_today_and_says_so(name: str, flag: str, rest: list[str], caplog: Any) -> None:
    now = command(name, "--reward", "serve:a:1", *rest)
    assert not caplog.messages
    assert command(name, flag, "serve:a:1", *rest) == now == command(name, f"{flag}=serve:a:1", *rest)
    assert caplog.messages == [f"{flag} is called --reward now"] * 2
    with pytest.raises(BadInput, match=f"^{flag}: got it beside --reward, expected --reward alone"):
        command(name, flag, "serve:a:1", "--reward", "sparse", *rest)


def test_stored_flags_of_before_mean_what_they_meant(tmp_path: Path, caplog: Any) -> None:
    stored = tmp_path / "flags.yaml"
    rest = ("--policy", "p", "--out", "o", "--config", str(stored))
    for written, meant in (
        ("reward: dense\nreward-model: ''\n", "dense"),
        ("reward: sparse\nreward-model: m:C\n", "m:C"),
    ):
        stored.write_text(f"command: finetune\n{written}")
        assert command("finetune", *rest).world.reward == meant
        assert command("finetune", *rest, "--reward", "n:D").world.reward == "n:D", "the command line comes on top"
    assert caplog.messages == ["--reward-model is called --reward now"] * 2


def test_words_behind_two_dashes_are_another_command_s(caplog: Any) -> None:
    words = ("--policy", "p", "--out", "o", "--", "--reward-model", "m:C")
    with pytest.raises(BadInput):
        command("finetune", *words)
    assert not caplog.messages


def test_every_command_that_has_a_reward_has_it_by_this_name() -> None:
    named = {entry.name for entry in ENTRIES if "reward" in _fields(entry.load())}
    assert named >= {"collect", "evaluate", "hil run", "hil learner", "hil actor", *FORMER}
    assert not any(_fields(entry.load()) & {"reward_model", "classifier", "critic"} for entry in ENTRIES)


def test_the_worlds_reward_or_a_model() -> None:
    assert {"task", "sparse", "dense", "key"} < set(REWARDS)
    assert [world_and_model(text) for text in ("task", "sparse", "dense")] == [
        ("sparse", ""), ("sparse", ""), ("dense", "")
    ]  # fmt: skip
    assert world_and_model("serve:a:1") == ("sparse", "serve:a:1")
    own, model = rewarded(WorldConfig("lift", reward="robometer:m"))
    assert (own, model) == (WorldConfig("lift"), "robometer:m") and not own.drawn()
    assert WorldConfig("lift", reward="task") == WorldConfig("lift") != WorldConfig("lift", reward="dense")
    with pytest.raises(BadInput, match="--reward: got key, expected an operator"):
        world_and_model("key")
    with pytest.raises(BadInput, match="--reward: got nonsense; available: task, sparse, dense, key"):
        world_and_model("nonsense")


def test_worlds_alone_have_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["collect", "--task", "lift", "--reward", "runs/critic", "--out", str(tmp_path / "set")]) == 2
    said = capsys.readouterr().err
    assert "got runs/critic; available: task, sparse, dense" in said and "robolearn reward score" in said


def test_the_loop_has_the_names(tmp_path: Path) -> None:
    at = {"policy": tmp_path, "out": tmp_path}
    assert HilLearner(**at, reward="sparse").shared == HilLearner(**at, reward="task").shared  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="--reward: got dense, expected the world's own"):
        HilRun(**at, reward="dense").check_learner()  # type: ignore[arg-type]
    config = HilLearner(**at, reward="m:C").shared  # type: ignore[arg-type]
    assert HilActor(**at, reward="task").make_done(config, None) is None  # type: ignore[arg-type]


def _fields(kind: type[Any]) -> set[str]:
    own = {one.name for one in dataclasses.fields(kind)}
    return own | {f.name for f in dataclasses.fields(WorldConfig)} if "world" in own else own
