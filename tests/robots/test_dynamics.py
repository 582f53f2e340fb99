"""Distributions of an arm's dynamics, their files, and the way of a set-point to the motors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from robolearn.core import BadInput
from robots import PANDA, ROBOTS, SO101
from robots.dynamics import DYNAMICS, NONE, PARAMETERS, DynamicsConfig, Spread, uniform
from robots.dynamics_file import load_dynamics, write_dynamics
from robots.transmission import transmit


def test_a_draw_depends_on_its_key_and_on_when_it_is_drawn() -> None:
    spreads = {
        "gain": uniform(0.5, 1.5),
        "damping": uniform(0.5, 1.5, "world"),
        "payload": uniform(0.0, 1.0, "run"),
    }
    config = DynamicsConfig("x", spreads)
    a, again, next_episode, other = (config.draw(PANDA, key) for key in ((3, 1, 0), (3, 1, 0), (3, 1, 1), (3, 2, 0)))
    for name in spreads:
        np.testing.assert_array_equal(a[name], again[name])
    assert np.all(a["gain"] != next_episode["gain"]) and np.all(a["gain"] != other["gain"])
    np.testing.assert_array_equal(a["damping"], next_episode["damping"])
    assert np.all(a["damping"] != other["damping"])
    np.testing.assert_array_equal(a["payload"], other["payload"])
    assert config.draw(PANDA, (4, 1, 0))["payload"] != a["payload"]


@pytest.mark.long
def test_draws_have_the_distributions_and_the_correlation_that_are_asked_for() -> None:
    means = tuple(1.0 + 0.01 * i for i in range(7))
    config = DynamicsConfig(
        "x",
        {"gain": Spread("normal", means, (0.05,)), "damping": uniform(0.5, 2.0)},
        correlated=("gain.2", "damping.5"),
        correlation=((1.0, 0.8), (0.8, 1.0)),
    )
    draws = [config.draw(PANDA, (0, 0, i)) for i in range(4000)]
    gain, damping = (np.array([draw[name] for draw in draws]) for name in ("gain", "damping"))
    for i in range(7):
        assert stats.kstest(gain[:, i], stats.norm(means[i], 0.05).cdf).pvalue > 1e-4
        assert stats.kstest(damping[:, i], stats.uniform(0.5, 1.5).cdf).pvalue > 1e-4
    # Φ of correlated normals: the rank correlation is 6/π arcsin(ρ/2).
    assert stats.spearmanr(gain[:, 2], damping[:, 5])[0] == pytest.approx(6 / np.pi * np.arcsin(0.4), abs=0.03)
    assert abs(float(stats.spearmanr(gain[:, 2], damping[:, 4])[0])) < 0.06  # type: ignore[arg-type]


def test_a_normal_distribution_is_truncated_to_the_bounds() -> None:
    """Against scipy's: half a normal distribution above its bound, and both bounds within reach; a constant stays."""
    means = (0.0, 0.0, 0.002, 0.05, 0.09, 0.1, 0.1)
    sds = (0.005, 0.0, 0.003, 0.05, 0.03, 0.005, 0.0)
    config = DynamicsConfig("x", {"backlash": Spread("normal", means, sds), "damping": uniform(0.5, 2.0)})
    draws = [config.draw(PANDA, (0, 0, i)) for i in range(4000)]
    values = np.array([draw["backlash"] for draw in draws])
    assert set(values[:, 1]) == {0.0} and set(values[:, 6]) == {0.1}
    for i in (0, 2, 3, 4, 5):
        ends = [(bound - means[i]) / sds[i] for bound in (0.0, 0.1)]
        truncated = stats.truncnorm(*ends, means[i], sds[i])
        assert stats.kstest(values[:, i], truncated.cdf).pvalue > 1e-3, i
        assert len(np.unique(values[:, i])) == len(values), "none is set to a bound"
    # One normal draw each, as without bounds: what else is drawn stays as it is.
    alone = DynamicsConfig("x", {"backlash": uniform(0.0, 0.1), "damping": uniform(0.5, 2.0)})
    np.testing.assert_array_equal(draws[0]["damping"], alone.draw(PANDA, (0, 0, 0))["damping"])


