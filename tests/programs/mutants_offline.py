"""Mutation check of what learns offline and from there online: each wrong line fails one of the tests named here.

Every mutant is a replacement of source text, made in a temporary copy of the checkout.
"""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

RECAP, RECAPS = "robolearn/rl/algorithms/recap.py", "tests/rl/test_rl_recap.py"
GOOD = (f"{RECAPS}::test_the_best_share_of_what_no_human_did_is_good",)
LABELS = (f"{RECAPS}::test_windows_are_learned_with_what_they_are_worth",)
RETURNS = (f"{RECAPS}::test_the_value_of_a_state_is_the_mean_of_the_returns_from_there",)
GIVEN = (f"{RECAPS}::test_the_loss_is_of_the_network_with_what_it_is_given",)
RO2O, RO2OS = "robolearn/rl/algorithms/ro2o.py", ("tests/rl/test_rl_ro2o.py",)
FAMO2O, FAMO2OS = "robolearn/rl/algorithms/famo2o.py", "tests/rl/test_rl_famo2o.py"
FAMILY = (f"{FAMO2OS}::test_the_balance_goes_from_the_smallest_beta_to_the_largest",)
WEIGHTS = (f"{FAMO2OS}::test_windows_weigh_by_the_beta_that_they_are_learned_with",)
BALANCED = (f"{FAMO2OS}::test_the_balance_climbs_the_critics_alone",)
CHUNK_NET, INDICATOR = "policies/kinds/chunk_net.py", "policies/kinds/indicator.py"
CONDITION = ("tests/policies/test_indicator.py::test_the_condition_ends_with_what_is_given_or_one_or_nothing",)
BEGINS = ("tests/policies/test_indicator.py::test_it_begins_as_the_trained_policy",)
GUIDED = ("tests/policies/test_indicator.py::test_guidance_goes_further_from_what_is_done_without_it",)
BASE, BASES = "policies/storage/lerobot_base.py", "tests/rl/test_rl_lerobot_base.py"
SAMPLED = (f"{BASES}::test_noise_goes_through_its_own_normalisation_and_sampler",)
STEERED = (f"{BASES}::test_the_steered_policy_begins_at_m_tanh_mu_and_sees_standardised_vectors",)
NAMED = (f"{BASES}::test_a_checkpoint_names_the_files_that_it_stands_on",)
LEFT = (f"{BASES}::test_no_algorithm_touches_or_stores_its_weights",)
MOVED = (f"{BASES}::test_its_weights_go_where_the_policy_goes",)
SAMPLES = ("tests/policies/test_value_guided.py::test_samples_of_a_network_are_those_of_worlds_that_see_the_same",)
ONCE = (
    "tests/policies/test_value_guided.py::test_a_policy_that_gives_many_chunks_of_one_observation_sees_each_world_once",
)

FLOW, FLOWS = "policies/storage/lerobot_vlm.py", "tests/rl/test_rl_lerobot_flow.py"
PADDED = (f"{FLOWS}::test_noise_with_its_padding_becomes_a_chunk_without",)
TOKENS = (f"{FLOWS}::test_critics_see_the_mean_of_tokens_and_sampling_all_of_them",)
TOLD = (f"{FLOWS}::test_words_are_asked_for_where_they_are_taken",)

READ_ANEW = (f"{FLOWS}::test_a_state_that_is_read_as_words_is_read_anew",)
FILES = "policies/storage/lerobot_files.py"

BEST_PAGE, TABLE_PAGE = "robolearn/eval/best.py", "robolearn/eval/offline_table.py"
TESTED = ("tests/eval/test_best.py",)
CORRUPT, CORRUPTS = "robolearn/data/convert/corrupt.py", ("tests/data/tools/test_corrupt.py",)
CELLS, OFFLINE_CELLS = "robolearn/cli/cells.py", "robolearn/cli/offline_cells.py"
BENCHMARK = "tests/cli/test_benchmark_offline.py"
REFUSED = (f"{BENCHMARK}::test_what_cannot_work_is_refused_in_a_line_before_anything_is_written",)
OTHERS = (f"{BENCHMARK}::test_a_folder_of_other_settings_is_refused",)
WHOLE = (f"{BENCHMARK}::test_a_killed_benchmark_goes_on_and_does_nothing_again",)

