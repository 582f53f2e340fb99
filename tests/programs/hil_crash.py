"""Kill the learner and the actor at random moments, again and again: what is learned must be the same as without.

    python tests/programs/hil_crash.py --kills 10          what `make test-hil-crash` runs: ten of each
    python tests/programs/hil_crash.py --kills 1 --seed 7 --keep FOLDER

First a run that nobody disturbs. Then one with the same seed whose halves get SIGKILL and are started again: the state
at its end (networks, optimisers, generators, counters) must be that of the first bit for bit, the logs and the curve
too. With ``--scored`` a reward model ends and scores the episodes, and each score is made once. Then a learner in real
time is killed while an actor, played by this program, counts what is acknowledged: the log must hold that, and nothing
twice. The judge reads logs with struct, zlib and safetensors alone.

Halves are forked from this process, which has imported what is slow; it never speaks gRPC itself, and starts no thread,
before the last fork.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, load_file

from robolearn.cli.main import main as robolearn
from robolearn.core import Interface, Score, Window
from robolearn.io.hashes import sha256_weights

TASK = "lift"
FLAGS = {
    "width": 32,
    "depth": 2,
    "critics": 2,
    "batch": 32,
    "proposals": 2,
    "backup-proposals": 1,
    "warmup": 50,
    "utd": 1,
}
SMALL = [word for flag, value in FLAGS.items() for word in (f"--{flag}", str(value))]
TOKEN = "a token for this test only"
MODEL = ["--reward", "hil_crash:Held"]  # this module; of the learner and of the actor
SCORED = [*MODEL, "--done-hz", "10", "--done-frames", "2"]
LONGEST_S = 240.0
WALL = {"wall_s"}  # of a row of metrics, what may differ


class Held:
    """Done while the gripper holds something above the table, by proprioception."""

    def __init__(self, interface: Interface) -> None:
        names = interface.observation["proprio"].names
        self.height, self.width = names.index("tcp_z"), names.index("gripper_width")

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        return [self.score_one(window) for window in windows]

    def score_one(self, window: Window) -> Score:
        after = window.observation["proprio"][1:]
        height, width = after[:, self.height], after[:, self.width]
        done, sure = (height > 0.03) & (width > 0.01) & (width < 0.06), np.ones(len(window), np.float32)
        return Score(np.clip(height, 0, 1).astype(np.float32), height.astype(np.float32), done, sure)


def import_slow() -> None:
    """What takes both halves seconds to import, and starts no thread (as pyarrow does), once."""
    for name in ("grpc", "mujoco.batch", "torch._dynamo", "torch.utils.tensorboard", "robolearn.hil.agent"):
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "a fork would lose a thread"


def make_policy(folder: Path) -> None:
    """An untrained flow policy for the task."""
    import torch

    from policies.normalize import Normalizer
    from policies.policy import ChunkPolicy
    from policies.settings import FlowConfig, NetworkConfig
    from policies.storage.checkpoint import save_policy
    from sim.registry import make_env

    env = make_env(TASK, 1, threads=1)
    torch.manual_seed(0)
    config = FlowConfig(horizon=4, execute=4, network=NetworkConfig(width=32, depth=2))
    save_policy(ChunkPolicy(config.build(env.interface), Normalizer(env.interface), env.interface), folder)
    env.close()


class Half:
    """A command in a forked process, which can be killed and started again."""

    def __init__(self, log: Path, *words: object) -> None:
        self.log, self.words = log, [str(word) for word in words]
        self.pid = 0
        self.start()

    def start(self) -> None:
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid:
            return
        code = 70
        try:
            out = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # whoever asks on stdin gets nothing
            code = robolearn(self.words)
            sys.stdout.flush()
        finally:
            os._exit(code)

    def ended(self) -> int | None:
        """Exit code, or None while it runs."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def read_log(path: Path) -> list[bytes]:
    """Records of a log, by nothing but its format: length, checksum, content."""
    content, found = path.read_bytes() if path.exists() else b"", []
    while len(content) >= 8:
        length, checksum = struct.unpack("<II", content[:8])
        record, content = content[8 : 8 + length], content[8 + length :]
        if len(record) < length:
            break
        assert zlib.crc32(record) == checksum, "a damaged record within the log"
        found.append(record)
    return found


