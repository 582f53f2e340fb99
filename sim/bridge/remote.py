"""N worlds in workers, each with a share of them: `--workers`. What they do is bit for bit what they do in one process.

The j-th episode of a world depends on (seed, start id, j) and its actions alone, so that where it runs changes nothing:
worker k has worlds of its own and is given their start ids. The policy stays here and decides for all N worlds at once.
So nothing acts by old weights, and no weights are sent: only actions go out, and what is seen comes back.

A worker that dies is started again, elsewhere where its node is gone. Its worlds begin their running episodes again and
are given the actions that they had: these episodes are run twice, no other is, and no result differs.
"""

from __future__ import annotations

import logging
import os
import time
from dataclasses import replace
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

import robolearn
from robolearn.core import BadInput, Interface, NonFinite, Observation, RobolearnError, StepResult
from robolearn.core.specs import is_image
from sim.bridge import share
from sim.bridge.far.errors import from_parts
from sim.bridge.hosts import Host, Worker, WorkerLost, host_of
from sim.bridge.memory import EpisodeLog
from sim.bridge.share import Arrays
from sim.registry import WorldConfig
from sim.vector import SNAPSHOT_AXES, checked_chunks, declare, first_starts

log = logging.getLogger(__name__)

HERE = {
    "two_way": "--back-policy",
    "pushed": "--push or --adversary",
    "begin_along": "--begin-along",
}  # worlds whose episodes need more than their seed and their actions: what was before them, or what is set meanwhile
DEATHS = 3  # of one worker without an answer between them
TOLD_S = 60.0  # [s] between two lines about the nodes


class RemoteShare:
    """The worlds `rows` of the vector env, in a worker; `log`: what a new worker needs to be where this one is."""

    def __init__(self, number: int, rows: slice, worker: Worker) -> None:
        self.number, self.rows, self.worker = number, rows, worker
        self.log = EpisodeLog(rows.stop - rows.start)
        self.node = ""
        self.steps = self.traffic = 0  # control steps; bytes there and back
        self.deaths = self.died = 0  # deaths in a row, and of all

    @property
    def name(self) -> str:
        where = f" on {self.node}" if self.node else ""
        return f"worker {self.number}{where} (worlds {self.rows.start} to {self.rows.stop - 1})"