MUTANTS = {
    "a-state-in-words-that-is-normalised-twice": Mutant(FILES, "normalised = self.pre[first:]", "normalised = self.pre[0:]", READ_ANEW),
    "a-state-in-words-of-the-first-observation": Mutant(
        FILES, "return lambda state: _tokens(normalised({_STATE: state.cpu()",
        "return lambda state: _tokens(normalised({_STATE: 0 * state.cpu()", READ_ANEW,
    ),
    "a-state-in-words-is-not-read": Mutant(FILES, 'if self.net.config.type != "pi05":', "if True:", READ_ANEW),
    "a-flow-from-other-noise": Mutant(FLOW, "*told, noise=noise)", "*told, noise=0 * noise)", PADDED),
    "best-of-the-least-mean": Mutant(BEST_PAGE, "key=lambda name: -means[name]", "key=lambda name: means[name]", TESTED),
    "best-without-correction": Mutant(BEST_PAGE, "ERROR / max(len(others), 1)", "ERROR", TESTED),
    "best-separates-what-is-equal": Mutant(BEST_PAGE, "level=level).low > 0", "level=level).low >= 0", TESTED),
    "best-of-unpaired-seeds": Mutant(BEST_PAGE, "[a - b for", "[a - means[name] for", TESTED),
    "dip-of-the-least-seed": Mutant(TABLE_PAGE, "max(dips, default=None)", "min(dips, default=None)", TESTED),
    "means-over-the-seeds-that-have-one": Mutant(TABLE_PAGE, "if len(known) < len(values):", "if not known:", TESTED),
    "shares-beyond-one": Mutant(TABLE_PAGE, 'key in ("offline", "online")', 'key in ("offline",)', TESTED),
    "imitation-is-gone-online": Mutant(TABLE_PAGE, '(cell[phase] or cell["offline"])["rate"]', '(cell[phase] or {"rate": 0.0})["rate"]', TESTED),
    "corrupt-twice-as-many": Mutant(CORRUPT, "round(corruption.share * frames)", "min(frames, round(2 * corruption.share * frames))", CORRUPTS),
    "corrupt-the-same-step-twice": Mutant(CORRUPT, "replace=False)] = True", "replace=True)] = True", CORRUPTS),
    "corrupt-everywhere-in-the-first-episode": Mutant(CORRUPT, "wrong[begin : begin + len(draft)]", "wrong[: len(draft)]", CORRUPTS),
    "corrupt-rewards-without-scale": Mutant(CORRUPT, "corruption.scale * drawn", "1.0 * drawn", CORRUPTS),
    "corrupt-actions-beyond-one": Mutant(CORRUPT, "np.clip(action, -1.0, 1.0)", "action", CORRUPTS),
    "corrupt-by-one-sided-errors": Mutant(CORRUPT, 'drawn["rewards"].uniform(-1.0, 1.0,', 'drawn["rewards"].uniform(0.0, 1.0,', CORRUPTS),
    "corrupt-without-a-mark": Mutant(CORRUPT, "CORRUPTED: mark}", "}", CORRUPTS),
    "offline-of-on-policy-algorithms": Mutant("robolearn/cli/benchmark_offline.py", "algorithm(algo, OffPolicyConfig)", "None", REFUSED),
    "offline-steps-that-end-no-episode": Mutant("robolearn/cli/benchmark_offline.py", "if self.env_steps < (least :=", "if 0 > (least :=", REFUSED),
    "offline-end-is-not-evaluated": Mutant("robolearn/cli/benchmark_offline.py", "if blocks % self.eval_every:", "if False:", REFUSED),
    "offline-cells-of-other-settings": Mutant(OFFLINE_CELLS, "if place.exists():", "if False:", OTHERS),
    "offline-cells-among-other-files": Mutant(OFFLINE_CELLS, "elif self.out.is_dir() and any(self.out.iterdir()):", "elif False:", OTHERS),
    "offline-successes-of-the-right-set": Mutant(OFFLINE_CELLS, 'open_numbers(sets["mixed"])', 'open_numbers(place / "mixed")', WHOLE),
    "offline-failures-are-imitated-as-successes": Mutant(OFFLINE_CELLS, "if success]", "]", WHOLE),
    "offline-algorithms-see-the-right-set": Mutant(OFFLINE_CELLS, 'quality if self.corruption is None else f"{quality}-wrong"', "quality", WHOLE),
    "offline-cells-are-done-again": Mutant(CELLS, "if not (out / CELL).exists():", "if True:", WHOLE),
    "offline-run-begins-anew": Mutant(CELLS, "resume=is_run(run)).run()", "resume=False).run()", WHOLE),
    "offline-run-ends-before-its-steps": Mutant(CELLS, 'if result.get("budget", 0) >=', "if True or 0 >=", WHOLE),
    "a-flow-acts-with-its-padding": Mutant(FLOW, "return chunk[:, :, : self._components]", "return chunk", PADDED),
    "noise-of-a-flow-has-no-padding": Mutant(
        FLOW, "(int(config.chunk_size), int(config.max_action_dim))",
        "(int(config.chunk_size), int(config.action_feature.shape[0]))", PADDED,
    ),
    "an-empty-camera-counts": Mutant(FLOW, "masks.append(torch.zeros_like(masks[0]))", "masks.append(masks[0])", PADDED),
    "an-empty-camera-is-observed": Mutant(
        "policies/storage/lerobot_files.py", "        if is_empty(name):\n            continue\n", "", PADDED
    ),
    "critics-see-one-token": Mutant(BASE, "(-1, self._flow.token_width)).mean(1)", "(-1, self._flow.token_width))[:, 0]", TOKENS),
    "a-look-is-encoded-for-every-sample": Mutant(
        "policies/storage/lerobot_policy.py", "flow.tokens(name, seen[name]).repeat_interleave(count, 0)",
        "flow.tokens(name, seen[name].repeat_interleave(count, 0))",
        (f"{FLOWS}::test_many_samples_share_one_look_and_their_words",),
    ),
    "a-base-forgets-its-words": Mutant(
        BASE, "files.words(config.words)", 'files.words("it")', PADDED
    ),
    "a-vla-is-told-nothing": Mutant("policies/storage/loading.py", "or wants_words(opened)", "", TOLD),
    "lerobot-base-sees-the-standardised": Mutant(
        BASE, "return found | {key: seen[column(key)].to(self.action_half.device) for key in self.vectors}",
        "return found", SAMPLED,
    ),
    "lerobot-base-actions-as-normalised": Mutant(
        BASE, "self._files.unnormalised(action)", "action.cpu().numpy()", SAMPLED
    ),
    "lerobot-base-critics-see-its-own-normalisation": Mutant(
        "policies/policy.py", "normal = self.normalizer.features(observation)",
        "normal = self.normalizer.observation(observation)", STEERED,
    ),
    "lerobot-base-of-any-content": Mutant(
        BASE, "if (found := sha256_folder(folder)) != config.sha256:", "if not (found := sha256_folder(folder)):", NAMED
    ),
    "lerobot-base-learns": Mutant(
        "policies/settings.py", "learns: ClassVar[bool] = False", "learns: ClassVar[bool] = True", LEFT
    ),
    "lerobot-base-stays-where-it-was": Mutant(BASE, "        self._files.net._apply(fn)\n", "", MOVED),
    "guidance-shows-each-world-too-often": Mutant(
        "policies/wrappers/value_guided.py", "return 1 if self._act_samples else", "return", ONCE
    ),
    "guidance-samples-of-another-world": Mutant(
        "policies/policy.py", ".repeat_interleave(count, 0)", ".repeat(count, 1)", SAMPLES
    ),
    "guidance-samples-of-another-world-by-a-backend": Mutant(
        "policies/policy.py", "np.repeat(value, count, 0)", "np.concatenate([value] * count)", SAMPLES
    ),
    "recap-what-is-worst-is-good": Mutant(RECAP, "(advantage > own", "(advantage < own", GOOD),
    "recap-a-threshold-of-humans-too": Mutant(RECAP, "own = advantage[~human]", "own = advantage", GOOD),
    "recap-the-other-share": Mutant(RECAP, "own.quantile(1.0 - positive)", "own.quantile(positive)", GOOD),
    "recap-a-human-may-be-wrong": Mutant(RECAP, "else human | (", "else (", GOOD),
    "recap-the-end-is-bootstrapped": Mutant(RECAP, "+ batch.discount * self", "+ self", LABELS),
    "recap-no-baseline": Mutant(RECAP, "(batch.next_observation) - self.value(features)", "(batch.next_observation)", LABELS),
    "recap-bad-is-nothing": Mutant(RECAP, "2.0 * good - 1.0", "1.0 * good", LABELS),
    "recap-values-of-rewards": Mutant(RECAP, "(value - batch.to_go)", "(value - batch.reward)", RETURNS),
    "recap-learned-as-if-all-were-good": Mutant(
        "robolearn/rl/algorithms/student.py", "self._generator) | given", "self._generator)", GIVEN
    ),
    "indicator-given-is-not-seen": Mutant(
        CHUNK_NET, "self.condition_of(seen) if given is None else", "self.condition_of(seen) if True else", CONDITION
    ),
    "indicator-acts-as-if-bad": Mutant(INDICATOR, "torch.ones_like(seen[:, :1])", "-torch.ones_like(seen[:, :1])", CONDITION),
    "indicator-is-never-dropped": Mutant(CHUNK_NET, "torch.ones(size - encoder.size,", "torch.zeros(size - encoder.size,", CONDITION),
    "indicator-without-guidance": Mutant(CHUNK_NET, "torch.ones(size - encoder.size,", "torch.zeros(size - encoder.size,", GUIDED),
    "indicator-changes-what-was-trained": Mutant(INDICATOR, "        value.zero_()\n", "        value.add_(1.0)\n", BEGINS),
    "ro2o-falling-values-cost-more": Mutant(RO2O, "torch.where(difference > 0,", "torch.where(difference < 0,", RO2OS),
    "ro2o-pairs-of-the-best": Mutant(RO2O, "torch.arange(members - 1, -1, -1,", "torch.arange(0, members, 1,", RO2OS),
    "ro2o-loosened-offline": Mutant(RO2O, "if self.online else", "if not self.online else", RO2OS),
    "ro2o-never-online": Mutant("robolearn/rl/experience.py", "self._algorithm.online = True", "pass", RO2OS),
    "ro2o-offline-once-resumed": Mutant(
        "robolearn/rl/algorithms/off_policy.py", 'bool(meta.get("online", False))', "False", RO2OS
    ),
    "ro2o-perturbed-one-way": Mutant(RO2O, "2.0 * torch.rand(shape, generator=self.generator, device=self.device) - 1.0", "torch.rand(shape, generator=self.generator, device=self.device)", RO2OS),
    "ro2o-mean-change": Mutant(RO2O, "config.asymmetry).amax(2)", "config.asymmetry).mean(2)", RO2OS),
    "ro2o-what-was-done-elsewhere": Mutant(RO2O, "flatten(1).repeat_interleave(config.perturbed, 0)", "flatten(1).repeat(config.perturbed, 1)", RO2OS),
    "ro2o-targets-without-end": Mutant(RO2O, ".clamp_min(self.least) + bonus", " + bonus", RO2OS),
    "ro2o-doubt-without-end": Mutant(RO2O, "correction=0)).clamp_min(self.least).detach()", "correction=0)).detach()", RO2OS),
    "ro2o-doubt-is-praise": Mutant(RO2O, "(unseen - config.uncertainty *", "(unseen + config.uncertainty *", RO2OS),
    "ro2o-doubt-is-learned": Mutant(RO2O, ".clamp_min(self.least).detach()", ".clamp_min(self.least)", RO2OS),
    "ro2o-actor-pays-for-the-mean-change": Mutant(RO2O, ".mean(2).amax(1).mean()", ".mean(2).mean(1).mean()", RO2OS),
    "ro2o-actor-from-other-noise": Mutant(RO2O, "noise.repeat_interleave(self.settings.perturbed, 0)", "noise.repeat(self.settings.perturbed, 1, 1)", RO2OS),
    "famo2o-the-other-end": Mutant(FAMO2O, "(balance + 1.0) / 2.0", "(1.0 - balance) / 2.0", FAMILY),
    "famo2o-one-policy": Mutant(FAMO2O, "weight, {INDICATOR: balance}", "weight, {INDICATOR: balance * 0}", WEIGHTS),
    "famo2o-weights-of-another-beta": Mutant(FAMO2O, "self.beta(balance) * advantage", "self.beta(-balance) * advantage", WEIGHTS),
    "famo2o-half-of-the-family": Mutant(FAMO2O, "2.0 * torch.rand(len(batch), generator=self.generator, device=self.device) - 1.0", "torch.rand(len(batch), generator=self.generator, device=self.device)", WEIGHTS),
    "famo2o-the-balance-goes-down": Mutant(FAMO2O, "loss = -values.mean()", "loss = values.mean()", BALANCED),
    "famo2o-values-as-they-are": Mutant(FAMO2O, "values.detach().abs().mean().clamp_min(1e-6)", "1.0", BALANCED),
    "famo2o-a-balance-that-stays": Mutant(FAMO2O, "        self.balance_adam.step()\n", "", BALANCED),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("offline", MUTANTS))
