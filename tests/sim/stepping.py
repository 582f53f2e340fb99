"""A chunk executed step by step through `Env.step`: what `Env.step_chunk` must be equal to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import StepResult


def steps_of(env: Any, chunks: NDArray[np.float32], active: NDArray[np.bool_]) -> StepResult:
    """Execute `chunks` (N, Ta, Da) by single steps; a world rests once its episode has ended."""
    n = env.num_envs
    going, reward, steps = active.copy(), np.zeros(n, np.float32), np.zeros(n, np.int64)
    terminated, truncated, success = (np.zeros(n, bool) for _ in range(3))
    observation: Any = None
    final: dict[str, NDArray] = {}
    for t in range(chunks.shape[1]):
        observation, r, term, trunc, infos = env.step(chunks[:, t], going)
        reward += r
        terminated |= term
        truncated |= trunc
        steps += infos["steps"]
        success |= infos.get("success", False)
        for key, value in infos["final_obs"].items():
            final.setdefault(key, value.copy())[going] = value[going]
        going &= ~infos["_final_obs"]
    infos = {"success": success, "steps": steps, "final_obs": final, "_final_obs": terminated | truncated}
    return observation, reward, terminated, truncated, infos


def assert_same_results(one: StepResult, two: StepResult) -> None:
    """Bit for bit, infos included."""
    for a, b in zip(one[1:4], two[1:4], strict=True):
        np.testing.assert_array_equal(a, b)
    for key in one[0]:
        np.testing.assert_array_equal(one[0][key], two[0][key], err_msg=key)
        np.testing.assert_array_equal(one[4]["final_obs"][key], two[4]["final_obs"][key], err_msg=f"final {key}")
    for key in ("steps", "_final_obs", "success"):
        np.testing.assert_array_equal(one[4][key], two[4][key], err_msg=key)
