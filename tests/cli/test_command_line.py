"""Settings become the words of a command line in one way, and the words become the same settings."""

from __future__ import annotations

import contextlib
import dataclasses
import types
import typing
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from robolearn.cli.config_file import flags_of
from robolearn.cli.main import parse
from robolearn.cli.registry import ENTRIES, Entry
from robolearn.core import BadInput
from robolearn.runs.command import command_text, flags, words, words_of

WORD = st.text("abz09._/= é", min_size=1, max_size=8)  # a list of words cannot hold one that looks like a flag
NUMBER = st.floats(allow_nan=False, width=32)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    bool: st.booleans(), int: st.integers(-3, 2**40), float: NUMBER, str: WORD | st.just("") | st.just("-x y"),
    Path: st.builds(Path, WORD), type(None): st.none(),
}  # fmt: skip
FIXED = {
    "config",
    "task",
    "algo",
    "start",
    "policy",
    "policy_settings",
    "preferences",
    "kind",
    "against",
}  # they choose which other flags there are
NEEDED: dict[Any, Any] = {
    Path: Path("x"), str: "x", int: 2, float: 0.5,
    tuple[Path, ...]: (Path("x"), Path("y")), tuple[str, ...]: ("x", "y"),
}  # fmt: skip


def values(hint: Any) -> st.SearchStrategy[Any] | None:
    """Values of a field; None: it holds settings."""
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    if get_origin(hint) is tuple:
        inner = values(get_args(hint)[0])
        assert inner is not None
        least, most = (0, 3) if get_args(hint)[-1] is Ellipsis else 2 * (len(get_args(hint)),)
        words = inner.filter(lambda v: v != "" and not str(v).startswith("-"))
        return st.lists(words, min_size=least, max_size=most).map(tuple)
    if get_origin(hint) in (Union, types.UnionType):
        parts = [values(part) for part in get_args(hint)]
        return None if None in parts else st.one_of(*(part for part in parts if part is not None))
    return LEAVES.get(hint)


def begun(entry: Entry, args: list[str]) -> Any:
    """The command with its own defaults, and something for each flag that it needs."""
    kind = entry.load()
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    needed = [f for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]
    return kind(**{f.name: NEEDED[hints[f.name]] for f in needed}, **kind.defaults(args))


def changed(command: Any, data: st.DataObject) -> Any:
    """The same with some fields drawn anew, wherever its own checks permit it."""
    hints, flagged = typing.get_type_hints(type(command)), {flag.field for flag in flags(command)}
    for field in dataclasses.fields(command):
        value = getattr(command, field.name)
        if dataclasses.is_dataclass(value):
            with contextlib.suppress(BadInput):  # the parts may not go together
                command = dataclasses.replace(command, **{field.name: changed(value, data)})
            continue
        drawn = values(hints[field.name])
        if drawn is None or field.name not in flagged or field.name in FIXED or data.draw(st.integers(0, 3)):
            continue
        if value not in (None, ()) and field.default in (None, ()):  # a default that depends on other flags
            drawn = drawn.filter(lambda v: v not in (None, ()))
        try:
            command = dataclasses.replace(command, **{field.name: data.draw(drawn)})
        except BadInput:
            continue
    return command


CASES = [(entry, []) for entry in ENTRIES]
OTHERS = {  # what else chooses settings: the algorithms and kinds that a command does not take by default
    "finetune": [["--algo", "dppo"], ["--algo", "grpo"], ["--algo", "srpo"]],
    "benchmark rl": [["--algo", "dppo"], ["--algo", "grpo"]],
    "hil run": [["--algo", "rlpd"], ["--algo", "dsrl"]],
    "train": [["--policy", "diffusion"]],
}
CASES += [(entry, args) for entry in ENTRIES for args in OTHERS.get(entry.name, ())]


@pytest.mark.long
@pytest.mark.parametrize(("entry", "args"), CASES, ids=lambda x: x.name if isinstance(x, Entry) else " ".join(x))
@settings(  # without shrinking: it takes minutes here
    max_examples=3, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_settings_words_settings(entry: Entry, args: list[str], data: st.DataObject) -> None:
    command = begun(entry, args)
    if args:
        command = dataclasses.replace(command, **{args[0].strip("-"): args[1]})
    command = changed(command, data)
    assert parse(entry, words_of(command)) == command
    stored = yaml.safe_load(yaml.safe_dump(flags_of(command), sort_keys=False))
    assert words(stored) == words(flags_of(command))


def test_words_by_hand() -> None:
    tree = {
        "steps": 5,
        "video": False,
        "json": True,
        "mix": [0.5, 2],
        "lr": -1.0,
        "start": None,
        "policy": {"k_max": 3},
    }
    assert words(tree) == [
        "--steps", "5", "--no-video", "--json", "--mix", "0.5", "2", "--lr=-1.0", "--k-max", "3",
    ]  # fmt: skip


def test_a_report_s_command_has_what_differs_from_the_defaults() -> None:
    entry = next(entry for entry in ENTRIES if entry.name == "evaluate")
    given = ["--policy", "runs/a b", "--seed", "7", "--json", "--shuffle", "images.wrist"]
    assert command_text("evaluate", parse(entry, given)) == (
        "robolearn evaluate --policy 'runs/a b' --seed 7 --shuffle images.wrist"
    )
    sweep = next(entry for entry in ENTRIES if entry.name == "sweep")
    command = parse(sweep, ["--vary", "lr=1,2", "--out", "runs/x", "--", "train", "--data", "d"])
    assert command_text("sweep", command) == "robolearn sweep --vary lr=1,2 --out runs/x -- train --data d"