def check_episodes(records: list[bytes]) -> int:
    """Each step comes once and in its place; returns how many there are."""
    episode, index, steps = -1, 0, 0
    for tensors in map(load, records):
        if "action" in tensors:
            begins = tensors["index"] == 0 and tensors["episode"] > episode
            assert begins or (tensors["episode"] == episode and tensors["index"] == index), "a step out of its place"
            episode, index, steps = int(tensors["episode"]), int(tensors["index"]) + 1, steps + 1
        else:
            assert tensors["episode"] == episode and tensors["length"] == index
    return steps


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def halves(folder: Path, policy: Path, steps: int, port: int, scored: bool) -> tuple[Half, Half]:
    learner = Half(
        folder / "learner.log", "hil", "learner", "--policy", policy, "--out", folder / "run", "--go-on",
        "--listen", f"127.0.0.1:{port}", "--env-steps", steps, "--checkpoint-s", 0.3, "--json", *SMALL,
        *(SCORED if scored else ()),
    )  # fmt: skip
    actor = Half(
        folder / "actor.log", "hil", "actor", "--policy", policy, "--task", TASK, "--operator", "scripted",
        "--out", folder / "outbox", "--learner", f"127.0.0.1:{port}", "--json",
        *(MODEL if scored else ()),
    )  # fmt: skip
    return learner, actor


def play(
    folder: Path, policy: Path, steps: int, kills: int, rng: np.random.Generator, span_s: float, scored: bool
) -> dict[str, Any]:
    """A run in lockstep in which each half is killed `kills` times; returns what is left of it."""
    folder.mkdir()
    both = halves(folder, policy, steps, free_port(), scored)
    victims = rng.permutation([0] * kills + [1] * kills).tolist()
    until, killed, kept = time.monotonic() + LONGEST_S, 0, 0
    codes: list[int | None] = [None, None]
    at = time.monotonic() + rng.uniform(0.1, span_s)
    while None in codes:
        assert time.monotonic() < until, f"the run does not end, see {folder}"
        codes = [half.ended() if code is None else code for half, code in zip(both, codes, strict=True)]
        assert all(code in (None, 0) for code in codes), f"exit codes {codes}, see {folder}"
        if victims and time.monotonic() > at and codes == [None, None]:
            half = both[victims.pop()]
            half.kill()
            killed += 1
            log, outbox = (read_log(folder / name / "actor.transitions") for name in ("run/log", "outbox"))
            assert log == outbox[: len(log)], "the learner has what its actor never did"
            assert len(log) >= kept, f"{kept} records were in the log, {len(log)} are left"
            kept = len(log)
            half.start()
            at = time.monotonic() + rng.uniform(0.1, span_s)
        time.sleep(0.01)
    assert not victims, f"the run was over after {killed} kills: a longer one is needed"
    (state,) = (folder / "run" / "state").glob("state-*")
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    log, outbox = (read_log(folder / name / "actor.transitions") for name in ("run/log", "outbox"))
    assert log == outbox, "log and outbox differ at the end"
    scores = read_log(folder / "run" / "log" / "scores")
    assert len(set(scores)) == len(scores) == (len(rows) if scored else 0), "not one score for each episode"
    return {
        "state": load_file(state / "tensors.safetensors"),
        "rows": [{key: value for key, value in row.items() if key not in WALL} for row in rows],
        "log": log,
        "scores": scores,
        "steps": check_episodes(log),
        "killed": killed,
    }


def check_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Raise `AssertionError` unless both runs learned the same."""
    assert one["log"] == other["log"], "other transitions"
    assert one["scores"] == other["scores"], "other scores"
    assert one["rows"] == other["rows"], "another curve"
    assert one["state"].keys() == other["state"].keys()
    for key, value in one["state"].items():
        assert np.array_equal(value, other["state"][key]), f"{key} differs"


def acknowledged(folder: Path, policy: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill a learner in real time while records are sent to it; its log holds what it has acknowledged.

    In a process of its own, because it speaks gRPC."""
    folder.mkdir()
    port = free_port()
    code = subprocess.run(
        [sys.executable, __file__, "--sender", str(folder), "--policy", str(policy), "--kills", str(kills),
         "--port", str(port), "--seed", str(seed)],
        stdout=subprocess.PIPE, text=True, check=True, timeout=LONGEST_S,
    )  # fmt: skip
    return json.loads(code.stdout.splitlines()[-1])


