"""Worlds in workers: bit for bit what they are in one process, also where a worker is killed in the middle."""

from __future__ import annotations

import json
import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from robolearn.core import BadInput, NonFinite, RobolearnError
from sim.bridge import remote
from sim.bridge.hosts import WorkerLost, host_of, slots_of
from sim.bridge.memory import EpisodeLog
from sim.bridge.share import Share, from_json, pack, to_json, unpack
from sim.registry import WorldConfig, make_env

HERE = Path(__file__).parent
COUNTER = "gym:counter_env:Counter-v0"
sys.path.insert(0, str(HERE))


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)


def rolled(env: Any, chunks: int, between: Callable[[int], None] = lambda k: None) -> list[NDArray]:
    """All that worlds say in so many chunks of 3 random actions, some of them at rest; `between` is called before each
    chunk with its number."""
    observation, infos = env.reset(seed=5)
    said: list[NDArray] = [*observation.values(), *infos.values()]
    rng = np.random.default_rng(0)
    for k in range(chunks):
        actions = rng.uniform(-1, 1, (env.num_envs, 3, env.interface.action.size)).astype(np.float32)
        active = rng.random(env.num_envs) < 0.8
        between(k)
        observation, rewards, terminated, truncated, infos = env.step_chunk(actions, active)
        ended = active & (terminated | truncated)
        said += [*(value.copy() for value in observation.values()), rewards * active, ended, truncated & active]
        said += [infos["step_rewards"] * active[:, None], infos["steps"] * active, infos["success"] & active]
        said += [value[ended] for value in infos["final_obs"].values()] if ended.any() else []
    return said


def same(one: list[NDArray], two: list[NDArray]) -> None:
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def killer(env: remote.RemoteWorlds, at: dict[int, int]) -> Callable[[int], None]:
    """Kills worker ``at[k]`` before chunk k."""
    return lambda k: env.parts[at[k]].worker.process.kill() if k in at else None  # type: ignore[attr-defined]


class Here:
    """A host whose workers are in this process, and die when they are told to."""

    threads, asks_token = 1, False

    def __init__(self, count: int) -> None:
        self.count = count

    def start(self, k: int) -> HereWorker:
        return HereWorker()

    def close(self) -> None: ...


