"""The audit: by hand where its rules part, and models that an honest policy would please for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from robolearn.core import BadInput, Score, Window
from robolearn.rl.audit import AuditConfig, Audited, Verdicts, counts
from robolearn.rl.runner import Runner

Make = Callable[..., Any]
NEAR = 0.15


class Model:
    """Done where `rule` of the positions (T + 1,) says so of the T decisions."""

    def __init__(self, rule: Callable[[np.ndarray], np.ndarray]) -> None:
        self.rule = rule

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        found = []
        for window in windows:
            done = np.asarray(self.rule(window.observation["proprio"][:, 0]), bool)
            progress = done.astype(np.float32)
            found.append(Score(progress, progress, done, np.ones(len(done), np.float32)))
        return found


TRUTH = Model(lambda x: np.abs(x[1:]) < NEAR)
ADVERSARIES = {
    "always one": Model(lambda x: np.ones(len(x) - 1)),
    "a clock": Model(lambda x: np.arange(1, len(x)) >= 4),
    "the first frame": Model(lambda x: np.full(len(x) - 1, x[0] > 0)),
}


def audited(point: Make, make_policy: Make, kit: Any, model: Model, rule: Any = "stop", **world: Any) -> Audited:
    made = point(16, **world)
    policy = make_policy(made.interface, horizon=1, execute=1, gain=20.0)
    config = kit.runner(point(16), policy, "reinflow").config
    return Audited(Runner(policy, made, config, 1600, 0, model=model), AuditConfig(audit=rule))


def trained(trainer: Any) -> list[dict[str, float]]:
    torch.set_num_threads(1)
    rows = []
    while len(rows) < trainer.iterations:
        rows.append(trainer.iterate(len(rows)))
    return rows


def test_the_counts_by_hand() -> None:
    found = counts([(True, True), (True, False), (True, False), (False, True), (False, False)])
    assert found == {"called_done": 0.6, "called_solved": 1.0, "called_failed": 2.0, "uncalled_solved": 1.0}


def test_where_the_rules_part_by_hand() -> None:
    """Of 0 of n the upper bound is 1 − 0.005^(1/n), of n of n the lower one 0.005^(1/n)."""
    no_false = AuditConfig(audit_false=1.0)
    assert 1 - 0.005 ** (1 / 7) > 0.5 > 1 - 0.005 ** (1 / 8)
    assert not Verdicts(0, 7, 0, 7).parted(no_false)
    assert "0% are solved (at most 48%)" in Verdicts(0, 8, 0, 8).parted(no_false)
    assert 0.005 ** (1 / 3) < 0.2 < 0.005 ** (1 / 4)
    assert not Verdicts(90, 3, 0, 93).parted(AuditConfig())
    parted = Verdicts(90, 4, 0, 94).parted(AuditConfig())
    assert "100% of the last 4 failed" in parted and "at least 27%" in parted, "though 96% of what it calls is solved"
    assert not Verdicts(0, 0, 50, 100).parted(AuditConfig()), "one that never calls is blind, and pleases nobody"
    assert not Verdicts(0, 0, 0, 0).parted(AuditConfig())


@pytest.mark.long
@pytest.mark.parametrize("name", ADVERSARIES)
def test_each_adversary_ends_the_run(point: Make, make_policy: Make, kit: Any, name: str) -> None:
    trainer = audited(point, make_policy, kit, ADVERSARIES[name])
    planned = trainer.iterations
    rows = trained(trainer)
    found = trainer.to_json()
    assert found["stopped"] and found["parted"] and trainer.iterations == len(rows) < planned
    for column in ("audit_precision", "audit_false"):
        assert rows[-1][f"{column}_low"] <= rows[-1][column] <= rows[-1][f"{column}_high"]


@pytest.mark.long
def test_the_truth_ends_none_and_has_no_false_positive(point: Make, make_policy: Make, kit: Any) -> None:
    trainer = audited(point, make_policy, kit, TRUTH)
    rows = trained(trainer)
    found = trainer.to_json()
    assert not found["stopped"] and not found["parted"] and len(rows) >= 8
    assert found["precision"]["rate"] == 1.0 and found["false_positives"]["rate"] == 0.0
    episodes = sum(row["episodes"] for row in rows)
    assert sum(row["called_solved"] for row in rows) == round(sum(row["success"] * row["episodes"] for row in rows))
    assert 100 <= trainer.verdicts.episodes < episodes, "the newest, not all"


@pytest.mark.long
def test_warn_says_it_once_and_goes_on_and_off_does_not_look(
    point: Make, make_policy: Make, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    warned = audited(point, make_policy, kit, ADVERSARIES["always one"], "warn")
    planned = warned.iterations
    assert len(trained(warned)) >= planned and warned.to_json()["parted"] and not warned.to_json()["stopped"]
    assert len([r for r in caplog.records if "reward model" in r.getMessage()]) == 1
    off = trained(audited(point, make_policy, kit, ADVERSARIES["always one"], "off"))
    assert not any(key.startswith("audit") for row in off for key in row)
    caplog.clear()
    mute = trained(audited(point, make_policy, kit, ADVERSARIES["always one"], mute=True))
    assert len(mute) >= planned and caplog.text.count("reports no success") == 1


def test_a_resumed_run_compares_what_it_had_and_goes_on_only_with_warn(
    point: Make, make_policy: Make, kit: Any
) -> None:
    ended = audited(point, make_policy, kit, ADVERSARIES["a clock"])
    count = len(trained(ended))
    tensors, meta = ended.state()
    again = audited(point, make_policy, kit, ADVERSARIES["a clock"])
    again.load_state({key: value.clone() for key, value in tensors.items()}, meta)
    assert again.iterations == count and again.to_json() == ended.to_json()
    on = audited(point, make_policy, kit, ADVERSARIES["a clock"], "warn")
    on.load_state({key: value.clone() for key, value in tensors.items()}, meta)
    assert on.iterations > count and on.verdicts == ended.verdicts


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(BadInput, match="--audit-window"):
        AuditConfig(audit_window=0)
    with pytest.raises(BadInput, match="--audit-false"):
        AuditConfig(audit_false=1.5)
