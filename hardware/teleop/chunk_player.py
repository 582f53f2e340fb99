"""A policy's chunks, one action per control step, for a loop that must not wait: inference has a thread of its own.

The next chunk is asked for with the observation of the last step of the present one. That step is executed meanwhile,
so that it goes on at its second action; where actions are displacements it goes on from where the steps that were
executed since then have led (`robots.chunk_execution`). One that comes late is bridged by the tail of the old chunk,
and then holds the arm for `GRACE` steps. Chunks are blended and held as those of a deployment (`execution.streamer`).
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Policy, RobolearnError
from robots.chunk_execution import ActionParts, ChunkExecutor

log = logging.getLogger(__name__)

GRACE = 2  # steps beyond a chunk's end


@dataclass(frozen=True)
class _Job:
    life: int  # which `begin` it belongs to
    step: int
    observation: dict[str, NDArray]
    acts: bool  # else the policy only takes it into its history


class ChunkPlayer:
    """Plays `policy` for one arm.

    Args:
      policy: bound to the station.
      seed: of its randomness.

    Raises:
      BadInput: the policy's chunks are no chunks.
    """

    def __init__(self, policy: Policy, seed: int = 0) -> None:
        self._policy = policy
        self._life = self._step = self._begun = 0
        self._parts = ActionParts.of(policy.interface)
        self._executor = ChunkExecutor(self._parts, grace=GRACE - 1, blend=True)  # its clock counts control steps
        self._pending = False
        self._error: RobolearnError | None = None
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[_Job, NDArray[np.float32]]] = queue.SimpleQueue()
        policy.reset(seed)
        blank = {key: np.zeros((1, *spec.shape), spec.dtype) for key, spec in policy.interface.observation.items()}
        chunk = np.asarray(policy.act(blank))  # compiled and allocated now, not while the arm moves
        if chunk.ndim != 3 or chunk.shape[2] != policy.interface.action.size:
            raise BadInput("policy's chunk", got=chunk.shape, expected=(1, "steps", policy.interface.action.size))
        policy.reset(seed)
        self._thread = threading.Thread(target=self._infer, name="policy", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        """The arm was elsewhere, or moved by another source: drop the chunk and all history."""
        self._life += 1
        self._executor.clear()
        self._pending = False

    def action(self, observation: Mapping[str, NDArray]) -> NDArray[np.float32] | None:
        """(Da,) for this control step; None while there is none: hold still.

        Args:
          observation: feature → (…) of the one arm.

        Raises:
          RobolearnError: the policy failed.
        """
        if self._error is not None:
            raise self._error
        self._step += 1
        while not self._done.empty():
            job, chunk = self._done.get()
            if job.life == self._life:
                self._executor.put(chunk, job.step, self._step)
                self._begun, self._pending = job.step, False
        step = self._executor.step(self._step)
        k, steps = self._step - self._begun, self._policy.execute_steps
        acts = not self._pending and (step is None or k >= steps - 1)
        if acts or self._policy.observes_every_step:
            seen = {key: np.asarray(observation[key])[None] for key in self._policy.interface.observation}
            self._jobs.put(_Job(self._life, self._step, seen, acts))
            self._pending = self._pending or acts
        if step is None:
            return None
        held = step.held & self._parts.displaced  # the arm stays where it is
        return np.where(held, 0.0, step.action).astype(np.float32)

    def close(self) -> None:
        """End the thread; more than once is no fault."""
        self._jobs.put(None)
        self._thread.join(2.0)

    def _infer(self) -> None:
        life = -1
        while (job := self._jobs.get()) is not None:
            try:
                if job.life != life:
                    life = job.life
                    self._policy.begin(np.ones(1, dtype=bool))
                if job.acts:
                    self._done.put((job, np.asarray(self._policy.act(job.observation), np.float32)[0]))
                else:
                    self._policy.observe(job.observation)
            except Exception as error:
                log.exception("the policy failed")
                self._error = RobolearnError(f"the policy failed: {error}")
                return