class HereWorker:
    """A share of worlds that answers when it is asked."""

    def __init__(self) -> None:
        self.share, self.killed, self.asked = Share(), False, (b"", b"")

    def kill(self) -> None:
        self.killed = True

    @property
    def process(self) -> HereWorker:
        return self

    def send(self, kind: bytes, payload: bytes) -> None:
        self.asked = kind, payload

    def receive(self) -> tuple[bytes, bytes]:
        if self.killed:
            raise WorkerLost("it was told to die")
        return self.share.answer(*self.asked)

    def close(self) -> None:
        self.share.close()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_shares_are_the_same_worlds_and_one_that_dies_costs_its_running_episodes_alone(
    workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = WorldConfig("gym:reach2d:Reach2D-v0")
    env: Any = config.build(5)
    expected = rolled(env, 40)
    env.close()
    env = remote.RemoteWorlds(config, 5, Here(workers))
    assert [part.rows.stop - part.rows.start for part in env.parts] == {1: [5], 2: [3, 2], 4: [2, 1, 1, 1]}[workers]
    found = rolled(env, 40, killer(env, {0: 0, 11: workers - 1, 12: workers - 1, 37: 0}))  # 60 steps an episode
    env.close()
    same(expected, found)
    assert len({line for line in caplog.messages if "it was told to die; it is started again" in line}) == 4


@pytest.mark.long
def test_a_share_that_dies_while_an_episode_of_a_snapshot_runs_is_restored() -> None:
    """Worlds of ours, which have snapshots: taken in two shares, continued here and in three that die."""
    config = WorldConfig("lift", threads=1)
    chunks = np.random.default_rng(1).uniform(-1, 1, (24, 3, 4, 7)).astype(np.float32)
    env: Any = remote.RemoteWorlds(config, 3, Here(2))
    env.reset(seed=2)
    for chunk in chunks[:6]:
        env.step_chunk(chunk)
    snapshot = env.snapshot()
    env.close()
    seen = []
    for env, deaths in ((config.build(3), {}), (remote.RemoteWorlds(config, 3, Here(3)), {8: 0, 9: 2, 23: 0})):
        rows = [env.restore({key: value.copy() for key, value in snapshot.items()})["objects"].copy()]
        for k, chunk in enumerate(chunks[6:], 6):
            if k in deaths:
                env.parts[deaths[k]].worker.kill()
            rows.append(env.step_chunk(chunk)[0]["objects"].copy())
        last = env.snapshot()
        env.close()
        seen.append([*rows, *(last[key] for key in sorted(last))])
    same(seen[0], seen[1])
    two = remote.RemoteWorlds(config, 2, Here(1))
    with pytest.raises(BadInput, match="snapshot: got 3 worlds, expected 2"):
        two.restore(snapshot)
    two.close()


def test_what_has_to_be_done_again() -> None:
    """By hand: two worlds, actions of one number."""

    def done(log: EpisodeLog) -> list[tuple[list[float] | None, list[bool]]]:
        return [(None if a is None else a[:, 0].tolist(), worlds.tolist()) for a, worlds in log.actions()]

    chunk, yes, no = np.array([[[1], [2], [3]], [[4], [5], [6]]], np.float32), True, False
    log = EpisodeLog(2)
    log.demonstrated(np.array([no, yes]))
    log.executed(chunk, np.array([2, 1]), np.array([no, no]))
    assert log.running == 3
    assert done(log) == [(None, [no, yes]), ([1, 0], [yes, no]), ([2, 4], [yes, yes])]
    log.executed(chunk, np.array([3, 1]), np.array([yes, no]))  # the first one's episode ends
    assert done(log) == [(None, [no, yes]), ([0, 4], [no, yes]), ([0, 4], [no, yes])]
    log.restored({"state": np.zeros(2)})
    log.executed(chunk, np.array([1, 3]), np.array([yes, no]))
    log.executed(chunk, np.array([2, 0]), np.array([no, no]))
    assert log.snapshot and done(log) == [([1, 4], [yes, yes]), ([1, 5], [yes, yes]), ([2, 6], [yes, yes])]
    log.executed(chunk, np.array([0, 1]), np.array([no, yes]))  # now no episode of the snapshot runs any more
    assert not log.snapshot and done(log) == [([1, 0], [yes, no]), ([2, 0], [yes, no])]
    log.begin_all()
    assert log.running == 0 and done(log) == []


@pytest.mark.long
@pytest.mark.parametrize("workers", ["1", "2", "4"])
def test_our_worlds_are_the_same_in_workers_and_when_they_are_killed(
    workers: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Episodes of 64 steps: some have ended before the first worker is killed, some run then."""
    options: dict[str, Any] = {"task": "lift", "reward": "dense", "dynamics": "mild"}
    env = make_env(num_envs=5, threads=1, **options)
    expected = rolled(env, 40)
    env.close()
    env = make_env(num_envs=5, workers=workers, **options)
    last = int(workers) - 1
    found = rolled(env, 40, killer(env, {30: last, 36: 0}))
    steps = [part.steps for part in env.parts]
    assert env.snapshot()["episode"].min() >= 1  # an episode of each world has ended
    env.close()
    same(expected, found)
    lines = [record.getMessage() for record in caplog.records if "is started again" in record.getMessage()]
    assert len(lines) == 2 and "was killed by SIGKILL" in lines[0] and f"worker {last} on " in lines[0]
    assert len(steps) == int(workers) and all(steps)


@pytest.mark.long
def test_pictures_are_the_same() -> None:
    options: dict[str, Any] = {"task": "lift", "cameras": ("front",), "image_size": 32, "looks": "mild"}
    env = make_env(num_envs=3, threads=1, render_processes=0, **options)
    expected = rolled(env, 24)
    env.close()
    env = make_env(num_envs=3, workers="2", **options)
    found = rolled(env, 24, killer(env, {23: 1}))
    env.close()
    same(expected, found)


@pytest.mark.long
def test_a_world_of_another_maker_is_the_same_and_its_killed_worker_costs_its_episodes_alone(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Episodes of 5 steps in chunks of 3: what has to be repeated is known by hand."""
    env = make_env("gym:reach2d:Reach2D-v0", 4, threads=1)
    expected = rolled(env, 20)
    env.close()
    env = make_env("gym:reach2d:Reach2D-v0", 4, workers="2")
    found = rolled(env, 20, killer(env, {0: 1, 11: 1, 12: 0}))
    env.close()
    same(expected, found)

    caplog.clear()
    env = make_env(COUNTER, 3, workers="3")
    env.reset(seed=0)
    for _ in range(3):  # 3 steps; 2 more, which end the episode; 3 of the second one
        env.step_chunk(np.zeros((3, 3, 1), np.float32))
    psutil.Process(env.parts[1].worker.process.pid).children()[0].kill()  # the interpreter of the worlds
    observation = env.step(np.full((3, 1), 0.5, np.float32))[0]
    np.testing.assert_array_equal(observation["proprio"][:, 1:], [[4, 4.0]] * 3)  # 0.5 of [-2, 6] is 4
    env.close()
    said = f"(worlds 1 to 1): world 0 of {COUNTER}: its worker process was killed by SIGKILL"
    assert any(said in line and "3 control steps" in line for line in caplog.messages), caplog.text


@pytest.mark.long
def test_a_new_episode_of_a_world_goes_on_in_its_sequence() -> None:
    """`reset` without a seed, other start ids, and a death right after."""
    ids = {"start_ids": np.array([4, 4, 1])}
    seen = []
    for workers in ("", "2"):
        env = make_env(COUNTER, 3, workers=workers, threads=1)
        rows = [env.reset(seed=3, options=ids)[0]["proprio"]]
        for _ in range(2):
            rows.append(env.step_chunk(np.zeros((3, 5, 1), np.float32), np.array([True, False, True]))[0]["proprio"])
        rows.append(env.reset()[0]["proprio"])
        if workers:
            env.parts[0].worker.process.kill()
        rows.append(env.step(np.zeros((3, 1), np.float32))[0]["proprio"])
        rows.append(env.reset(options=ids)[0]["proprio"])
        seen.append(rows)
        env.close()
    same(seen[0], seen[1])
    assert len({float(row[0, 0]) for row in seen[1][:4]}) == 4  # each episode began elsewhere
    np.testing.assert_array_equal(seen[1][0], seen[1][5])


@pytest.mark.long
def test_an_evaluation_with_a_killed_worker_has_exactly_its_episodes(tmp_path: Path) -> None:
    from robolearn.eval import evaluate

    class Still:
        """The same action in each step."""

        observes_every_step, execute_steps = False, 4

        def __init__(self, env: Any, kill: Callable[[], None]) -> None:
            self.interface, self._n, self._kill, self._acts = env.interface, env.num_envs, kill, 0

        def bind(self, offered: Any) -> None: ...
        def reset(self, seed: int) -> None: ...
        def begin(self, worlds: Any) -> None: ...
        def observe(self, observation: Any) -> None: ...

        def act(self, observation: Any) -> Any:
            self._acts += 1
            if self._acts == 3:
                self._kill()
            return np.full((self._n, 4, self.interface.action.size), 0.3, np.float32)

    results = []
    for workers in ("", "2"):
        env: Any = make_env("gym:reach2d:Reach2D-v0", 4, workers=workers, threads=1)
        kill = env.parts[1].worker.process.kill if workers else lambda: None
        found = evaluate(env, Still(env, kill), 11, seed=1).to_json()
        env.close()
        results.append({key: value for key, value in found.items() if key != "wall_s"})
    assert results[0] == results[1] and results[1]["success"]["episodes"] == 11


@pytest.mark.long
def test_what_worlds_raise_is_named_with_their_worker_and_ends_all() -> None:
    env = make_env("lift", 3, workers="2")
    env.reset(seed=0)
    wrong = np.zeros((3, 2, 7), np.float32)
    wrong[2, 1, 3] = np.nan
    with pytest.raises(NonFinite, match="action of world 2 is not finite"):
        env.step_chunk(wrong)
    env.step_chunk(wrong, np.array([True, True, False]))
    with pytest.raises(BadInput, match=r"action chunks: got shape \(3, 2, 6\), expected \(3, Ta, 7\)"):
        env.step_chunk(np.zeros((3, 2, 6), np.float32))
    env.close()
    with pytest.raises(RobolearnError, match="cannot be used any more: they are closed"):
        env.step_chunk(np.zeros((3, 2, 7), np.float32))
    with pytest.raises(BadInput, match="robot: got lamp"):
        make_env("lift", 2, workers="2", robot="lamp")


@pytest.mark.long
def test_a_worker_that_dies_again_and_again_at_the_same_work_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env("lift", 2, workers="2")
    env.reset(seed=0)
    monkeypatch.setattr(env, "_repeat", lambda part: part.worker.process.kill())
    env.parts[1].worker.process.kill()
    with pytest.raises(RobolearnError, match=r"worker 1 on .* \(worlds 1 to 1\) of lift died 4 times at the same work"):
        env.step_chunk(np.zeros((2, 2, 7), np.float32))


@pytest.mark.long
def test_the_command_says_what_each_node_did(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from robolearn.cli.main import main

    sets = []
    for workers in ([], ["--workers", "2"]):
        out = tmp_path / f"set{len(workers)}"
        line = ["collect", "--task", "lift", "--episodes", "4", "--quality", "expert", "--out", str(out), "--json"]
        with caplog.at_level(logging.INFO):
            assert main([*line, *workers]) == 0
        sets.append({path.relative_to(out): path.read_bytes() for path in out.rglob("*.parquet")})
    assert sets[0] == sets[1] and sets[0]
    told = [record.getMessage() for record in caplog.records if record.getMessage().startswith("node ")]
    assert len(told) == 1 and "2 worker(s), 4 world(s), " in told[0] and "0 started again" in told[0]


REFUSED = {
    "nine": "--workers: got nine; available: <number>, ray, ray:<number>, ray://<host>:<port>",
    "0": "--workers: got 0; available:",
    "ray:0": "--workers: got ray:0; available:",
    "ray://10.1.2.3:10001": "--workers ray://10.1.2.3:10001: got an address beyond this machine, without a token, "
    "expected RAY_AUTH_MODE=token",
    "ray://head": "--workers ray://head: got ray://head, expected ray://host:port",
    "ray://head:many": "--workers ray://head:many: got ray://head:many, expected ray://host:port",
}


@pytest.mark.parametrize("workers", REFUSED)
def test_what_names_no_workers_is_refused_in_one_line(
    workers: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(BadInput) as caught:
        make_env("lift", 2, workers=workers)
    assert str(caught.value).startswith(REFUSED[workers]) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"RAY_AUTH_TOKEN": "t"}, False),  # it is not sent
        ({"RAY_AUTH_MODE": "token"}, False),  # there is none
        ({"RAY_AUTH_MODE": "disabled", "RAY_AUTH_TOKEN": "t"}, False),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t"}, True),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(HERE / "test_workers.py")}, True),
        ({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(HERE / "nowhere")}, False),
    ],
)
def test_a_token_is_one_that_ray_sends(
    variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from robolearn.runs.ray_cluster import has_token, on_this_machine

    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert has_token() is expected
    here = ("ray://127.0.0.1:1", "ray://[::1]:1", "ray://localhost:1")
    assert all(map(on_this_machine, here))
    assert not any(map(on_this_machine, ("ray://10.0.0.1:1", "ray://127.0.0.1.example.org:1", "ray://head:1")))


@pytest.mark.parametrize("late", [1, 2])
def test_a_cluster_that_is_slow_to_serve_a_client_is_asked_twice(
    late: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Ray's words of a busy head node, as it was seen to say them."""
    from robolearn.runs.ray_cluster import join_ray

    tried: list[str] = []

    def init(address: str, **_: Any) -> None:
        tried.append(address)
        if len(tried) <= late:
            raise ConnectionAbortedError("Initialization failure from server:\nTrace:\nRuntimeError: Proxy failed\n")

    ray = types.ModuleType("ray")
    ray.__dict__["init"] = init
    monkeypatch.setitem(sys.modules, "ray", ray)
    address, why = "ray://127.0.0.1:1", r"no process for this client \(RuntimeError: Proxy failed\)"
    if late == 1:
        assert join_ray(address, "--workers") is ray
    else:
        with pytest.raises(BadInput, match=f"--workers: got {why}, expected a cluster"):
            join_ray(address, "--workers")
    assert tried == [address] * 2 and [record.levelname for record in caplog.records] == ["WARNING"]


def test_without_ray_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        BadInput, match=r"--workers ray: got no package ray, expected it installed\..*pip install.*\[ray\]"
    ):
        host_of("ray")


@pytest.mark.parametrize(
    ("option", "flag"),
    [({"two_way": True}, "--back-policy"), ({"pushed": "arm"}, "--push or --adversary"),
     ({"begin_along": True}, "--begin-along")],
)  # fmt: skip
def test_worlds_whose_episodes_need_more_than_seed_and_actions_are_refused(option: dict[str, Any], flag: str) -> None:
    with pytest.raises(BadInput, match=f"--workers: got {flag}, expected one of them"):
        WorldConfig("lift", workers="2", **option).build(2)


def test_each_node_has_a_worker_before_any_has_two() -> None:
    nodes = [
        {"NodeID": "a", "Alive": True, "Resources": {"CPU": 3.0}},
        {"NodeID": "b", "Alive": False, "Resources": {"CPU": 8.0}},
        {"NodeID": "c", "Alive": True, "Resources": {"CPU": 1.0}},
        {"NodeID": "d", "Alive": True, "Resources": {}},
        {"NodeID": "e", "Alive": True, "Resources": {"CPU": 2.0}},
    ]
    assert slots_of(nodes) == ["a", "c", "e", "a", "e", "a"]
    assert slots_of([]) == []


def test_a_config_crosses_as_it_is() -> None:
    config = WorldConfig("gym:counter_env:Counter-v0", cameras=("render",), world_python=Path("/usr/bin/python3"))
    assert from_json(json.loads(json.dumps(to_json(config)))) == config
    assert from_json(to_json(WorldConfig("lift"))) == WorldConfig("lift")


def test_arrays_cross_as_they_are() -> None:
    arrays = {
        "a": np.arange(12, dtype=np.int64).reshape(3, 4)[:, ::2],
        "b": np.zeros((0, 3), np.float32),
        "c": np.array([True, False]),
        "d": np.array([np.nan, np.inf, -0.0]),
    }
    found, said = unpack(pack(arrays, {"seed": 2**63 - 1, "notes": ["ä"]}))
    assert said == {"seed": 2**63 - 1, "notes": ["ä"]} and found.keys() == arrays.keys()
    for key, value in arrays.items():
        assert found[key].dtype == value.dtype and found[key].shape == value.shape
        assert found[key].tobytes() == np.ascontiguousarray(value).tobytes()