def send(folder: Path, policy: Path, kills: int, port: int, seed: int) -> dict[str, int]:
    """The other end of `acknowledged`: an actor that only sends, and counts."""
    from policies.storage.checkpoint import load_chunk_policy
    from robolearn.data.replay import End, RecordSchema, ReplayStep
    from robolearn.hil.wire import messages as m
    from robolearn.io.wire.client import Client, LinkDown, SessionLost
    from robolearn.io.wire.security import Address

    rng = np.random.default_rng(seed)
    base = load_chunk_policy(policy)
    schema = RecordSchema(base.interface)
    words = [
        "hil", "learner", "--policy", policy, "--out", folder / "run", "--go-on", "--pace", "realtime", "--listen",
        f"127.0.0.1:{port}", "--env-steps", 10**6, "--checkpoint-s", 0.3, "--json", *SMALL,
    ]  # fmt: skip
    command = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]

    def start() -> subprocess.Popen[bytes]:
        log = (folder / "learner.log").open("ab")
        return subprocess.Popen([*command, *map(str, words)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    learner = start()
    try:
        client = Client(Address("127.0.0.1", port), TOKEN, None, 10**7)
        sent: list[bytes] = []

        def record() -> bytes:
            last = schema.decode(sent[-1]) if sent else End(-1, 1, {}, True, False, False)
            seen = {
                key: rng.normal(size=spec.shape).astype(spec.dtype) for key, spec in base.interface.observation.items()
            }
            if isinstance(last, ReplayStep) and last.index == 19:
                return schema.encode(End(last.episode, 20, seen, False, True, False))
            episode, index = (last.episode, last.index + 1) if isinstance(last, ReplayStep) else (last.episode + 1, 0)
            action = rng.uniform(-1, 1, base.interface.action.shape).astype(np.float32)
            return schema.encode(ReplayStep(episode, index, seen, action, 0.0, False))

        session, acked, restarts, at = 0, 0, 0, time.monotonic() + 8.0
        begun = 0  # what was acknowledged when this learner began: one that has not listened yet is not worth a kill
        until = time.monotonic() + LONGEST_S
        while restarts < kills or acked < len(sent):
            assert time.monotonic() < until
            if restarts < kills and acked > begun and time.monotonic() > at:
                learner.kill()
                learner.wait()
                log = read_log(folder / "run" / "log" / "sender.transitions")
                assert len(log) >= acked, f"{acked} records were acknowledged, {len(log)} are in the log"
                assert log == sent[: len(log)]
                learner, restarts, session, begun = start(), restarts + 1, 0, acked
                at = time.monotonic() + rng.uniform(4.0, 9.0)
            try:
                if not session:
                    hello = m.CONNECT.request(
                        protocol=m.PROTOCOL, actor="sender", interface=m.interface_hash(base.interface),
                        policy=sha256_weights(base), stored=len(sent),
                    )  # fmt: skip
                    welcome = client.call(m.CONNECT, hello, 2.0)
                    assert welcome.expects >= acked, "what was acknowledged is gone"
                    session, acked = welcome.session, welcome.expects
                if acked == len(sent) and restarts < kills:
                    sent.append(record())
                batch = sent[acked : acked + 50]
                request = m.APPEND.request(session=session, first=acked, records=batch)
                acked = client.call(m.APPEND, request, 2.0).records
            except LinkDown:
                time.sleep(0.1)
            except SessionLost:
                session = 0
        learner.send_signal(signal.SIGTERM)
        learner.wait(60)
        log = read_log(folder / "run" / "log" / "sender.transitions")
        assert log == sent and check_episodes(log) > 0
        return {"acknowledged": acked, "learner_kills_while_sending": restarts}
    finally:
        learner.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10, help="of the learner, and as many of the actor")
    parser.add_argument("--steps", type=int, default=2000, help="control steps of the runs in lockstep")
    parser.add_argument("--span", type=float, default=2.5, help="longest time between two kills [s]")
    parser.add_argument("--seed", type=int, default=None, help="by default another one each time; it is printed")
    parser.add_argument("--keep", type=Path, default=None, help="leave the runs in this folder")
    parser.add_argument("--lockstep-only", action="store_true", help="leave out the count of what is acknowledged")
    parser.add_argument("--scored", action="store_true", help="a reward model ends and scores the episodes")
    for name in ("--sender", "--policy", "--port"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ["ROBOLEARN_HIL_TOKEN"] = TOKEN
    if args.sender:
        print(json.dumps(send(Path(args.sender), Path(args.policy), args.kills, int(args.port), args.seed)))
        return
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(3), "little")
    print(f"seed {seed}", file=sys.stderr, flush=True)
    rng = np.random.default_rng(seed)
    folder = args.keep or Path(tempfile.mkdtemp(prefix="robolearn-hil-crash-"))
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy"
    import_slow()
    maker = multiprocessing.get_context("fork").Process(target=make_policy, args=(policy,))
    maker.start()
    maker.join()
    assert maker.exitcode == 0
    begun = time.monotonic()
    unbroken = play(folder / "unbroken", policy, args.steps, 0, rng, 1.0, args.scored)
    unbroken_s = time.monotonic() - begun
    killed = play(folder / "killed", policy, args.steps, args.kills, rng, args.span, args.scored)
    check_same(unbroken, killed)
    counts = {"seed": seed, "steps": killed["steps"], "kills": killed["killed"], "episodes": len(killed["rows"])}
    counts |= {"unbroken_s": round(unbroken_s, 1), "killed_s": round(time.monotonic() - begun - unbroken_s, 1)}
    if not args.lockstep_only:
        counts |= acknowledged(folder / "acknowledged", policy, args.kills, seed)
    print(json.dumps(counts))
    if args.keep is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