def test_a_correlated_value_beyond_a_bound_is_set_to_it() -> None:
    """So that the others stay where their relation puts them: gain = 1 − 10 backlash, with play that cannot be less
    than none."""
    spreads = {"gain": Spread("normal", (1.0,), (0.05,)), "backlash": Spread("normal", (0.0,), (0.005,))}
    names, matrix = ("gain.0", "backlash.0"), ((1.0, -0.99999), (-0.99999, 1.0))
    draws = [DynamicsConfig("x", spreads, "", names, matrix).draw(PANDA, (0, 0, i)) for i in range(400)]
    gain, backlash = (np.array([draw[name][0] for draw in draws]) for name in ("gain", "backlash"))
    np.testing.assert_allclose(backlash, np.maximum(0.0, 0.1 * (1.0 - gain)), atol=1e-4)
    assert 0.4 < np.mean(backlash == 0.0) < 0.6
    assert all(draw["backlash"][1:].min() > 0.0 for draw in draws), "the others are truncated"


@pytest.mark.parametrize("name", ["mild", "wild"])
def test_the_levels_stay_within_the_bounds_and_wild_is_wider(name: str) -> None:
    config = DYNAMICS[name]
    values = [config.draw(SO101, (1, w, 0)) for w in range(50)]
    for parameter in values[0]:
        stacked = np.stack([draw[parameter] for draw in values])
        assert stacked.shape[1] == PARAMETERS[parameter].count(5)
        assert stacked.min() >= PARAMETERS[parameter].low and stacked.max() <= config.most(parameter) + 1e-12
        wild = DYNAMICS["wild"].spreads[parameter]
        assert wild.b[0] - wild.a[0] >= config.spreads[parameter].b[0] - config.spreads[parameter].a[0]


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    config = DynamicsConfig(
        "x",
        {"gain": Spread("normal", (1.1,) * 7, (0.02,), "world"), "command_delay": uniform(0.03, 0.05)},
        "panda",
        ("gain.0", "gain.1"),
        ((1.0, -0.5), (-0.5, 1.0)),
    )
    found = load_dynamics(str(write_dynamics(tmp_path / "arm.json", config)))
    assert found.spreads == {**NONE.spreads, **config.spreads}
    assert (found.robot, found.correlated, found.correlation) == ("panda", config.correlated, config.correlation)
    text = "parameters:\n  backlash: 0.004\n  payload: {uniform: [0, 1]}\n"
    (tmp_path / "b.yaml").write_text(text)
    found = load_dynamics(str(tmp_path / "b.yaml"))
    assert found.spreads["backlash"] == Spread("normal", (0.004,), (0.0,))
    assert set(found.draw(PANDA, (0, 0, 0))["backlash"]) == {0.004}
    for arm in ROBOTS.values():
        found.check(arm)


