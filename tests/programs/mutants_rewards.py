"""Mutation check of the ends of episodes and of critics: one line of them is wrong, a test that is named here fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

FINALS, PAIRS = ("tests/data/test_finals.py",), ("tests/rewards/test_pairs.py",)
RECORDED = ("tests/hardware/test_recording_in_time.py::test_what_is_stored_is_what_was_asked_for_and_done",)
AUDIT, AUDITED = ("tests/rl/test_rl_audit.py", "tests/rl/test_rl_model_reward.py"), "robolearn/rl/audit.py"
SRPOS, SRPO = ("tests/rl/test_rl_srpo.py",), "robolearn/rl/algorithms/srpo.py"
WORLD_MODEL, WORLD_MODELS = "robolearn/rewards/vla/world_model.py", ("tests/rl/test_rl_srpo_video.py",)
CLASSIFIER, LABELLED = ("tests/rewards/test_classifier.py",), ("tests/rewards/test_labels.py",)
LOOPBACK = "robolearn/runs/loopback.py"
COMPARED = "robolearn/rewards/labels.py"
BY_PREFERENCE = "robolearn/rewards/preference_training.py"
BY_PREFERENCES = tuple(
    f"tests/rewards/test_preference_reward.py::test_{name}"
    for name in (
        "the_loss_by_hand",
        "the_threshold_by_hand",
        "the_rows_of_clips_by_hand",
        "the_worst_member_is_read",
        "vectors_are_standardised",
        "pairs_kept_from_training_are_not_drawn",
        "clips_that_stop_before_the_end_end_nothing",
    )
)
PREFERRED_NAMES = ("tests/rewards/test_preference_reward.py::test_the_same_numbers_in_another_order_are_refused",)
PREFERRED_ENDS = ("tests/rewards/test_preference_reward.py::test_it_calls_new_ends_done_and_no_failure",)
COMPARISONS = tuple(
    f"tests/rewards/test_preferences.py::test_{name}"
    for name in ("outcomes_say_which_is_better", "pairs_are_of_one_task_and_new", "they_are_read_as_they_were_written")
)
TRAINING, LABELS = (f"robolearn/rewards/{name}.py" for name in ("classifier_training", "labels"))
SPARSE, RULE = "robolearn/rewards/scoring.py", "robolearn/rewards/done.py"
SPARSELY = (
    "tests/rewards/test_rewards.py",
    "tests/rl/test_replay_runner.py::test_a_model_that_sees_is_shown_the_frames_of_decisions",
)
REFERENCE, REFERRED = "robolearn/rewards/reference.py", ("tests/rewards/test_reference.py",)
VLA = "robolearn/rewards/vla"
THRESHOLD, FITTED = "robolearn/rewards/training.py", ("tests/rewards/test_thresholds.py",)
FIRSTS, STRANGE = "robolearn/rewards/first_frames.py", ("tests/rewards/test_first_frames.py::test_distances_by_hand",)
SAID = ("tests/rewards/test_first_frames.py::test_one_line_says_all_of_a_set_and_nothing_is_read_for_nobody",)
BEGUN = ("tests/cli/test_finetune_replay.py::test_withheld_rewards_are_counted_and_scores_are_kept_over_a_kill",)
SHAPED, POTENTIAL = "robolearn/rewards/shaping.py", ("tests/rewards/test_potential.py",)
ASKING, ASKED = "robolearn/rewards/asking.py", ("tests/rewards/test_asking.py",)
FORMAT, LOCKED = "robolearn/data/lerobot/tables.py", "robolearn/data/writing/locked_dataset.py"

TWO_WAY, TWO_WAYS = "sim/embedded/two_way.py", ("tests/sim/test_two_way.py",)
IN_TURN, IN_TURNS = "robolearn/rl/two_way_runner.py", ("tests/rl/test_two_way_runner.py",)

PAIRED, KEPT = "robolearn/rewards/pairs.py", ("tests/rewards/test_critic.py::test_the_starts_of_each_task_are_kept",)
HANDED, HANDS, TAUGHT = "robolearn/rewards/critic.py", ("tests/rewards/test_hand.py",), "robolearn/rewards/training.py"

WEIGHING, STORED, WEIGHED = (
    "robolearn/rewards/stored.py",
    "robolearn/rewards/stored.py",
    ("tests/rewards/test_weighing.py",),
)
JUDGED, JUDGES = "robolearn/rl/two_way_runner.py", ("tests/rl/test_judged_turns.py",)

MUTANTS: dict[str, Mutant] = {
    "turns-by-the-other-critic": Mutant(JUDGED, "model = self._models[int(back)]", "model = self._models[int(not back)]", JUDGES),
    "turns-end-at-any-step": Mutant(JUDGED, "(self._steps % self._every == 0) &", "", JUDGES),
    "turns-are-not-handed-over": Mutant(JUDGED, "self._env.hand_over(np.flatnonzero(over)), terminated | over", "observation, terminated | over", JUDGES),
    "turns-end-by-the-world-s-success": Mutant(TWO_WAY, "return np.zeros_like(success) if self._judged else success", "return success", JUDGES),
    "called-turns-count-as-unsolved": Mutant(TWO_WAY, "        self._called[ids] = True\n", "", JUDGES),
    "back-learns-by-the-world": Mutant(IN_TURN, "shown, back_model, env.prompts[1])", "shown, None, env.prompts[1])", JUDGES),
    "films-end-before-the-end": Mutant(
        "robolearn/eval/critic_page.py", "episode.seen[camera][-len(episode.action) :]", "episode.observation[camera]",
        ("tests/rewards/test_critic_evaluation.py::test_the_picture_of_a_score_is_the_one_after_its_step",),
    ),
    "weighs-by-what-was-gained-before": Mutant(WEIGHING, "np.concatenate([[0.0], progress[:-1]])", "progress", WEIGHED),
    "weighs-beyond-the-episode-s-end": Mutant(WEIGHING, "+ horizon, len(progress)) - 1", "+ horizon - 1, len(progress) - 1)[::-1]", WEIGHED),
    "weighs-what-loses": Mutant(WEIGHING, "np.where(r < 0, 0.0, soft)", "soft", WEIGHED),
    "weighs-with-a-mean-below-nothing": Mutant(WEIGHING, "max(float(together.mean()), 0.0)", "float(together.mean())", WEIGHED),
    "weighs-each-episode-by-its-mean": Mutant(
        "robolearn/data/windows.py", "np.broadcast_to(one, length)", "np.broadcast_to(np.mean(one), length)", WEIGHED
    ),
    "stored-scores-of-a-part": Mutant(STORED, "if len(scores) < dataset.episodes:", "if not scores:", WEIGHED),
    "stored-scores-of-anybody": Mutant(STORED, "if len(set(names)) > 1:", "if not names:", WEIGHED),
    "stored-scores-by-another-discount": Mutant(STORED, "with_score(episode, score, gamma=gamma)", "with_score(episode, score, gamma=0.99)", WEIGHED),
    "hand-alone-may-call-it-done": Mutant(HANDED, "odds = torch.minimum(odds, member.hand(", "odds = torch.maximum(odds, member.hand(", HANDS),
    "hand-is-not-asked": Mutant(HANDED, "odds = torch.minimum(odds, member.hand(", "torch.minimum(odds, member.hand(", HANDS),
    "hand-of-other-columns": Mutant(HANDED, "self.state.index(name) for name in HAND", "self.state.index(name) - 1 for name in HAND", HANDS),
    "hand-of-another-arm": Mutant(HANDED, "if self.state and names != self.state:", "if self.state and len(names) != len(self.state):", HANDS),
    "hand-of-the-first-frame": Mutant(TAUGHT, "self._hands[torch.from_numpy(pairs.second)]", "self._hands[torch.from_numpy(pairs.first)]", HANDS),
    "hand-is-not-learned": Mutant(TAUGHT, "loss + by_hand, parts", "loss, parts", HANDS),
    "hand-in-other-units": Mutant(TAUGHT, "found.std(0).clamp_min(LEAST_SPREAD)", "found.std(0) + 1.0", HANDS),
    "held-one-frame-too-soon": Mutant(SPARSE, "np.arange(len(episode)) + after,", "np.arange(len(episode)) + after + 1,", SPARSELY),
    "held-without-the-last-frame": Mutant(SPARSE, "np.append(np.arange(0, frames, every), frames - 1)", "np.arange(0, frames, every)", SPARSELY),
    "held-with-a-potential-after-done": Mutant(SPARSE, "gamma=gamma, ended=terminated", "gamma=gamma", SPARSELY),
    "held-by-another-discount": Mutant(SPARSE, "gamma=gamma, ended", "gamma=0.99, ended", SPARSELY),
    "held-though-not-sure": Mutant(RULE, "score.done & (score.confidence >= self.threshold)", "score.done", SPARSELY),
    "the-one-at-the-first-done-of-the-model": Mutant(SPARSE, "done = np.arange(1, steps + 1) == end", "done = score.done[:steps]", SPARSELY),
    "reward-of-the-model-s-own-discount": Mutant(
        SPARSE, "reward=shaped_rewards(score.progress[:steps], done, gamma=gamma, ended=terminated)", "reward=score.reward[:steps]", SPARSELY
    ),
    "held-with-a-potential-after-a-failure": Mutant(SPARSE, "ended=terminated", "ended=solved", SPARSELY),
    "sees-every-frame": Mutant(
        "robolearn/rl/offline_runner.py", 'self.algorithm.chunk if getattr(self._model, "reads", ()) else 1', "1", SPARSELY
    ),
    "final-of-another-colour": Mutant(FORMAT, "np.ascontiguousarray(value[..., ::-1])", "np.array(value)", FINALS),
    "final-of-another-length": Mutant(FORMAT, "(found := table[_LENGTH][0].as_py()) != length", "False and (found := 0)", FINALS),
    "final-outlives-a-kill": Mutant(LOCKED, "        newest[FINAL_PATH] = self.episodes - 1\n", "", FINALS),
    "final-of-the-next-episode": Mutant(LOCKED, "layout.numbered(FINAL_PATH, count)", "layout.numbered(FINAL_PATH, count + 1)", FINALS),
    "final-is-the-first-of-the-next": Mutant(
        "robolearn/rollout/collect.py", "for key, value in turn.observation.items()}", "for key, value in engine.observation.items()}", FINALS
    ),
    "final-of-a-cut-end": Mutant("robolearn/data/convert/edit.py", "_with(short, final={}) if end else short", "short", FINALS),
    "final-not-checked": Mutant("robolearn/data/writing/writer.py", "self._checked_final(final or {}, len(self._steps))", "final or {}", FINALS),
    "final-is-the-last-row": Mutant(
        "hardware/recording/recording.py", "self._rows[0].observation if self._rows else self._observed", "self._newest", RECORDED
    ),
    "final-not-scored": Mutant(
        "robolearn/core/types.py", "np.concatenate([value, self.final[key][None]]) if self.final else np.asarray(value)", "np.asarray(value)", FINALS
    ),
    "near-the-end-is-done": Mutant(
        "robolearn/rewards/pairs.py", "np.where(final, length - 1, np.minimum", "np.where(final, 0.9 * length, np.minimum", PAIRS
    ),
    "unsure-of-everything": Mutant("robolearn/rewards/pairs.py", "np.where(final, np.minimum((1.0 - unsure)", "np.where(final, np.minimum((0.5 - unsure)", PAIRS),
    "audit-counts-the-model-s-word-as-truth": Mutant(
        "robolearn/rl/model_reward.py", "bool(solved[rows[-1]]))", "bool(self._called[world]))", AUDIT
    ),
    "audit-never-ends-a-run": Mutant(AUDITED, "self._stopped = i + 1", "pass", AUDIT),
    "audit-stops-on-few-episodes": Mutant(AUDITED, "precision.high < config.audit_precision", "precision.rate < config.audit_precision", AUDIT),
    "audit-trusts-what-mostly-succeeds": Mutant(AUDITED, "false.low > config.audit_false", "False", AUDIT),
    "audit-forgets-nothing": Mutant(AUDITED, "            self._history.pop(0)\n", "            break\n", AUDIT),
    "audit-ends-a-run-that-it-is-to-warn-of": Mutant(AUDITED, 'stopped if self.config.audit == "stop" else 0', "stopped", AUDIT),
    "solved-before-the-end": Mutant("robolearn/rl/buffer.py", "turn.solved & turn.ended", "turn.ended", AUDIT),
    "srpo-nearest-is-worst": Mutant(SRPO, "np.exp(-STEEPNESS * (0.5 - share))", "np.exp(STEEPNESS * (0.5 - share))", SRPOS),
    "srpo-noise-is-a-centre": Mutant(SRPO, "np.flatnonzero(size > 1)", "np.flatnonzero(size > 0)", SRPOS),
    "srpo-keeps-every-group": Mutant(SRPO, "((share >= 0.1) & (share <= 0.9))[group]", "(share >= 0.0)[group]", SRPOS),
    "srpo-not-standardised": Mutant(SRPO, "np.where(spread > 1e-8, spread, 1.0)", "1.0", SRPOS),
    "srpo-looks-at-the-start-alone": Mutant(SRPO, "torch.cat([frames.mean(0), frames[-1]])", "torch.cat([frames.mean(0), frames[0]])", SRPOS),
    "srpo-references-of-groups-left-out": Mutant(
        SRPO, "self_referential(self.latents(batch, np.flatnonzero(kept)), solved[kept])", "self_referential(self.latents(batch, np.arange(len(kept))), solved)[kept]", SRPOS
    ),
    "world-model-sees-the-beginning": Mutant(WORLD_MODEL, "np.linspace(0, len(video) - 1, self.frames).round()", "np.arange(self.frames).clip(max=len(video) - 1)", WORLD_MODELS),
    "world-model-sees-each-video-again": Mutant(WORLD_MODEL, "if name not in self._known:", "if True:", WORLD_MODELS),
    "world-model-pools-another-axis": Mutant(WORLD_MODEL, "tokens[0].float().mean(0)", "tokens[0].float().amax(0)", WORLD_MODELS),
    "world-model-of-one-camera": Mutant(SRPO, "for video in seen.values()])", "for video in [*seen.values()][:1]])", WORLD_MODELS),
    "world-model-s-nan-is-a-latent": Mutant(WORLD_MODEL, "if not torch.isfinite(found).all():", "if False:", WORLD_MODELS),
    "withheld-episode-comes-back": Mutant(
        "robolearn/rl/model_reward.py", "self._left_out[world] = score is None", "self._left_out[world] = False", AUDIT
    ),
    "withheld-episode-is-learned-from": Mutant("robolearn/rl/model_reward.py", "                kept[rows] = False\n", "", AUDIT),
    "withheld-episode-is-compared-with": Mutant(
        "robolearn/rl/algorithms/grpo.py", "group_advantage(returns[present], group[present]", "group_advantage(returns, group", AUDIT
    ),
    "score-is-asked-for-twice": Mutant(ASKING, "if stored[key] is None]", "if True]", ASKED),
    "score-of-other-words": Mutant(ASKING, "len(window), prompt)", 'len(window), "")', ASKED),
    "no-server-is-waited-for-ever": Mutant(ASKING, "if self.in_a_row >= IN_A_ROW:", "if False:", ASKED),
    "shaping-of-another-kind": Mutant("robolearn/rl/model_reward.py", "kind=self.shaping", 'kind="shaped"', AUDIT),
    "reference-of-the-last-frame": Mutant(HANDED, "[frames[:1] for frames in self.seen(reference.window)]", "[frames[-1:] for frames in self.seen(reference.window)]", REFERRED),
    "reference-of-every-task": Mutant(HANDED, "starts = self.starts_of(self.words([reference.task]))", "starts = self.starts", REFERRED),
    "reference-that-failed": Mutant(REFERENCE, "if not dataset.outcomes or not episode.success:", "if not dataset.outcomes:", REFERRED),
    "reference-not-in-the-name": Mutant(f"{VLA}/critic.py", "content_hash(*self._folders()), *shown)", "content_hash(*self._folders()))", REFERRED),
    "reference-without-its-time": Mutant(f"{VLA}/gvl.py", "percent=percent[place])", "percent=percent[0])", REFERRED),
    "reference-without-the-beginning": Mutant(f"{VLA}/vlac.py", "[*shown, *frames[:1][: len(shown)], earlier, later]", "[*shown, earlier, later]", REFERRED),
    "threshold-fitted-on-what-was-learned": Mutant(TAUGHT, "sampler(self.config, ~self._kept,", "sampler(self.config, ~self._kept | True,", FITTED),
    "threshold-of-any-false-positives": Mutant(THRESHOLD, "FALSE = 0.02", "FALSE = 0.2", FITTED),
    "threshold-at-the-highest-failure": Mutant(THRESHOLD, "else (lo + hi) / 2.0", "else lo", FITTED),
    "threshold-of-single-frames": Mutant(THRESHOLD, ".min(1).max())", ".max(1).max())", FITTED),
    "threshold-that-no-score-goes-by": Mutant(HANDED, "len(window), self.threshold)", "len(window), DONE)", FITTED),
    "threshold-that-is-no-half": Mutant(SHAPED, "[0.0, threshold, 1.0], [0.0, 0.5, 1.0])", "[0.0, 0.5, 1.0], [0.0, 0.5, 1.0])", FITTED),
    "firsts-of-one-episode": Mutant(FIRSTS, ".median(0).values.tolist()", ".amax(0).tolist()", STRANGE),
    "firsts-of-all-cameras-alike": Mutant(FIRSTS, "square().flatten(2).mean((0, 2))", "square().mean()", STRANGE),
    "firsts-tried-on-what-was-learned": Mutant(FIRSTS, "self.distance(kept).amax(0)", "self.distance(trained).amax(0)", STRANGE),
    "firsts-of-a-set-in-several-lines": Mutant(FIRSTS, 'where, "; ".join(found))', "where, found[0])", SAID),
    "firsts-read-for-nobody": Mutant(FIRSTS, "strange is not None and (shown := list(windows))", "(shown := list(windows)) and strange is not None", SAID),
    "firsts-of-one-world": Mutant(FIRSTS, "range(min(LOOKED_AT, env.num_envs))", "range(1)", BEGUN),
    "firsts-of-worlds-unlooked-at": Mutant("robolearn/cli/finetune.py", "if critic is not None and env is not None:", "if False:", BEGUN),
    "shares-of-the-whole": Mutant(SHAPED, "whole = np.where(gain >= 0.0, 1.0 - before, before)", "whole = np.ones_like(gain)", POTENTIAL),
    "shares-lost-of-what-was-left": Mutant(SHAPED, "np.where(gain >= 0.0, 1.0 - before, before)", "1.0 - before", POTENTIAL),
    "shaping-pays-for-leaving": Mutant(SHAPED, "after[-1] = 0.0", "pass", POTENTIAL),
    "classifier-learns-from-what-is-kept-apart": Mutant(TRAINING, "np.flatnonzero(~apart & chosen)", "np.flatnonzero(chosen)", CLASSIFIER),
    "classifier-drowns-in-failures": Mutant(TRAINING, "sizes = (batch - batch // 2, batch // 4,", "sizes = (batch // 4, batch // 2,", CLASSIFIER),
    "classifier-surer-than-right": Mutant(TRAINING, "int(np.argmin(loss))", "int(np.argmax(loss))", CLASSIFIER),
    "classifier-forgets-the-person": Mutant(TRAINING, "found[frame] = done", "pass", CLASSIFIER),
    "preferred-though-it-failed": Mutant(COMPARED, "solved, -float(", "True, -float(", COMPARISONS),
    "preferred-because-it-took-longer": Mutant(COMPARED, "solved, -float(", "solved, float(", COMPARISONS),
    "preferred-twice": Mutant(COMPARED, "        taken.add(frozenset((a, b)))\n", "", COMPARISONS),
    "preferred-clips-of-other-episodes": Mutant(COMPARED, "dataset.lengths[e] == length and 0 <= begin", "0 <= begin", COMPARISONS),
    "preferred-by-less": Mutant(BY_PREFERENCE, "pooled[:, 0] - pooled[:, 1]", "pooled[:, 1] - pooled[:, 0]", BY_PREFERENCES),
    "preferred-by-the-sum": Mutant(BY_PREFERENCE, "value[..., 0].mean(2)", "value[..., 0].sum(2)", BY_PREFERENCES),
    "preferred-and-done-on-average": Mutant(BY_PREFERENCE, "value[..., 1].amax(2)", "value[..., 1].mean(2)", BY_PREFERENCES),
    "preferred-and-done-by-clips-of-the-middle": Mutant(BY_PREFERENCE, "(loss[:, 1] * ends).sum()", "loss[:, 1].sum()", BY_PREFERENCES),
    "preferred-by-the-frame-before": Mutant(BY_PREFERENCE, "starts[clip.episode] + clip.begin + 1 for", "starts[clip.episode] + clip.begin for", BY_PREFERENCES),
    "preferred-by-frames-of-the-next-episode": Mutant(
        BY_PREFERENCE, "        return np.minimum(self.first[pairs, :, None] + step, self.last[pairs, :, None])", "        return self.first[pairs, :, None] + step", BY_PREFERENCES
    ),
    "preferred-by-pairs-kept-apart": Mutant(BY_PREFERENCE, "shuffled[:apart], shuffled[apart:]", "shuffled[:apart], shuffled", BY_PREFERENCES),
    "preferred-and-done-halfway": Mutant(BY_PREFERENCE, "clips.ends & (clips.label != 0.5)", "clips.label != 0.5", BY_PREFERENCES),
    "preferred-and-done-by-the-worse": Mutant(BY_PREFERENCE, "np.where(clips.label[pairs] > 0.5, 0, 1)", "np.where(clips.label[pairs] > 0.5, 1, 0)", PREFERRED_ENDS),
    "preferred-and-done-at-the-narrowest": Mutant(BY_PREFERENCE, "int(np.argmax(levels[best] - below))", "int(np.argmin(levels[best] - below))", BY_PREFERENCES),
    "preferred-though-it-parts-nothing": Mutant(BY_PREFERENCE, "gain.max(initial=0) <= 0", "gain.max(initial=0) < 0", BY_PREFERENCES),
    "preferred-by-the-most-pleased": Mutant("robolearn/rewards/preference.py", ".amin(0) for m, v", ".amax(0) for m, v", BY_PREFERENCES),
    "preferred-by-raw-vectors": Mutant(BY_PREFERENCE, "            self.critic.scale.copy_(self._vectors.std(0).clamp_min(LEAST_SPREAD))\n", "", BY_PREFERENCES),
    "preferred-in-any-order": Mutant("robolearn/rewards/preference_training.py", "names={key: spec.names for key, spec in specs.items() if spec.names},", "names={},", PREFERRED_NAMES),
    "preferred-and-unread": Mutant("robolearn/rewards/preference.py", "names=stored[\"names\"]", "names={}", PREFERRED_NAMES),
    "preferred-and-done-for-ever": Mutant("robolearn/rewards/preference.py", ".clamp(max=MOST)", "", BY_PREFERENCES),
    "labels-of-other-episodes": Mutant(LABELS, "dataset.lengths[e] == length and 0 <= frame", "0 <= frame", CLASSIFIER),
    "labels-ask-what-is-certain": Mutant(LABELS, "in sorted(every):", "in sorted(every, reverse=True):", LABELLED),
    "labels-of-the-frame-before": Mutant(LABELS, "count - len(p) + i", "i", LABELLED),
    "label-page-for-anybody": Mutant(LOOPBACK, 'request.cookies.get(self._name, ""), self._cookie', "self._cookie, self._cookie", LABELLED),
    "label-page-under-any-name": Mutant(LOOPBACK, "request.host not in self._own", "False", LABELLED),
    "label-page-for-other-sites": Mutant(LOOPBACK, 'origin.removeprefix("http://") not in self._own', "False", LABELLED),
    "view-of-each-block-from-elsewhere": Mutant(
        "robolearn/rewards/networks.py", "                generator.set_state(drawn)\n", "                pass\n", ("tests/rewards/test_views.py",)
    ),
    "view-to-one-side": Mutant(
        "robolearn/rewards/networks.py", "most * (2 * torch.rand(4, generator=generator, device=pictures.device) - 1)",
        "most * torch.rand(4, generator=generator, device=pictures.device)", ("tests/rewards/test_views.py",)
    ),
    "swaps-in-starts-of-any-task": Mutant(PAIRED, "swapped & (task == number)", "swapped", PAIRS),
    "swaps-in-starts-of-the-task-that-is-shown": Mutant(PAIRED, "np.where(pairs.words < len(self.solved_starts), pairs.words, shown)", "shown", PAIRS),
    "pace-of-all-tasks": Mutant(PAIRED, "self._mean_lengths[self._words[e]]", "self._mean_lengths.mean()", PAIRS),
    "starts-of-all-tasks": Mutant(PAIRED, "self._solved[words[self._solved] == task]", "self._solved", PAIRS),
    "starts-of-the-first-task": Mutant(TAUGHT, "in self._sampler.solved_starts]", "in self._sampler.solved_starts[:1] * len(tasks)]", KEPT),
    "reads-starts-of-the-first-task": Mutant(HANDED, "words).argmax())", "words).argmax() * 0)", KEPT),
    "other-words-of-other-things-alone": Mutant("robolearn/rewards/settings.py", "(*OTHER_TASKS, *motions)", "OTHER_TASKS", PAIRS),
    "other-words-that-are-the-task": Mutant("robolearn/rewards/settings.py", " if other not in known]", "]", PAIRS),
    "turn-only-after-success": Mutant(TWO_WAY, "self.world_task.back[going] ^= True", "self.world_task.back[going] ^= solved[~lost]", TWO_WAYS),
    "turn-of-the-way-back-is-not-judged": Mutant(
        TWO_WAY, "np.where(self.back, self.back_again.success(state), self.there.success(state))", "self.there.success(state)", TWO_WAYS
    ),
    "turn-at-the-same-place": Mutant(TWO_WAY, "int(self._episode[w]), 1]", "0, 1]", TWO_WAYS),
    "turn-that-resets": Mutant(TWO_WAY, "        going = ids[~lost]\n", "        lost[:] = True\n        going = ids[~lost]\n", TWO_WAYS),
    "turn-without-a-way-home": Mutant(TWO_WAY, "        self._go_home(ids[~lost & ~solved])\n", "", TWO_WAYS),
    "turn-without-patience": Mutant(TWO_WAY, "        lost |= self._unsolved[ids] >= PATIENCE\n", "", TWO_WAYS),
    "turn-that-is-not-counted-as-help": Mutant(TWO_WAY, "            self.helped += int(lost.sum())\n", "", TWO_WAYS),
    "turn-forgotten-in-a-snapshot": Mutant(TWO_WAY, '        self.world_task.back[:] = snapshot["back"]\n', "", TWO_WAYS),
    "turn-draws-other-dynamics-on-resume": Mutant(TWO_WAY, "return self._placed", "return self._episode", TWO_WAYS),
    "turn-learned-by-the-other": Mutant(IN_TURN, "(self._back if back else forward)", "(forward if back else self._back)", IN_TURNS),
    "turn-acted-by-the-other": Mutant(IN_TURN, "(~back, back), strict", "(back, ~back), strict", IN_TURNS),
    "turn-s-learner-not-resumed": Mutant(
        IN_TURN, '        self.backward.load_state(unprefixed("backward", tensors), meta["backward"])\n', "", IN_TURNS
    ),
    "turn-s-updates-not-paid": Mutant(IN_TURN, "updates_paid(self.backward.experience.env_steps)", "updates_paid(self.env_steps)", IN_TURNS),
    "way-back-that-never-lets-go": Mutant("sim/tasks/ways_back.py", "lies & returned & (state.width > OPEN)", "lies & returned", TWO_WAYS),
    "way-back-anywhere": Mutant("sim/tasks/ways_back.py", "(_beside(state) < NEAR) & still & (cube", "still & (cube", TWO_WAYS),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("rewards", MUTANTS))
