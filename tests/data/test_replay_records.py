"""Steps for learning: bytes that survive kills and refuse strangers, and the episodes that they make."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load, save

from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data.replay import Assembler, End, RecordSchema, ReplayStep, TransitionLog

PLAIN = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 20.0)
INTERFACE = Interface(
    {"proprio": ArraySpec((2,)), "images.front": ArraySpec((4, 4, 3), "uint8")}, ArraySpec((1,)), 20.0
)


def sight(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        "proprio": rng.standard_normal(2).astype(np.float32),
        "images.front": rng.integers(0, 256, (4, 4, 3), dtype=np.uint8),
    }


def step(index: int, episode: int = 0, *, intervention: bool = False) -> ReplayStep:
    task = "" if index else "hebe den Würfel"
    return ReplayStep(episode, index, sight(index), np.array([0.5], np.float32), 0.25, intervention, task)


def end(length: int, episode: int = 0) -> End:
    return End(episode, length, sight(99), True, False, True)


@pytest.mark.parametrize("record", [step(0), step(3, 7, intervention=True), end(4, 2)])
def test_a_record_there_and_back(record: ReplayStep | End) -> None:
    schema = RecordSchema(INTERFACE)
    content = schema.encode(record)
    assert len(content) <= schema.limit
    back = schema.decode(content)
    assert type(back) is type(record)
    for name, value in vars(record).items():
        if name == "observation":
            for key in value:
                np.testing.assert_array_equal(back.observation[key], value[key])
                assert back.observation[key].dtype == value[key].dtype
        else:
            np.testing.assert_array_equal(getattr(back, name), value)


STRANGE = {
    "names": lambda t: {k: v for k, v in t.items() if k != "reward"},
    "unknown": lambda t: t | {"extra": np.zeros(1)},
    "action: got float32 \\(2,\\)": lambda t: t | {"action": np.zeros(2, np.float32)},
    "action: got float64": lambda t: t | {"action": np.zeros(1)},
    "NaN": lambda t: t | {"reward": np.array(np.nan, np.float32)},
    "proprio: got NaN": lambda t: t | {"observation/proprio": np.array([0, np.inf], np.float32)},
    "beyond": lambda t: t | {"action": np.array([1.5], np.float32)},
    "negative": lambda t: t | {"index": np.array(-1)},
    "task: got 0 bytes": lambda t: t | {"task": np.zeros(0, np.uint8)},
    "task: got 1025 bytes": lambda t: t | {"task": np.full(1025, 97, np.uint8)},
    "task: got int8": lambda t: t | {"task": np.full(5, 97, np.int8)},
    "can't decode": lambda t: t | {"task": np.full(3, 255, np.uint8)},
    "one in step 2": lambda t: t | {"index": np.array(2)},
    "bytes": lambda t: t | {"huge": np.zeros(100_000)},
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_strange_record_is_refused(what: str) -> None:
    schema = RecordSchema(INTERFACE)
    tensors = STRANGE[what](load(schema.encode(step(0))))
    with pytest.raises(BadInput, match=what):
        schema.decode(save(tensors))


def test_any_bytes_are_a_record_or_refused() -> None:
    schema, rng = RecordSchema(INTERFACE), np.random.default_rng(0)
    good = schema.encode(step(0))
    for _ in range(3000):
        content = bytearray(good)
        for _ in range(int(rng.integers(1, 6))):
            content[int(rng.integers(len(content)))] = int(rng.integers(256))
        cut = bytes(content[: int(rng.integers(len(content) + 1))]) if rng.random() < 0.3 else bytes(content)
        try:
            schema.decode(cut)
        except BadInput:
            continue
    for content in (b"", b"\x80\x04.", b"\xff" * 64, b"\x00" * 64, rng.bytes(1000)):
        with pytest.raises(BadInput):
            schema.decode(content)


def test_both_ends_of_a_wrong_end() -> None:
    schema = RecordSchema(INTERFACE)
    with pytest.raises(BadInput, match="terminated or truncated"):
        schema.encode(End(0, 1, sight(0), True, True, False))


def test_episodes_are_assembled_in_order() -> None:
    assembler = Assembler()
    assert assembler.expects == (0, 0)
    assert assembler.add(step(0)) is None and assembler.add(step(1, intervention=True)) is None
    assert assembler.expects == (0, 2)
    episode = assembler.add(end(2))
    assert episode is not None and len(episode) == 2 and episode.observation["proprio"].shape == (3, 2)
    np.testing.assert_array_equal(episode.intervention, [False, True])
    np.testing.assert_array_equal(episode.observation["proprio"][2], sight(99)["proprio"])
    assert episode.task == "hebe den Würfel"
    assert episode.terminated and episode.success and assembler.expects == (1, 0)


@pytest.mark.parametrize(
    "wrong", [step(2), step(0), step(1, episode=1), end(2), end(1, episode=3)],
    ids=["gap", "again", "other", "longer", "other end"],
)  # fmt: skip
def test_a_gap_or_a_repetition_is_refused_and_nothing_is_lost(wrong: ReplayStep | End) -> None:
    assembler = Assembler()
    assembler.add(step(0))
    with pytest.raises(BadInput, match="step 1 of episode 0"):
        assembler.add(wrong)
    assembler.add(step(1))
    assert assembler.add(end(2)) is not None


def test_an_old_episode_does_not_come_back() -> None:
    assembler = Assembler()
    assembler.add(step(0, episode=4))
    assembler.add(end(1, episode=4))
    with pytest.raises(BadInput, match="step 0 of episode 5"):
        assembler.add(step(0, episode=4))


def test_an_episode_that_its_actor_never_ended() -> None:
    assembler = Assembler()
    for i in range(3):
        assembler.add(step(i))
    episode = assembler.cut()
    assert episode is not None and len(episode) == 2 and not episode.terminated and not episode.success
    np.testing.assert_array_equal(episode.observation["proprio"][2], sight(2)["proprio"])
    assert assembler.expects == (1, 0)
    assembler.add(step(0, episode=1))
    assert assembler.cut() is None and assembler.expects == (2, 0)


# --- the log ---------------------------------------------------------------------------------------------------


def test_the_log_goes_on_after_what_is_whole(tmp_path: Path) -> None:
    schema = RecordSchema(INTERFACE)
    log = TransitionLog(tmp_path, "actor-0", schema)
    for i in range(3):
        log.append(schema.encode(step(i)))
    log.close()
    with log.path.open("ab") as file:
        file.write(schema.encode(step(3))[:40])  # a kill in the middle of a record
    log = TransitionLog(tmp_path, "actor-0", schema)
    log.append(schema.encode(step(3)))
    log.sync()
    assert [record.index for record in log.read() if isinstance(record, ReplayStep)] == [0, 1, 2, 3]
    log.close()


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 65, "a b"])
def test_an_actor_has_a_file_of_its_own_and_no_other(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInput, match="actor's name"):
        TransitionLog(tmp_path, name, RecordSchema(INTERFACE))


_WRITER = """
import sys, numpy as np
from pathlib import Path
from robolearn.core import ArraySpec, Interface
from robolearn.data.replay import RecordSchema, ReplayStep, TransitionLog
schema = RecordSchema(Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 20.0))
log = TransitionLog(Path(sys.argv[1]), "a", schema)
for i in range(10**9):
    seen, action = {"proprio": np.zeros(2, np.float32)}, np.zeros(1, np.float32)
    log.append(schema.encode(ReplayStep(0, i, seen, action, 0.0, False)))
    print(i, flush=True)
"""


@pytest.mark.long
def test_a_kill_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    schema = RecordSchema(PLAIN)
    for kill in (5, 60, 200):
        log = tmp_path / str(kill)
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(log)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(kill):
            acknowledged = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split("\n")[:-1])])
        process.wait()
        opened = TransitionLog(log, "a", schema)
        kept = [record.index for record in opened.read() if isinstance(record, ReplayStep)]
        opened.close()
        assert kept == list(range(len(kept))) and len(kept) >= acknowledged + 1


@pytest.mark.long
def test_records_and_foreign_formats_load_no_torch() -> None:
    code = "import sys, robolearn.data.replay, robolearn.data.convert.formats; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
