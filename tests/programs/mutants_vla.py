"""Mutation check of vision-language critics and of the server of a reward model: one line of them is wrong, a test that is named here fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

VLA = "robolearn/rewards/vla"
READ, ANSWERED = ("tests/rewards/test_vla.py",), ("tests/rewards/test_vla_answers.py",)
SHARED = ("tests/rewards/test_reference.py::test_what_pairs_have_in_common_is_read_once",)
SERVING, SERVED = "robolearn/rewards/serving", ("tests/rewards/test_serving.py",)

MUTANTS: dict[str, Mutant] = {
    "progress-at-the-token-before": Mutant(f"{VLA}/robometer.py", "for row, place in zip(hidden, places, strict=True)", "for row, place in zip(hidden, places.roll(-1, 1), strict=True)", READ),
    "bins-begin-at-the-first-share": Mutant(f"{VLA}/robometer.py", "torch.linspace(0.0, 1.0, logits.shape[-1]", "torch.linspace(0.1, 1.0, logits.shape[-1]", READ),
    "five-tokens-in-another-order": Mutant(f"{VLA}/robometer.py", '"<|split_token|>", "<|reward_token|>"', '"<|reward_token|>", "<|split_token|>"', READ),
    "success-is-progress": Mutant(f"{VLA}/robometer.py", 'self.heads["success_head"](frames))', 'self.heads["progress_head"](frames)[:, :1])', READ),
    "pictures-of-parts-of-cells": Mutant(f"{VLA}/robometer.py", "area, rounding = (LEAST, np.ceil)", "area, rounding = (LEAST, np.floor)", READ),
    "vocabulary-without-the-tokens": Mutant(f"{VLA}/robometer.py", "        if len(words) > rows:", "        if False:", READ),
    "the-token-after-the-answer": Mutant(f"{VLA}/topreward.py", ".logits[:, -2].float()", ".logits[:, -1].float()", READ),
    "any-last-token-is-the-answer": Mutant(f"{VLA}/topreward.py", ".strip() != ANSWER:", ".strip() == '':", READ),
    "the-turn-ends-behind-the-answer": Mutant(f"{VLA}/topreward.py", "text[: text.rfind(self.processor.tokenizer.eos_token)]", "text", READ),
    "videos-framed-twice": Mutant(f"{VLA}/critic.py", "text.replace(self._framed_video, self._video)", "text", READ),
    "nan-is-a-score": Mutant(f"{VLA}/critic.py", "                if not np.isfinite(values).all():", "                if False:", READ),
    "any-task-is-asked": Mutant(f"{VLA}/critic.py", "        if marks:", "        if False:", READ),
    "done-before-it-was-seen": Mutant(f"{VLA}/frames.py", 'side="right") - 1', 'side="left")', READ),
    "a-threshold-that-ends-nothing": Mutant("robolearn/rewards/shaping.py", "[0.0, 0.5, 1.0])", "[0.0, threshold, 1.0])", READ),
    "missing-tensors-are-drawn": Mutant(f"{VLA}/loading.py", '("no tensor", report["missing_keys"])', '("no tensor", [])', READ),
    "leftover-tensors-are-dropped": Mutant(f"{VLA}/loading.py", "a tensor that has no place,\", left)", "a tensor that has no place,\", [])", READ),
    "weights-do-not-name-a-model": Mutant(f"{VLA}/loading.py", "for part in (path.name, sha256_file(path))", "for part in (path.name,)", READ),
    "rubbish-is-the-least-rating": Mutant(f"{VLA}/roboreward.py", "                raise RewardWithheld(", "                value = (1, 1.0)\n            if False:\n                raise RewardWithheld(", ANSWERED),
    "ratings-from-nothing": Mutant(f"{VLA}/roboreward.py", "(ratings - 1.0) / (BEST - 1.0)", "ratings / BEST", ANSWERED),
    "any-rating": Mutant(f"{VLA}/answers.py", "not 1 <= int(found[1]) <= most", "not 0 <= int(found[1])", ANSWERED),
    "frames-stay-shuffled": Mutant(f"{VLA}/gvl.py", "progress[order] = ", "progress[1:] = ", ANSWERED),
    "frames-are-not-shuffled": Mutant(f"{VLA}/gvl.py", "np.random.default_rng(seed).permutation(len(clip) - 1)", "np.arange(len(clip) - 1)", ANSWERED),
    "the-later-picture-first": Mutant(f"{VLA}/vlac.py", "[: len(shown)], earlier, later],", "[: len(shown)], later, earlier],", ANSWERED),
    "beginnings-of-another-episode": Mutant(f"{VLA}/critic.py", "if known is None or not (torch.equal(known[0], tokens) and torch.equal(known[1], pictures)):", "if known is None:", SHARED),
    "beginnings-read-each-time": Mutant(f"{VLA}/critic.py", "if len(rows) == self.config.batch == 1 and rows[0].shared:", "if False:", SHARED),
    "beginnings-grow": Mutant(f"{VLA}/critic.py", "kept = copy.deepcopy(known[2])", "kept = known[2]", SHARED),
    "beginnings-without-the-first-frame": Mutant(f"{VLA}/vlac.py", "len(shown) + 1 if shown else 0", "len(shown)", SHARED),
    "losses-like-gains": Mutant(f"{VLA}/vlac.py", "        if c >= 0.0:", "        if True:", ANSWERED),
    "the-chosen-digit-alone": Mutant(f"{VLA}/answers.py", "p > LEAST * token[0][1]", "p >= token[0][1]", ANSWERED),
    "served-by-another-model": Mutant(f"{SERVING}/service.py", "        if request.identity != self._identity:", "        if False:", SERVED),
    "any-number-of-calls-waits": Mutant(f"{SERVING}/service.py", "        if not self._places.acquire(blocking=False):", "        if not self._places.acquire(timeout=5):", SERVED),
    "places-are-never-given-back": Mutant(f"{SERVING}/service.py", "            self._places.release()", "            pass", SERVED),
    "computed-for-nobody": Mutant(f"{SERVING}/service.py", "if time.monotonic() - arrived > request.wait_s:", "if False:", SERVED),
    "a-model-that-raises-says-so-to-nobody": Mutant("robolearn/rewards/metrics.py", "raise RewardWithheld(why) from error", "raise BadInput(why) from error", SERVED),
    "served-without-a-check": Mutant("robolearn/rewards/metrics.py", "return checked(found, windows)", "return list(found)", SERVED),
    "any-interface-is-served": Mutant(f"{SERVING}/service.py", "elif interface.to_json() != self._interface.to_json():", "elif False:", SERVED),
    "rubbish-is-taken": Mutant(f"{SERVING}/messages.py", "    return checked(scores, windows)", "    return scores", SERVED),
    "all-features-travel": Mutant(f"{SERVING}/messages.py", "if not features or key in features:", "if True:", SERVED),
    "strided-pictures-travel-as-they-lie": Mutant(f"{SERVING}/messages.py", "= np.ascontiguousarray(value)\n", "= value.base if value.base is not None else value\n", SERVED),
    "a-dead-server-is-an-end": Mutant(f"{SERVING}/client.py", "        except BadInput as bad:\n            raise RewardWithheld(f\"{self._what}: {bad}\") from None", "        except ZeroDivisionError:\n            raise", SERVED),
    "asked-for-ever": Mutant(f"{SERVING}/client.py", "if deadline - time.monotonic() <= RETRY_S:", "if deadline - time.monotonic() <= -20:", SERVED),
    "withheld-is-silent": Mutant("robolearn/cli/reward.py", 'withheld.append(f"episode {e}: {why}")', "pass", SERVED),
    "numbers-without-their-sign": Mutant(f"{VLA}/answers.py", "return sign * value", "return value", ANSWERED),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("vision-language critics", MUTANTS))
