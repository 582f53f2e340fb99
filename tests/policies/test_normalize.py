"""The normaliser against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer, action_range, unfamiliar
from policies.wrappers.wrapper import PolicyWrapper
from robolearn.core import ArraySpec, BadInput, Interface, Observation
from robolearn.core.protocols import UNJUDGED, familiarity
from robolearn.data.lerobot.statistics import describe

INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((4, 6, 3), "uint8")}, ArraySpec((3,)), control_hz=20.0
)


def statistics(**action: list[float]) -> dict:
    return {
        "proprio": {"mean": [1.0, -2.0], "std": [0.5, 0.0]},
        "action": {"min": [-1.0, -0.2, 1.0], "max": [1.0, 0.6, 1.0]} | action,
    }


def test_observations_are_standardised_and_clipped():
    norm = Normalizer.from_statistics(INTERFACE, statistics())
    image = torch.full((1, 4, 6, 3), 255, dtype=torch.uint8)
    image[..., 1] = 51
    out = norm.observation({"proprio": torch.tensor([[2.0, -2.0005]]), "images.front": image, "unused": torch.ones(1)})
    # (2 − 1)/0.5 = 2; a component that never moved is divided by the floor 0.001: −0.0005/0.001 = −0.5
    torch.testing.assert_close(out["proprio"], torch.tensor([[2.0, -0.5]]), atol=1e-3, rtol=0)
    assert norm.observation({"proprio": torch.tensor([[99.0, 9.0]]), "images.front": image})["proprio"].tolist() == [
        [10.0, 10.0]
    ]
    assert out["images.front"].shape == (1, 3, 4, 6)
    assert out["images.front"][0, :, 0, 0].tolist() == pytest.approx([1.0, 0.2, 1.0])
    assert "unused" not in out
    history = norm.observation({"proprio": torch.ones(5, 2, 2), "images.front": image[:, None].expand(5, 2, 4, 6, 3)})
    assert history["proprio"].shape == (5, 2, 2)
    assert history["images.front"].shape == (5, 2, 3, 4, 6)


def by_extremes(mean: list[float], std: list[float], least: list[float], most: list[float]) -> Normalizer:
    found = statistics() | {"proprio": {"mean": mean, "std": std, "min": least, "max": most}}
    return Normalizer.from_statistics(INTERFACE, found)


def test_a_joint_that_never_moved_and_is_half_a_degree_off_is_no_signal():
    """0.3° = 5.2 mrad is 3.4 steps of an encoder of 12 bits, of 1.53 mrad, between which it jittered when it stood."""
    norm = by_extremes([1.0, -2.0], [0.5, 0.00077], [0.0, -2.00077], [2.0, -1.99923])
    image = torch.zeros(1, 4, 6, 3, dtype=torch.uint8)
    seen = norm.observation({"proprio": torch.tensor([[1.5, -2.0 + 0.005236]]), "images.front": image})["proprio"]
    torch.testing.assert_close(seen, torch.tensor([[1.0, 0.052]]), atol=1e-3, rtol=0)
    # Evenly over two steps, which deviates by 1.25 mrad: by step √(2/3).
    norm = by_extremes([1.0, -2.0], [0.5, 0.00125], [0.0, -2.001534], [2.0, -1.998466])
    seen = norm.observation({"proprio": torch.tensor([[1.5, -2.0 + 0.005236]]), "images.front": image})["proprio"]
    torch.testing.assert_close(seen, torch.tensor([[1.0, 0.052]]), atol=1e-3, rtol=0)
    # A millimetre within four is a motion, however rare: the floor stays at one.
    norm = by_extremes([1.0, -2.0], [0.5, 0.0004], [0.0, -2.0], [2.0, -1.996])
    seen = norm.observation({"proprio": torch.tensor([[1.5, -1.999]]), "images.front": image})["proprio"]
    torch.testing.assert_close(seen, torch.tensor([[1.0, 1.0]]), atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("arm", "step", "held"),
    [("so101", 2 * np.pi / 2**12, 2), ("panda", 2 * np.pi / 2**19, 83), ("ur5e", 2 * np.pi / 2**19, 83)],
)
def test_what_a_controller_holds_is_no_signal_whatever_its_encoder_resolves(arm: str, step: float, held: int):
    """A joint stays within two steps of 1.53 mrad, or within 83 of 12 µrad: a milliradian, as far as one that is held
    sags. Half a degree beside it, which is the arm after another calibration, is a tenth of a deviation. A joint that
    went 4 mrad, 4 mm at the end of an arm of a metre, is seen from end to end whatever the arm."""
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 20.0, arm)
    frames = np.stack([np.linspace(0, held * step, 101), np.linspace(0, 0.004, 101)], 1)
    norm = Normalizer.from_statistics(interface, {"proprio": describe(frames), "action": {"min": [-1], "max": [1]}})
    ends = [[held * step / 2 + 0.008727, 0.0], [held * step / 2 - 0.008727, 0.004]]
    seen = norm.observation({"proprio": torch.tensor(ends)})["proprio"]
    assert seen[:, 0].abs().max() < 0.1
    assert (seen[1, 1] - seen[0, 1]).item() == pytest.approx(0.004 / 0.001168, rel=0.02)  # evenly: 4 mrad / √12


def test_quantiles_are_not_moved_by_wild_frames():
    """Of 0 … 1 evenly: q01 = 0.01, q99 = 0.99; of a component that rests but for a frame they are one number."""
    rest = np.where(np.arange(1001) == 7, 0.5, 0.0)
    frames = np.stack([np.linspace(0, 1, 1001), rest], 1)
    wild = np.append(frames[:-5], np.full((5, 2), [-9999.0, 0.0]), 0)
    image = torch.zeros(1, 4, 6, 3, dtype=torch.uint8)

    def seen(of: np.ndarray) -> list[float]:
        norm = Normalizer.from_statistics(INTERFACE, statistics() | {"proprio": describe(of)}, quantiles=True)
        return norm.observation({"proprio": torch.tensor([[0.99, 0.5]]), "images.front": image})["proprio"][0].tolist()

    assert seen(frames) == pytest.approx([2.326, 10.0], rel=1e-4), "0.5 / 0.0158 is beyond 10"
    assert seen(wild)[0] == pytest.approx(2.326, abs=0.03)
    with pytest.raises(BadInput, match="no 'q01'"):
        Normalizer.from_statistics(INTERFACE, statistics(), quantiles=True)


@pytest.mark.parametrize(
    ("half", "pan", "refused", "warned"),
    [
        (2.0, 2 * np.pi, True, False),  # 5.4 deviations away
        (2.0, 1.9 - 2 * np.pi, True, False),
        (2.5, 2 * np.pi, True, False),
        (2.5, -1.5 + 2 * np.pi, True, False),
        (3.0, 2 * np.pi, True, False),
        (2.0, 0.5 + 4 * np.pi, True, False),  # two turns
        (2.5, 2.4, False, False),
        (2.5, -2.5, False, False),
        (1.0, 3.5, False, True),  # not seen, and not nearer by a turn
        (1.0, 2 * np.pi - 2.0, False, True),  # nearer by a turn, and not seen there either
    ],
)
def test_a_turn_is_found_however_far_the_demonstrations_went(half: float, pan: float, refused: bool, warned: bool):
    """Evenly to either side by `half`: deviation half / √3."""
    norm = by_extremes([0.0, -2.0], [half / np.sqrt(3), 0.5], [-half, -3.0], [half, -1.0])
    interface = Interface({"proprio": ArraySpec((2,), names=("pan", "lift"))}, ArraySpec((3,)), 20.0)
    no, said = unfamiliar(norm, interface, {"proprio": np.array([[pan, -2.0]], np.float32)})
    assert (bool(no), bool(said)) == (refused, warned), (no, said)


def test_what_a_joint_seldom_did_is_no_turn():
    """In two of a hundred frames the wrist was 3.5 rad from where it mostly is, beyond half a turn."""
    wrist = np.where(np.arange(1000) % 50 == 0, 3.5, 0.0)
    norm = by_extremes([wrist.mean(), -2.0], [wrist.std(), 0.5], [0.0, -3.0], [3.5, -1.0])
    interface = Interface({"proprio": ArraySpec((2,), names=("wrist", "lift"))}, ArraySpec((3,)), 20.0)
    no, _ = unfamiliar(norm, interface, {"proprio": np.array([[3.5, -2.0]], np.float32)})
    assert not no


def test_a_policy_that_cannot_judge_says_so():
    interface = Interface({"proprio": ArraySpec((2,))}, ArraySpec((3,)), 20.0)
    blind = Normalizer(Interface({"objects": ArraySpec((2,))}, ArraySpec((3,)), 20.0))
    here = {"proprio": np.zeros((1, 2), np.float32)}
    assert unfamiliar(blind, interface, here) == ("", UNJUDGED)

    class Exported:
        interface, execute_steps, observes_every_step = INTERFACE, 1, False

    assert familiarity(Exported(), here) == familiarity(PolicyWrapper(Exported()), here) == ("", UNJUDGED)
    assert familiarity(Judging(), here) == familiarity(PolicyWrapper(Judging()), here) == ("turn", "far")


class Judging:
    interface, execute_steps, observes_every_step = INTERFACE, 1, False

    def unfamiliar(self, observation: Observation) -> tuple[str, str]:
        return "turn", "far"


@pytest.mark.parametrize(
    ("pan", "still", "refused", "warned"),
    [
        (0.4, -2.0, False, False),
        (0.4 + 2 * np.pi, -2.0, True, False),
        (0.4 - 2 * np.pi, -2.0, True, False),
        (0.4 + np.pi, -2.0, False, True),
        (0.4, -2.0 + np.radians(0.3), False, False),
        (0.4, -2.0 + np.radians(3.0), False, True),
        (0.4, -2.0 + 2 * np.pi, True, False),
    ],
)
def test_what_a_policy_has_not_seen(pan: float, still: float, refused: bool, warned: bool):
    norm = by_extremes([0.3, -2.0], [0.2, 0.0], [-0.2, -2.0], [0.8, -2.0])
    interface = Interface({"proprio": ArraySpec((2,), names=("pan", "lift"))}, ArraySpec((3,)), 20.0)
    no, said = unfamiliar(norm, interface, {"proprio": np.array([[pan, still]], np.float32)})
    assert (bool(no), bool(said)) == (refused, warned)
    if refused:
        assert "a whole turn" in no and ("pan at" in no) == (pan != 0.4) and "Turn it back" in no
    if warned:
        assert "has not seen this" in said and "in the demonstrations about" in said


def test_action_range_by_hand():
    centre, half = action_range(torch.tensor([-1.0, -0.2, 1.0, 0.30]), torch.tensor([1.0, 0.6, 1.0, 0.32]))
    # full range stays; [-0.2, 0.6] → ±0.4·1.1 around 0.2; a constant 1 → [0.9, 1.0]; narrow → ±0.05 around 0.31
    torch.testing.assert_close(centre, torch.tensor([0.0, 0.2, 0.95, 0.31]))
    torch.testing.assert_close(half, torch.tensor([1.0, 0.44, 0.05, 0.05]))


def test_actions_there_and_back_stay_in_the_worlds_range():
    norm = Normalizer.from_statistics(INTERFACE, statistics())
    action = torch.rand(100, 4, 3) * 2 - 1
    torch.testing.assert_close(norm.action_back(norm.action(action)), action, atol=1e-5, rtol=1e-5)
    for edge in (-1.0, 1.0):
        assert norm.action_back(torch.full((1, 3), edge)).abs().max() <= 1.0
    assert norm.action(torch.tensor([-1.0, -0.2, 1.0])).abs().max() <= 1.0 + 1e-6


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({}, "proprio"),
        ({"proprio": {"mean": [0, 0]}}, "no 'std'"),
        ({"proprio": {"mean": [0, 0, 0], "std": [1, 1, 1]}}, r"\(3,\)"),
        ({"proprio": {"mean": [0, float("nan")], "std": [1, 1]}}, "NaN"),
    ],
)
def test_statistics_that_do_not_fit(broken, words):
    with pytest.raises(BadInput, match=words):
        Normalizer.from_statistics(INTERFACE, broken)


def test_observations_that_do_not_fit():
    norm = Normalizer.from_statistics(Interface({"proprio": ArraySpec((2,))}, ArraySpec((3,)), 20.0), statistics())
    with pytest.raises(BadInput, match="no 'proprio'"):
        norm.observation({"objects": torch.ones(1, 2)})
    with pytest.raises(BadInput, match=r"\(3,\)"):
        norm.observation({"proprio": torch.from_numpy(np.ones((1, 3), np.float32))})