BAD: dict[str, tuple[dict, str]] = {
    "another-arm": ({"robot": "pandda", "parameters": {}}, "got pandda; available: panda"),
    "unknown": ({"parameters": {"gains": 1}}, "unknown key in parameters: got gains; available: link_mass"),
    "mass": ({"parameters": {"link_mass": {"uniform": [0.0, 1.1]}}}, "link_mass: got 0, expected 0.2 to 5 ×"),
    "negative": ({"parameters": {"object_mass": -1}}, "object_mass: got -1, expected 0.05 to 20"),
    "bounds": ({"parameters": {"command_delay": {"mean": 2.0, "sd": 0.1}}}, "command_delay: got 2, expected 0 to 0.5"),
    "order": ({"parameters": {"gain": {"uniform": [1.2, 0.8]}}}, "expected low at most high"),
    "both": ({"parameters": {"gain": {"uniform": [1, 1], "mean": 1}}}, "expected uniform: [low, high], or mean: and"),
    "when": ({"parameters": {"gain": {"mean": 1, "when": "never"}}}, "got never; available: episode, world, run"),
    "joints": ({"robot": "panda", "parameters": {"gain": [1, 1]}}, "gain: got 2 values, expected one value or 7"),
    "text": ({"parameters": {"gain": "high"}}, "expected a number"),
    "sd": ({"parameters": {"gain": {"mean": 1, "sd": -0.1}}}, "sd: got -0.1, expected 0 or more"),
    "thing": ({"parameters": {"object_mass": {"mean": 1, "when": "run"}}}, "expected when: episode"),
    "matrix": (
        {"robot": "panda", "parameters": {"gain": 1}, "correlation": {"names": ["gain.0"], "matrix": [[2.0]]}},
        "expected a positive definite 1 × 1 matrix",
    ),
    "name": (
        {"robot": "panda", "parameters": {"gain": 1}, "correlation": {"names": ["gain.7"], "matrix": [[1.0]]}},
        "correlation: got gain.7; available: gain.0",
    ),
    "things": (
        {
            "parameters": {"gain": 1, "contact_friction": 1},
            "correlation": {"names": ["gain.0", "contact_friction.0"], "matrix": [[1, 0.5], [0.5, 1]]},
        },
        "correlation: got contact_friction.0; available: gain. Things of a task are drawn by themselves",
    ),
    "not-drawn": (
        {
            "parameters": {"gain": {"mean": 1, "when": "world"}},
            "correlation": {"names": ["gain.0", "command_delay.0"], "matrix": [[1, 0.5], [0.5, 1]]},
        },
        "correlation: got command_delay.0; available: gain",
    ),
    "twice": (
        {
            "parameters": {"gain": {"mean": 1, "sd": 0.1}},
            "correlation": {"names": ["gain.0", "gain.0"], "matrix": [[1, 0.5], [0.5, 1]]},
        },
        "correlation: got gain.0 twice, expected each name once",
    ),
    "rows": (
        {"parameters": {"gain": 1}, "correlation": {"names": ["gain.0"], "matrix": [[1, 0], [0, 1]]}},
        "expected a positive definite 1 × 1 matrix",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_in_a_file_are_one_line(case: str, tmp_path: Path) -> None:
    content, said = BAD[case]
    path = tmp_path / "arm.json"
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput) as error:
        load_dynamics(str(path)).check(PANDA)
    assert said in str(error.value) and "arm.json" in str(error.value) and "\n" not in str(error.value)


def test_a_file_of_another_arm_and_names_that_are_none(tmp_path: Path) -> None:
    path = write_dynamics(tmp_path / "a.json", DynamicsConfig("x", {"gain": uniform(1, 1)}, "fr3"))
    with pytest.raises(BadInput, match="got of the arm fr3, expected of panda"):
        load_dynamics(str(path)).check(PANDA)
    with pytest.raises(BadInput, match=r"available: none, mild, wild.*did you mean mild"):
        load_dynamics("midl")
    with pytest.raises(BadInput, match="which is not there"):
        load_dynamics(str(tmp_path / "b.yaml"))


@pytest.mark.long
def test_set_points_come_late_by_whole_steps_and_parts_of_one() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 30, 3))
    line = np.zeros((4, 6, 3))
    rows, delay = np.array([3, 1]), np.array([2.25, 5.0])
    got = x.copy()
    for part in (slice(0, 7), slice(7, 8), slice(8, 30)):  # in pieces, as control steps come
        piece = got[:, part].copy()
        transmit(piece, line, delay, np.zeros((4, 3)), np.zeros((4, 3)), rows)
        got[:, part] = piece
    k = np.arange(30)
    for m in range(2):
        for i in range(3):
            padded = np.concatenate([np.zeros(10), x[m, :, i]])
            np.testing.assert_allclose(got[m, :, i], np.interp(k - delay[m], np.arange(-10, 30), padded), atol=1e-12)
    assert not line[[0, 2]].any()


def test_a_joint_follows_once_the_play_is_crossed() -> None:
    """By hand: play 0.2 about 0, up to 1 and back."""
    x = np.array([0.05, 0.3, 1.0, 0.95, 0.85, 0.5])[None, :, None]
    last = np.zeros((1, 1))
    transmit(x, np.zeros((1, 2, 1)), np.zeros(1), np.full((1, 1), 0.2), last, np.array([0]))
    np.testing.assert_allclose(x[0, :, 0], [0.0, 0.2, 0.9, 0.9, 0.9, 0.6])
    assert last[0, 0] == x[0, -1, 0]


def test_a_number_of_json_is_a_number(tmp_path: Path) -> None:
    config = DynamicsConfig("x", {"payload": Spread("normal", (1e-9,), (2e-10,))})
    assert "e-" in write_dynamics(tmp_path / "found.json", config).read_text()
    assert load_dynamics(str(tmp_path / "found.json")).spreads["payload"] == config.spreads["payload"]
