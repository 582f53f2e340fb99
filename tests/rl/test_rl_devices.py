"""Fine-tuning makes every tensor where it is told to, never on torch's default device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robolearn.eval import evaluate

pytestmark = pytest.mark.long

Make = Callable[..., Any]


@pytest.mark.parametrize("noise", ["NOISE", "EVERYWHERE", "CALIBRATED"])
@pytest.mark.parametrize(
    "shape",
    [{"kind": "rectified"}, {"kind": "shortcut"}, {"family": "diffusion"}],
    ids=["flow", "shortcut", "diffusion"],
)
@pytest.mark.parametrize("algo", ["reinflow", "dppo", "grpo"])
def test_an_algorithm_learns_where_it_is_told_to(
    make_policy: Make, point: Make, kit: Any, request: pytest.FixtureRequest, algo: str, shape: dict, noise: str
):
    """The same numbers as with the CPU for a default; with one thread, as torch keeps a default device per thread."""
    regulariser = {"NOISE": "kl", "EVERYWHERE": "w2", "CALIBRATED": "none"}[noise]

    def begin() -> Any:
        world = point(8, pixels=True)
        policy = make_policy(world.interface, horizon=2, execute=2, **shape).to("cpu")
        settings = {"threads": 1, "regulariser": regulariser, "regularisation": 0.1, "noise": getattr(kit, noise)}
        return kit.runner(world, policy, algo, **settings)

    usual = begin()
    rows = kit.run(usual, 0, 2)
    request.getfixturevalue("no_default_device")
    made = begin()
    np.testing.assert_equal(kit.run(made, 0, 2), rows)
    again = begin()
    state, meta = made.state()
    assert all(tensor.device.type == "cpu" for tensor in state.values())
    state = {key: value.clone() for key, value in state.items()}
    expected = kit.run(made, 2, 3)
    again.load_state(state, meta)
    np.testing.assert_equal(kit.run(again, 2, 3), expected)
    assert evaluate(point(4, pixels=True), made.algorithm.policy(), 4, seed=0).episodes == 4
