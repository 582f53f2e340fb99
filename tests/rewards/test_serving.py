"""A reward model in another process: the same scores for all who ask, and none where the server gives none."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface, RewardModel, RewardWithheld, Score, Window
from robolearn.data import Dataset
from robolearn.data.lerobot.layout import SCORES_PATH
from robolearn.io.certificates import make_certificates
from robolearn.io.wire.security import Address, Certificates
from robolearn.io.wire.server import GrpcServer, Handler
from robolearn.rewards.choice import make_reward, reward_config
from robolearn.rewards.metrics import window_of
from robolearn.rewards.serving import messages as m
from robolearn.rewards.serving.service import RewardService
from robolearn.rewards.serving.settings import TOKEN_VARIABLE, ServedReward, token_file
from robolearn.rewards.stored import model_name, read_scores

sys.path.insert(0, str(Path(__file__).parent))
from controls import PICTURES, TASK, Control, Truth, Unsure, episode, where, write

ROOT, TOKEN = Path(__file__).resolve().parents[2], "a token of enough length"
WINDOWS = [window_of(episode(True, seed=1)), window_of(episode(False, seed=2))]


class Choosy(Control):
    """Does what the words say, and notes what it was shown."""

    reads = ("images.front",)
    needs_prompt = frame_by_frame = True

    def __init__(self, interface: Interface | None = None) -> None:
        self.seen: list[Sequence[Window]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        self.seen.append(windows)
        word = prompts[0]
        if word == "wait":
            self.begun.set()
            self.go_on.wait(20)
        if word == "refuse":
            raise BadInput("choosy: the words", got=word)
        if word == "withhold":
            raise RewardWithheld("not sure")
        if word == "fail":
            raise ZeroDivisionError("by zero")
        scores = super().score(windows, prompts)
        if word == "nan":
            scores[0].progress[0] = np.nan
        return scores[1:] if word == "fewer" else scores

    def said(self, window: Window, prompt: str) -> np.ndarray:
        return where(window)


@pytest.fixture(autouse=True)
def own_token_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)


@contextlib.contextmanager
def serving(model: RewardModel, queued: int = 8, port: int = 0, token: str = TOKEN) -> Iterator[GrpcServer]:
    service = RewardService(model, PICTURES, "choosy", "one", queued)
    server = GrpcServer(Address("127.0.0.1", port), service.handlers(), token)
    try:
        yield server
    finally:
        server.close()


def client(server: GrpcServer, timeout_s: float = 10.0) -> Any:
    return make_reward(f"serve:{server.address},timeout_s={timeout_s}", PICTURES)


def same(found: Sequence[Score], wanted: Sequence[Score]) -> bool:
    names = ("progress", "reward", "done", "confidence")
    return len(found) == len(wanted) and all(
        np.array_equal(getattr(a, name), getattr(b, name)) and getattr(a, name).dtype == getattr(b, name).dtype
        for a, b in zip(found, wanted, strict=True)
        for name in names
    )


def test_a_served_model_scores_as_the_model_does(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Choosy()
    with serving(model) as server:
        served = client(server)
        assert isinstance(client(server), RewardModel) and not served.sees_images
        assert served.needs_prompt and served.frame_by_frame
        assert model_name("x", served) == "one" and served.reads == ("images.front",)
        more = [Window({**w.observation, "proprio": np.zeros((len(w), 2))}, w.action) for w in WINDOWS]
        assert same(served.score(more, [TASK, TASK]), Choosy().score(WINDOWS, [TASK, TASK]))
        assert [sorted(w.observation) for w in model.seen[0]] == [["images.front"]] * 2, "what it reads alone is sent"
        backwards = [Window({"images.front": w.observation["images.front"][::-1]}, w.action[::-1]) for w in WINDOWS]
        assert same(served.score(backwards, [TASK, TASK]), Choosy().score(backwards, [TASK, TASK]))
        assert served.score([], []) == []
        monkeypatch.setenv(TOKEN_VARIABLE, "another token of that length")
        with pytest.raises(BadInput, match="another token"):
            client(server, 1.0)
        monkeypatch.delenv(TOKEN_VARIABLE)
        with pytest.raises(BadInput, match="no token"):
            client(server)


@pytest.mark.parametrize(
    ("word", "error", "what"),
    [
        ("refuse", BadInput, "choosy: the words"), ("withhold", RewardWithheld, "not sure"),
        ("fail", RewardWithheld, "the model failed: ZeroDivisionError: by zero"), ("nan", RewardWithheld, "NaN"),
        ("fewer", RewardWithheld, "one for each of 2"),
    ],
)  # fmt: skip
def test_what_a_model_does_not_answer_is_withheld(word: str, error: type[Exception], what: str) -> None:
    with serving(Choosy()) as server:
        served = client(server)
        with pytest.raises(error, match=what):
            served.score(WINDOWS, [word, TASK])
        assert same(served.score(WINDOWS, [TASK, TASK]), Choosy().score(WINDOWS, [TASK, TASK])), "it goes on"


@pytest.mark.long
@pytest.mark.realtime
def test_a_slow_model_is_waited_for_so_long_and_so_many(caplog: pytest.LogCaptureFixture) -> None:
    """One call is served, one may wait: the third is turned away until its own time is over. What nobody waits for any
    longer is not computed."""
    model = Choosy()
    with serving(model, queued=2) as server:
        patient, hasty, third = (client(server, s) for s in (20.0, 0.6, 0.6))
        results: dict[str, Any] = {}

        def ask(name: str, served: Any, word: str) -> threading.Thread:
            def work() -> None:
                begun = time.monotonic()
                try:
                    results[name] = served.score(WINDOWS, [word, TASK])
                except RewardWithheld as why:
                    results[name] = str(why)
                results[f"{name} s"] = time.monotonic() - begun

            thread = threading.Thread(target=work)
            thread.start()
            return thread

        threads = [ask("patient", patient, "wait")]
        assert model.begun.wait(10)
        threads.append(ask("hasty", hasty, TASK))
        time.sleep(0.2)
        threads.append(ask("third", third, TASK))
        for thread in threads[1:]:
            thread.join(10)
        for name in ("hasty", "third"):
            assert "nothing within 0.6 s" in results[name] and results[f"{name} s"] < 3.0
        assert "2 calls wait already" in results["third"] and "patient" not in results
        time.sleep(1.0)  # until the server, on a busy machine, has heard that nobody waits
        model.go_on.set()
        threads[0].join(10)
        assert same(results["patient"], Choosy().score(WINDOWS, [TASK, TASK]))
        assert same(third.score(WINDOWS, [TASK, TASK]), Choosy().score(WINDOWS, [TASK, TASK]))
        assert len(model.seen) == 2, "the hasty one's windows were never looked at"


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        (lambda: m.SCORE.reply(scores=b"\x80\x04 rubbish", withheld="", refused=""), "no safetensors"),
        (lambda: m.SCORE.reply(scores=b"", withheld="", refused=""), "no safetensors"),
        (lambda: m.SCORE.reply(withheld="", refused=""), "no scores"),
        (lambda: answer({"reward": np.zeros(3, np.float32)}), "reward: got"),
        (lambda: answer({"done": np.zeros(18, np.float32)}), "done"),
        (lambda: answer({"confidence": np.full(len(WINDOWS[0]), np.inf, np.float32)}), "infinity"),
        (lambda: m.SCORE.reply(scores=save({"7/progress": np.zeros(1)}), withheld="", refused=""), "0 to 1"),
    ],
)
def test_rubbish_is_no_score(reply: Callable[[], Any], what: str) -> None:
    described = m.DESCRIBE.reply(identity="one", model="x", sees_images=True, needs_prompt=False, is_privileged=False,
                                frame_by_frame=False)  # fmt: skip
    handlers = [Handler(m.DESCRIBE, lambda _: described, 10**6), Handler(m.SCORE, lambda _: reply(), 10**8)]
    server = GrpcServer(Address("127.0.0.1", 0), handlers, TOKEN)
    try:
        with pytest.raises(RewardWithheld, match=what):
            client(server).score(WINDOWS, [TASK, TASK])
    finally:
        server.close()


def answer(wrong: dict[str, np.ndarray]) -> Any:
    arrays = {}
    for i, window in enumerate(WINDOWS):
        numbers = np.zeros(len(window), np.float32)
        arrays |= {f"{i}/{name}": numbers for name in ("progress", "reward", "confidence")}
        arrays[f"{i}/done"] = numbers.astype(np.bool_)
    return m.SCORE.reply(scores=save(arrays | {f"0/{key}": v for key, v in wrong.items()}), withheld="", refused="")


def test_windows_that_are_none_are_refused() -> None:
    good = {"0/action": np.zeros((3, 1), np.float32), "0/observation/x": np.zeros((4, 2))}
    assert len(m.unpack_windows(save(good), 1)[0]) == 3
    for wrong, what in (
        (good | {"0/observation/x": np.zeros((5, 2))}, "3 rows, or one more"),
        (good | {"2/action": np.zeros((3, 1))}, "0 to 0"),
        ({"0/observation/x": np.zeros(3)}, "no actions"),
        ({"0/action": np.zeros((0, 1))}, "no actions"),
    ):
        with pytest.raises(BadInput, match=what):
            m.unpack_windows(save(wrong), 1)


def test_an_interface_that_does_not_suit_the_model_is_refused_at_once() -> None:
    with serving(Truth()) as server:
        other = Interface({"images.wrist": ArraySpec((48, 48, 3), "uint8")}, ArraySpec((1,)), 20.0)
        with pytest.raises(BadInput, match="another one"):
            make_reward(f"serve:{server.address}", other)
        with pytest.raises(BadInput, match="another one"):
            client(server).check(other)
    with pytest.raises(BadInput, match=r"nothing within 0\.5 s"):
        client(server, 0.5)


def test_settings_of_the_client(tmp_path: Path) -> None:
    config = reward_config("serve:10.0.0.7:7360,timeout_s=5,certs=certs")
    assert config == ServedReward("10.0.0.7:7360", 5.0, Path("certs"))
    for text, what in {
        "serve:": "no address",
        "serve:a:1,timeout_s=0": "more than 0",
        "serve:a:1,time=3": "timeout_s",
    }.items():
        with pytest.raises(BadInput, match=what):
            reward_config(text)
    with pytest.raises(BadInput, match="HOST:PORT"):
        make_reward("serve:here", PICTURES)
    with pytest.raises(BadInput, match="no certificates"):
        make_reward("serve:192.0.2.1:7360", PICTURES)
    with pytest.raises(BadInput, match="1 to 12"):
        RewardService(Truth(), PICTURES, "", "", 13)


def started(data: Path, critic: str, listen: str) -> tuple[subprocess.Popen[str], str]:
    """A server in a process of its own, and its address once it listens."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(Path(__file__).parent)))}
    program = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())"]
    words = ["reward", "serve", "--reward", critic, "--data", str(data), "--listen", listen, "--json"]
    process = subprocess.Popen(
        [*program, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if (found := re.search(r"listens at (\S+):", line)) is not None:
            return process, found[1]
    raise AssertionError(f"the server ended with {process.wait()}")


@pytest.mark.long
@pytest.mark.realtime
def test_a_server_that_is_killed_withholds_and_one_that_comes_back_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second process, two callers, SIGKILL, the same model again, another model, Ctrl-C."""
    monkeypatch.delenv(TOKEN_VARIABLE)
    data = write(tmp_path / "data", 1, 1)
    process, address = started(data, "controls:Truth", "127.0.0.1:0")
    processes = [process]
    try:
        assert token_file().stat().st_mode & 0o777 == 0o600, "found by callers on this machine, read by nobody else"
        text = f"serve:{address},timeout_s=3"
        first, second = make_reward(text, PICTURES), make_reward(text, PICTURES)
        assert first is not None and second is not None
        wanted = Truth().score(WINDOWS, [TASK, "other words"])
        for served in (first, second):
            assert same(served.score(WINDOWS, [TASK, "other words"]), wanted)
        process.send_signal(signal.SIGKILL)
        process.wait(10)
        begun = time.monotonic()
        with pytest.raises(RewardWithheld, match="nothing within 3 s"):
            first.score(WINDOWS, [TASK, TASK])
        assert time.monotonic() - begun < 5.0
        again, _ = started(data, "controls:Truth", address)
        processes.append(again)
        assert same(first.score(WINDOWS, [TASK, "other words"]), wanted)
        again.send_signal(signal.SIGINT)
        result = json.loads(again.communicate(timeout=20)[0].splitlines()[-1])
        assert again.returncode == 0 and result["served"] == 2 and result["withheld"] == result["refused"] == 0
        other = serving(Choosy(), port=int(address.rpartition(":")[2]), token=token_file().read_text().strip())
        with other, pytest.raises(RewardWithheld, match="another model"):
            second.score(WINDOWS, [TASK, TASK])
    finally:
        for one in processes:
            one.kill()


@pytest.mark.long
def test_beyond_loopback_with_certificates_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write(tmp_path / "data", 1, 1)
    words = ["reward", "serve", "--reward", "controls:Truth", "--data", str(data), "--listen", "0.0.0.0:0"]
    assert main(words) == 2 and "no certificates" in capsys.readouterr().err
    folder = tmp_path / "certs"
    make_certificates(folder, [])
    service = RewardService(Truth(), PICTURES, "truth", "one", 2)
    certificates = Certificates(folder)
    server = GrpcServer(Address("0.0.0.0", 0), service.handlers(), TOKEN, certificates)
    try:
        text = f"serve:127.0.0.1:{server.address.port},timeout_s=3"
        served = make_reward(f"{text},certs={folder}", PICTURES)
        assert served is not None and same(served.score(WINDOWS, [TASK, TASK]), Truth().score(WINDOWS, [TASK, TASK]))
        with pytest.raises(BadInput, match="nothing within 3 s"):
            make_reward(text, PICTURES)
    finally:
        server.close()


def test_episodes_without_a_score_are_counted_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """None of them stands as a zero in the data set, or among the figures."""
    data = write(tmp_path / "data", 2, 1)
    words = ["--reward", "controls:Unsure", "--data", str(data)]
    assert main(["reward", "score", *words, "--write", "--json"]) == 1
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["scored"] == 2 and [row["episode"] for row in result["scores"]] == [0, 1]
    assert result["withheld"] == ["episode 2: too far to the left"] and result["written"] == str(data / SCORES_PATH)
    stored = read_scores(Dataset.open(data))
    assert list(stored) == [0, 1] and same(list(stored.values()), Truth().score(*windows_of(data, [0, 1])))
    assert main(["reward", "score", *words, "--write"]) == 1
    said = capsys.readouterr().out
    assert "1 episodes have no score" in said and "asks again for those that are missing" in said
    assert main(["reward", "evaluate", *words]) == 1, "backwards, a success ends at the left, too"
    assert "no score of any episode" in capsys.readouterr().err


def test_only_scores_that_are_missing_are_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write(tmp_path / "data", 2, 1)
    words = ["reward", "score", "--reward", "controls:Unsure", "--data", str(data), "--write", "--json"]
    assert main(words) == 1
    monkeypatch.setattr(Unsure, "asked", 0)
    monkeypatch.setattr(Unsure, "dares", True)
    capsys.readouterr()
    for scored in (1, 0):
        assert main(words) == 0
        result = json.loads(capsys.readouterr().out.splitlines()[-1])
        assert result["scored"] == scored and [row["episode"] for row in result["scores"]] == [0, 1, 2]
        assert result["written"] == str(data / SCORES_PATH) and not result["withheld"]
    assert Unsure.asked == 1
    stored = read_scores(Dataset.open(data))
    assert same([stored[e] for e in range(3)], Truth().score(*windows_of(data, [0, 1, 2])))


def windows_of(data: Path, episodes: list[int]) -> tuple[list[Window], list[str]]:
    dataset = Dataset.open(data)
    return [window_of(dataset.episode(e)) for e in episodes], [TASK] * len(episodes)


@pytest.mark.long
def test_a_served_vision_language_model_scores_as_in_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tiny Qwen3-VL in a second process; the scores of a data set are the same bit for bit, and known afterwards."""
    from tiny_vlms import qwen  # late: transformers takes seconds to import

    monkeypatch.delenv(TOKEN_VARIABLE)
    qwen(tmp_path / "qwen")
    data, critic = write(tmp_path / "data", 1, 1), f"topreward:{tmp_path / 'qwen'},prefixes=3"
    process, address = started(data, critic, "127.0.0.1:0")
    try:
        served, found = f"serve:{address},timeout_s=60", []
        for text in (served, critic):
            assert main(["reward", "score", "--reward", text, "--data", str(data), "--write", "--json"]) == 0
            found.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
        assert found[0]["scores"] == found[1]["scores"] and found[0]["scored"] == 2
        assert found[1]["scored"] == 0, "the model here has the same name as the one there: its scores are known"
        model = make_reward(served, Interface(dict(PICTURES.observation), PICTURES.action, 20.0))
        assert model is not None
        with pytest.raises(BadInput, match="the mark"):
            model.score(WINDOWS[:1], ["push <|im_end|>"])
    finally:
        process.kill()