class RemoteWorlds(VectorEnv):
    """A `robolearn.core.ChunkEnv` of worlds in workers of `host`, which is closed with it.

    Attributes:
      parts: the shares of the worlds, each with its worker.
      demonstrates, says: see `AdapterVectorEnv`.
    """

    steps_together = False

    def __init__(self, config: WorldConfig, num_envs: int, host: Host) -> None:
        self.num_envs, self._host = num_envs, host
        self._config = share.to_json(config)
        self.parts: list[RemoteShare] = []
        self._seed: int | None = None
        self._broken = ""
        self._ids, self._episode = np.arange(num_envs), np.zeros(num_envs, np.int64)
        self._observation: Observation = {}
        self._told = self._begun = time.monotonic()
        try:
            if not host.count:
                raise BadInput("--workers", got="a cluster without CPUs", expected="a node that has some")
            for k, rows in enumerate(np.array_split(np.arange(num_envs), min(host.count, num_envs))):
                self.parts.append(RemoteShare(k, slice(int(rows[0]), int(rows[-1]) + 1), host.start(k)))
            for part in self.parts:
                self._send_open(part)
            facts, *_ = [self._opened(part) for part in self.parts]
        except WorkerLost as lost:
            self.close()
            raise RobolearnError(f"a worker of {config.task} does not start: {lost}") from lost
        except BaseException:
            self.close()
            raise
        self.interface = Interface.from_json(facts["interface"])
        self.task, self.prompt, self.max_episode_steps = facts["task"], facts["prompt"], facts["max_episode_steps"]
        self.reports_success, self.continuing = facts["reports_success"], facts["continuing"]
        self.demonstrates, self.says = facts["demonstrates"], tuple(facts["says"])
        declare(self, self.interface)
        self._told = self._begun = time.monotonic()

    # --- the vector env ---------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]:
        """See `robolearn.core.Env.reset`."""
        ids, first = first_starts(options, self.num_envs)
        if seed is not None or ids is not None or self._seed is None:
            if seed is not None or self._seed is None:
                self._seed = int(np.random.SeedSequence().generate_state(1)[0]) if seed is None else int(seed)
            self._ids, self._episode = np.arange(self.num_envs) if ids is None else ids, first
        else:
            self._episode = self._episode + 1
        for part in self.parts:
            part.log.begin_all()
        answers = self._ask(share.RESET, [self._start(part) for part in self.parts])
        self._observation = self._joined(answers)
        self._report()
        solved = self._success(answers)
        return self._observation, {} if solved is None else {"success": solved}

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """One control step; see `robolearn.core.Env.step`."""
        return self.step_chunk(np.asarray(actions, np.float32)[:, None], active)

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """See `robolearn.core.ChunkEnv.step_chunk`."""
        n, size = self.num_envs, self.interface.action.size
        chunks, live = checked_chunks(chunks, n, size, active)
        asked = [(p, {"chunks": chunks[p.rows], "active": live[p.rows]}, {}) for p in self.parts if live[p.rows].any()]
        answers = self._ask(share.CHUNK, asked)
        steps, rewards = np.zeros(n, np.int64), np.zeros(chunks.shape[:2], np.float32)
        terminated, truncated = np.zeros((2, n), np.bool_)
        self._observation = observation = self._joined(answers)
        any_ended = any((found["terminated"] | found["truncated"]).any() for _, found in answers)
        final = {key: value.copy() for key, value in observation.items()} if any_ended else observation
        for part, found in answers:
            rows = part.rows
            steps[rows], rewards[rows] = found["steps"], found["rewards"]
            terminated[rows], truncated[rows] = found["terminated"], found["truncated"]
            ended = found["terminated"] | found["truncated"]
            for key in final if ended.any() else ():
                final[key][rows][ended] = found[share.FINAL + key]
            part.steps += int(found["steps"].sum())
            part.log.executed(chunks[rows], found["steps"], ended)
        ended = terminated | truncated
        self._episode = self._episode + ended
        self._report()
        infos: dict[str, Any] = {"steps": steps, "step_rewards": rewards, "final_obs": final, "_final_obs": ended}
        if (success := self._success(answers)) is not None or self.reports_success:
            infos["success"] = np.zeros(n, np.bool_) if success is None else success
        return observation, rewards.sum(axis=1), terminated, truncated, infos

    def demonstrate(self, active: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        """See `AdapterVectorEnv.demonstrate`."""
        live = np.ones(self.num_envs, np.bool_) if active is None else np.asarray(active, np.bool_)
        asked = [(part, {"active": live[part.rows]}, {}) for part in self.parts if live[part.rows].any()]
        actions = np.zeros((self.num_envs, self.interface.action.size), np.float32)
        for part, found in self._ask(share.EXPERT, asked):
            actions[part.rows] = found["actions"]
            part.log.demonstrated(live[part.rows])
        return actions

    def snapshot(self) -> dict[str, NDArray] | None:
        """See `robolearn.core.Env.snapshot`; the same as that of these worlds in one process."""
        answers = self._ask(share.SNAPSHOT, [(part, {}, {}) for part in self.parts])
        first = answers[0][1]
        if not first:
            return None
        axes = {key: SNAPSHOT_AXES.get(key, 0) for key in first}
        return {
            key: first[key] if axis is None else np.concatenate([found[key] for _, found in answers], axis)
            for key, axis in axes.items()
        }

    def restore(self, snapshot: dict[str, NDArray]) -> Observation:
        """See `robolearn.core.Env.restore`. Raises `BadInput`: it is of another number of worlds."""
        if len(snapshot["start_ids"]) != self.num_envs:
            raise BadInput("snapshot", got=f"{len(snapshot['start_ids'])} worlds", expected=self.num_envs)
        self._seed = int(snapshot["seed"][0])
        self._ids, self._episode = snapshot["start_ids"].copy(), snapshot["episode"].copy()
        for part in self.parts:
            part.log.restored({key: _rows(key, value, part.rows) for key, value in snapshot.items()})
        answers = self._ask(share.RESTORE, [(part, part.log.snapshot, {}) for part in self.parts])
        self._observation = self._joined(answers)
        return self._observation

    def frame(self, world: int = 0) -> NDArray[np.uint8] | None:
        """See `robolearn.core.Env.frame`."""
        part = next(part for part in self.parts if part.rows.start <= world < part.rows.stop)
        return self._ask(share.FRAME, [(part, {}, {"world": world - part.rows.start})])[0][1].get("picture")

    def close_extras(self, **kwargs: Any) -> None:
        """End the workers."""
        self._broken = self._broken or "they are closed"
        if self.parts:
            self._tell()
        for part in self.parts:
            part.worker.close()
        self.parts = []
        self._host.close()

    @property
    def traffic(self) -> int:
        """Bytes that were sent to workers and came from them."""
        return sum(part.traffic for part in self.parts)

    # --- the workers ------------------------------------------------------------------------------------------

    def _ask(
        self, kind: bytes, asked: list[tuple[RemoteShare, Arrays, dict[str, Any]]]
    ) -> list[tuple[RemoteShare, Arrays]]:
        """Answers of these shares, each to its own request; a worker that dies meanwhile is started again."""
        if self._broken:
            raise RobolearnError(f"these worlds cannot be used any more: {self._broken}")
        requests = [(part, share.pack(arrays, said)) for part, arrays, said in asked]
        try:
            for part, payload in requests:
                part.traffic += len(payload)
                part.worker.send(kind, payload)
            return [(part, self._answer(part, kind, payload)) for part, payload in requests]
        except BaseException as error:  # the answers of the others would be taken for those of the next request
            self._broken = str(error) or type(error).__name__
            self.close()
            raise

    def _answer(self, part: RemoteShare, kind: bytes, payload: bytes) -> Arrays:
        while True:
            try:
                arrays, _ = self._received(part)
                part.deaths = 0
                return arrays
            except WorkerLost as lost:
                self._start_again(part, lost, begun=kind not in (share.RESET, share.RESTORE))
                part.worker.send(kind, payload)

    def _received(self, part: RemoteShare) -> tuple[Arrays, dict[str, Any]]:
        """The next answer of a worker.

        Raises:
          WorkerLost: there is none any more, or the interpreter of its worlds has ended.
          BadInput, NonFinite, RobolearnError: its worlds raised it; which worker's, in one line.
        """
        kind, payload = part.worker.receive()
        part.traffic += len(payload)
        if kind == share.BAD_INPUT:
            raise from_parts(payload)
        if kind == share.DIED:
            raise WorkerLost(payload.decode())
        if kind != share.DONE:
            text = f"{part.name}, which counts its worlds from 0: {payload.decode()}"
            raise (NonFinite if kind == share.NOT_FINITE else RobolearnError)(text)
        arrays, said = share.unpack(payload)
        for note in said["notes"]:
            log.warning("%s, which counts its worlds from 0: %s", part.name, note)
        return arrays, said

    def _send_open(self, part: RemoteShare) -> None:
        said = {"config": self._config, "count": part.rows.stop - part.rows.start, "folder": os.getcwd(),
                "robolearn": robolearn.__version__}  # fmt: skip
        part.worker.send(share.OPEN, share.pack({}, said))

    def _opened(self, part: RemoteShare) -> dict[str, Any]:
        """Facts of a worker's worlds. Raises `WorkerLost`; `BadInput`: it is of a cluster without a token."""
        facts = self._received(part)[1]
        if self._host.asks_token and facts["auth"] != "token":
            expected = "nodes that were started with RAY_AUTH_MODE=token"
            raise BadInput("--workers", got="a cluster that asks for no token", expected=expected)
        part.node = facts["node"]
        return facts

    def _start_again(self, part: RemoteShare, lost: WorkerLost, *, begun: bool) -> None:
        """A new worker in place of one that died, with the running episodes where they were if they have `begun`."""
        part.deaths, part.died = part.deaths + 1, part.died + 1
        if part.deaths > DEATHS:
            raise RobolearnError(f"{part.name} of {self.task} died {part.deaths} times at the same work: {lost}")
        lost_steps = part.log.running
        log.warning("%s: %s; it is started again, and %d control steps of its running episodes are repeated",
                    part.name, lost, lost_steps)  # fmt: skip
        part.worker.close()
        part.worker = self._host.start(part.number)
        try:
            self._send_open(part)
            self._opened(part)
            if begun and self._seed is not None:
                self._repeat(part)
        except WorkerLost as again:
            self._start_again(part, again, begun=begun)

    def _repeat(self, part: RemoteShare) -> None:
        """Bring the worlds of a new worker to where the last one's were."""
        if part.log.snapshot:
            part.worker.send(share.RESTORE, share.pack(part.log.snapshot))
        else:
            _, arrays, said = self._start(part)
            part.worker.send(share.RESET, share.pack(arrays, said))
        found, _ = self._received(part)
        for actions, active in part.log.actions():
            if actions is None:
                part.worker.send(share.EXPERT, share.pack({"active": active}))
                self._received(part)
                continue
            part.worker.send(share.CHUNK, share.pack({"chunks": actions[:, None], "active": active}))
            found, _ = self._received(part)
        for key, value in self._observation.items():
            again = found[share.SEEN + key]
            # A graphics card of another make may draw another pixel.
            if not is_image(self.interface.observation[key]) and not np.array_equal(again, value[part.rows]):
                why = "bit for bit takes processors of one kind, and worlds that depend on seed and actions alone"
                log.warning("%s: its worlds are not where they were, and go on from where they are: %s", part.name, why)
                break

    # --- what they answer -------------------------------------------------------------------------------------

    def _start(self, part: RemoteShare) -> tuple[RemoteShare, Arrays, dict[str, Any]]:
        """The request for the episodes that are running, from their beginning."""
        return part, {"start_ids": self._ids[part.rows], "episodes": self._episode[part.rows]}, {"seed": self._seed}

    def _joined(self, answers: list[tuple[RemoteShare, Arrays]]) -> Observation:
        """Feature → (N, …); what was not asked for is as before."""
        found: Observation = {}
        for key, spec in self.interface.observation.items():
            before = self._observation.get(key)
            rows = np.zeros((self.num_envs, *spec.shape), spec.dtype) if before is None else before.copy()
            for part, arrays in answers:
                rows[part.rows] = arrays[share.SEEN + key]
            found[key] = rows
        return found

    def _success(self, answers: list[tuple[RemoteShare, Arrays]]) -> NDArray[np.bool_] | None:
        """(N,) solved in the last request; None where no world says."""
        solved = np.zeros(self.num_envs, np.bool_)
        said = False
        for part, found in answers:
            if "success" in found:
                said, solved[part.rows] = True, found["success"]
        self.reports_success |= said
        return solved if said else None

    def _report(self) -> None:
        if time.monotonic() - self._told > TOLD_S:
            self._tell()

    def _tell(self) -> None:
        """A line about each node."""
        self._told = time.monotonic()
        seconds = max(self._told - self._begun, 1e-9)
        for node in dict.fromkeys(part.node for part in self.parts if part.steps):
            parts = [part for part in self.parts if part.node == node]
            steps, worlds = sum(part.steps for part in parts), sum(part.rows.stop - part.rows.start for part in parts)
            log.info(
                "node %s: %d worker(s), %d world(s), %d control steps (%.0f a second, %.3g MB/s), %d started again",
                *(node, len(parts), worlds, steps, steps / seconds),
                *(sum(part.traffic for part in parts) / 1e6 / seconds, sum(part.died for part in parts)),
            )


def spread(config: WorldConfig, num_envs: int) -> RemoteWorlds:
    """`num_envs` worlds in the workers that `config` names.

    Raises:
      BadInput: what `host_of` refuses, what the worlds themselves refuse, or worlds of `HERE`.
    """
    if num_envs < 1:
        raise BadInput("number of worlds", got=num_envs, expected="at least 1")
    for option, flag in HERE.items():
        if getattr(config, option):
            expected = "one of them: its episodes depend on more than seed and actions"
            raise BadInput("--workers", got=flag, expected=expected)
    host = host_of(config.workers)
    return RemoteWorlds(replace(config, workers="", threads=config.threads or host.threads), num_envs, host)


def _rows(key: str, value: NDArray, rows: slice) -> NDArray:
    """A part's own of an array in a snapshot."""
    axis = SNAPSHOT_AXES.get(key, 0)
    return value if axis is None else value[(slice(None),) * axis + (rows,)]
