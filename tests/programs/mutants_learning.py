"""Mutation check of learning: with any one line of it wrong, at least one of the tests that are named here must fail.

Every mutant is a replacement of source text, made in a temporary copy of the checkout.
"""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

RL, ALGORITHMS, ACTORS = "robolearn/rl", "robolearn/rl/algorithms", "robolearn/rl/actors"
NETWORKS = "policies/networks"
UPDATES, RUNNER = "tests/rl/test_rl_updates.py", "tests/rl/test_rl_runner.py"
LOOP = "robolearn/runs/loop.py"
TIMED = ("tests/runs/test_loop.py::test_what_runs_out_of_time_is_saved_stays_ended_and_goes_on_with_more",)
REPLAYS, CAPPED = (
    f"{RL}/replay_runner.py",
    (
        "tests/rl/test_replay_runner.py::"
        "test_an_iteration_makes_no_more_than_so_many_updates_and_nothing_acts_while_some_are_due",
    ),
)
BUFFER, RETURNS = ("tests/rl/test_rl_buffer.py",), ("tests/rl/test_rl_returns.py",)
ENGINE, LOSSES = ("tests/rollout/test_engine.py",), ("tests/rl/test_rl_losses.py",)
CRITIC = (f"{UPDATES}::test_the_critic_s_value_is_0_when_the_time_is_up_and_depends_on_it",)
HELD = (f"{UPDATES}::test_the_distance_to_the_demonstrations_begins_at_0_and_is_held",)
INITIAL = (f"{RUNNER}::test_training_and_export_have_the_initial_noise_that_was_asked_for",)
CALIBRATION = (f"{RUNNER}::test_the_starts_of_calibration_are_not_those_of_training_or_of_evaluation",)
SCHEDULES = (f"{RUNNER}::test_noise_and_target_fall_as_the_budget_is_spent",)
RATIOS = (f"{UPDATES}::test_every_ratio_is_1_before_the_first_update",)
DPPO, GRPO = ("tests/rl/test_rl_dppo.py",), ("tests/rl/test_rl_grpo.py",)
EXECUTED = ("tests/rl/test_rl_executed.py",)
ALONG, ALONG_WORLDS = ("tests/rl/test_rl_along.py",), ("tests/sim/test_snapshot_starts.py",)
ADVERSARY, ADVERSARIES = f"{RL}/adversary.py", ("tests/rl/test_rl_adversary.py",)
PUSHED = ("tests/sim/test_pushes.py",)
SNAPSHOTS = "sim/embedded/snapshot_starts.py"
ON_POLICY = f"{ALGORITHMS}/on_policy.py"
REPLAY = "robolearn/data/replay"
RECORDED, RECORDS = f"{REPLAY}/recorded.py", ("tests/data/test_recorded.py",)
IQL, CAL_QL = ("tests/rl/test_rl_iql.py",), ("tests/rl/test_rl_cal_ql.py",)
H2OS, H2O = ("tests/rl/test_rl_h2o.py",), f"{ALGORITHMS}/h2o.py"
RIQLS, RIQL = ("tests/rl/test_rl_riql.py",), f"{ALGORITHMS}/riql.py"
REBRACS, REBRAC = ("tests/rl/test_rl_rebrac.py",), f"{ALGORITHMS}/rebrac.py"
OGPOS, OGPO = ("tests/rl/test_rl_ogpo.py",), f"{ALGORITHMS}/ogpo.py"
STUDENT = f"{ALGORITHMS}/student.py"
TOLD, TOLDS = "robolearn/rollout/told_worlds.py", ("tests/rl/test_told_worlds.py",)
FRESH_RUNNER = "tests/rl/test_fresh_runner.py"
FRESH = (f"{FRESH_RUNNER}::test_it_goes_on_from_what_acted_and_from_its_value_by_fresh_rollouts_alone",)
GUIDED_BY_WORDS = (
    "tests/policies/test_value_guided.py::test_critics_of_several_tasks_judge_by_the_sentence_of_the_present_one",
)
UNI_O4, UNI_O4S = f"{ALGORITHMS}/uni_o4.py", ("tests/rl/test_rl_uni_o4.py",)
GATE, SURROGATE = (
    (f"{UNI_O4S[0]}::test_{name}",)
    for name in (
        "what_learns_comes_to_act_where_the_judge_affirms_it_and_goes_back_where_not",
        "the_surrogate_is_that_of_gaussians_around_what_the_flow_makes_of_its_noise",
    )
)
EXECUTED_ACTIONS, FOLLOWED = f"{REPLAY}/recorded.py", ("tests/data/test_executed.py",)
DSRL = INVERSION = f"{ALGORITHMS}/dsrl.py"
STEERS = {
    key: (f"tests/rl/test_rl_unisteer.py::test_{name}",)
    for key, name in {
        "back": "a_step_backwards_comes_half_as_near_with_each_round_where_the_step_halves",
        "descent": "descent_ends_at_the_noise_that_makes_the_chunk_or_at_the_bound",
        "unmet": "what_is_not_executed_or_was_not_commanded_need_not_be_met",
        "loss": "the_loss_is_the_mean_distance_of_the_mode_to_noise_that_is_near_enough",
        "added": "the_actor_s_loss_has_it_added",
        "far": "what_the_policy_makes_of_no_noise_stays_within_the_magnitude_and_misses",
        "plans": "plans_end_where_their_author_does",
    }.items()
}
GUIDED, GUIDES = "policies/wrappers/value_guided.py", ("tests/policies/test_value_guided.py",)
REPLAY_RUNNER = ("tests/rl/test_replay_runner.py",)
REPLAYED = ("tests/data/test_replay.py", "tests/data/test_replay_records.py")

IMITATION = "robolearn/train/imitation.py"
PREFERRED, PREFERENCES = "robolearn/train/preferences.py", "tests/train/test_preferences.py"
BY_HAND, CLIPS = (
    (f"{PREFERENCES}::test_the_loss_by_hand",),
    (f"{PREFERENCES}::test_each_executed_step_of_a_clip_counts_once",),
)
INVERSE, INVERSES = "robolearn/train/inverse_dynamics.py", "tests/train/test_inverse_dynamics.py"
COMMANDS = (f"{INVERSES}::test_commands_lie_in_bins_of_equal_width_whose_median_stands_for_them",)
INPUTS, FOUND = (f"{INVERSES}::test_inputs_by_hand",), (f"{INVERSES}::test_what_shows_no_action_is_refused",)
PRECISION = ("tests/train/test_imitation.py::test_the_loss_alone_is_computed_in_what_was_asked_for",)

OPTIONS, GRIPPER = ("tests/rl/test_rl_off_policy_options.py",), ("tests/rl/test_rl_gripper_critic.py",)
RL_LATE = ("tests/rl/test_rl_late.py",)
DELAYED, CAUGHT = ("tests/policies/test_delayed.py",), ("tests/robots/test_chunk_execution.py",)
LATE = "robots/chunk_execution.py"
AGENT = ("tests/hil/test_hil_agent.py",)
OFF_POLICY, CHOSEN = ("tests/rl/test_rl_off_policy.py",), ("tests/policies/test_best_of_n.py",)

EVALUATION, VERDICT = ("tests/eval/test_eval_evaluation.py",), ("tests/eval/test_eval_verdict.py",)
INTERVALS = ("tests/eval/test_eval_intervals.py",)

MUTANTS: dict[str, Mutant] = {
    "replay-ends-episodes-for-its-updates": Mutant(
        REPLAYS, "NEVER if env.snapshot() is None else MOST", "MOST",
        ("tests/rl/test_replay_runner.py::test_worlds_whose_episodes_end_with_a_saved_state_are_not_left_for_updates",),
    ),
    "replay-acts-while-updates-are-due": Mutant(REPLAYS, "        if self._due:\n            return", "        if False:\n            return", CAPPED),
    "replay-goes-on-acting-beyond-its-updates": Mutant(
        REPLAYS, "                if self._due:\n                    break\n", "", CAPPED
    ),
    "replay-ends-before-the-last-updates": Mutant(f"{RL}/offline_runner.py", "math.ceil(self._due / BLOCK)", "0", CAPPED),
    "what-runs-out-of-time-is-not-saved": Mutant(
        LOOP, "% checkpoint_every == 0 or ended or interrupted()", "% checkpoint_every == 0 or interrupted()", TIMED
    ),
    "time-begins-anew-with-each-resumption": Mutant(
        LOOP, "return 0 < 60 * minutes <= wall_s()", "return 0 < 60 * minutes <= wall_s() - before_s", TIMED
    ),
    "replay-drawn-by-failure": Mutant(
        f"{REPLAY}/buffer.py", "(sharpness * above /", "(-sharpness * above /", ("tests/data/test_replay.py",)
    ),
    "ogpo-judges-by-the-least-critic": Mutant(OGPO, "mean = values.mean(0)", "mean = values.amin(0)", OGPOS),
    "ogpo-without-a-baseline": Mutant(OGPO, "mean - mean.mean(1, keepdim=True)", "mean", OGPOS),
    "ogpo-target-of-the-mean-chunk": Mutant(OGPO, ".mean(0).amax(1)", ".mean(0).mean(1)", OGPOS),
    "ogpo-target-by-the-live-critics": Mutant(OGPO, "target = self.critic.target\n", "target = self.critic.net\n", OGPOS),
    "ogpo-goes-the-other-way": Mutant(OGPO, "loss + config.imitation", "-loss + config.imitation", OGPOS),
    "ogpo-imitates-nothing": Mutant(OGPO, "+ config.imitation * copied", "+ 0.0 * copied", OGPOS),
    "ogpo-trusts-critics-at-once": Mutant(OGPO, "if self.updates < self.settings.trust_after:", "if False:", OGPOS),
    "ogpo-explores-without-noise": Mutant(STUDENT, "sigma.sigma_max, self.generator", "0.0, self.generator", OGPOS),
    "ogpo-explores-with-what-actors-lack": Mutant(STUDENT, "net, seen = self.policy.proposer.net", "net, seen = self.student.net", OGPOS),
    "ogpo-judges-its-starting-noise": Mutant(STUDENT, "chain[:, -1].unflatten", "chain[:, 0].unflatten", OGPOS),
    "predicted-alone-at-once": Mutant(EXECUTED_ACTIONS, "step[later])", "step)", FOLLOWED),
    "predicted-alone-in-the-base-s-frame": Mutant(EXECUTED_ACTIONS, '"nji,nj->ni"', '"nij,nj->ni"', FOLLOWED),
    "predicted-alone-of-either-author": Mutant(EXECUTED_ACTIONS, "whole & (helped == person)", "whole", FOLLOWED),
    "predicted-alone-of-arms-that-follow-nothing": Mutant(EXECUTED_ACTIONS, "found[0] >= KNOWN and ", "", FOLLOWED),
    "predicted-alone-said-of-all": Mutant(EXECUTED_ACTIONS, " and found[1] < 0.5 * found[0]", "", FOLLOWED),
    "uni-o4-online-critic-begins-at-zero": Mutant(UNI_O4, "self.baseline.fit(batch, begun)", "pass", FRESH),
    "uni-o4-online-value-in-other-units": Mutant(UNI_O4, " / self.scale.std\n", "\n", FRESH),
    "uni-o4-online-from-what-learned-last": Mutant(
        "robolearn/rl/offline_runner.py", "deepcopy(self.algorithm.policy.proposer)", "deepcopy(self.algorithm.student.proposer.__class__(self.algorithm.student.net, self.algorithm.base.normalizer, self.algorithm.base.interface))", FRESH
    ),
    "uni-o4-online-discount-of-one-step": Mutant(
        "robolearn/rl/student_settings.py", "gamma=self.gamma**execute", "gamma=self.gamma", (f"{FRESH_RUNNER}::test_the_online_settings_are_those_of_the_offline_phase",)
    ),
    "dip-to-the-last": Mutant(
        "robolearn/cli/finetune_numbers.py", "offline[-1] - min(online)", "offline[-1] - online[-1]",
        (f"{FRESH_RUNNER}::test_the_dip_is_from_the_last_evaluation_offline_to_the_least_of_three_online",),
    ),
    "guide-without-words": Mutant(GUIDED, "observation = {**observation, **told}", "observation = {PROMPT: np.zeros((len(chunks), 3), np.float32), **observation}", GUIDED_BY_WORDS),
    "guide-of-words-asks-the-world-for-them": Mutant(GUIDED, "check_compatible(without_instructions(self.guide.interface), offered", "check_compatible(self.guide.interface, offered", GUIDED_BY_WORDS),
    "critics-of-any-task": Mutant("policies/wrappers/prompted.py", "            if sentence not in known:\n                got, expected = f\"the task", "            if False:\n                got, expected = f\"the task", GUIDED_BY_WORDS),
    "uni-o4-accepts-all": Mutant(UNI_O4, "return mean > caution * spread, mean", "return True, mean", GATE),
    "uni-o4-judges-without-caution": Mutant(UNI_O4, "mean > caution * spread", "mean > 0.0", UNI_O4S),
    "uni-o4-judges-backwards": Mutant(UNI_O4, "(new - old).mean((1, 2))", "(old - new).mean((1, 2))", GATE),
    "uni-o4-keeps-what-was-refused": Mutant(UNI_O4, "sink.load_state_dict(source.state_dict())", "pass", GATE),
    "uni-o4-judges-by-who-proposes": Mutant(UNI_O4, "self.judge.net, features, torch.stack", "self.critic.net, features, torch.stack", GATE),
    "uni-o4-judges-each-with-noise-of-its-own": Mutant(UNI_O4, "one) for one in noise]", "torch.randn_like(one)) for one in noise]", GATE),
    "uni-o4-judge-of-what-learns": Mutant(UNI_O4, "self._chunks(self.policy.proposer.net, batch.next", "self._chunks(self.student.net, batch.next", UNI_O4S),
    "uni-o4-judge-by-the-least": Mutant(UNI_O4, "self.judge.targets(after, chunk[:, None]).mean(0)", "self.judge.targets(after, chunk[:, None]).amin(0)", UNI_O4S),
    "uni-o4-ratio-to-itself": Mutant(UNI_O4, "self.groups(self.old,", "self.groups(self.actor,", SURROGATE),
    "uni-o4-goes-the-other-way": Mutant(UNI_O4, "clipped_surrogate(now - before, standardise(advantage)", "clipped_surrogate(now - before, -standardise(advantage)", SURROGATE),
    "uni-o4-moves-before-critics-are-trusted": Mutant(UNI_O4, "if self.updates <= self.settings.trust_after:", "if False:", UNI_O4S),
    "uni-o4-begins-from-the-last-weights": Mutant(
        UNI_O4, "self.student.net.load_state_dict(self.policy.proposer.net.state_dict())", "pass", UNI_O4S
    ),
    "uni-o4-resume-forgets-the-judge": Mutant(
        UNI_O4, '| {"judge": self.judge.net, "judge_target": self.judge.target}', "",
        ("tests/rl/test_rl_off_policy.py::test_resumed_learning_is_the_same_bit_for_bit[uni_o4]",),
    ),
    "inversion-forwards": Mutant(INVERSION, "x = x + after - net.denoise", "x = x - after + net.denoise", STEERS["back"]),
    "inversion-one-round": Mutant(INVERSION, "for _ in range(ROUNDS)", "for _ in range(1)", STEERS["back"]),
    "inversion-without-bound": Mutant(INVERSION, "            x0.clamp_(-bound, bound)\n", "            pass\n", STEERS["descent"]),
    "inversion-keeps-the-first": Mutant(INVERSION, "error.detach() < least", "least == torch.inf", STEERS["descent"]),
    "inversion-meets-what-nobody-did": Mutant(
        INVERSION, "(counts / counts.sum(1, keepdim=True).clamp_min(1))", "(torch.ones_like(counts) / 2)", STEERS["unmet"]
    ),
    "steers-by-noise-that-misses": Mutant(DSRL, " & (error <= self.settings.steer_error)", "", STEERS["loss"]),
    "steers-by-what-the-policy-did": Mutant(DSRL, "taught = batch.intervention & (", "taught = (", STEERS["loss"]),
    "steers-without-its-weight": Mutant(DSRL, "return self.settings.steer_weight * loss", "return loss", STEERS["loss"]),
    "steers-away": Mutant(DSRL, ".squeeze(1) - apart", ".squeeze(1) + apart", STEERS["added"]),
    "steers-to-noise-of-another-size": Mutant(DSRL, "return x0 / self.settings.magnitude,", "return x0,", STEERS["far"]),
    "steers-across-authors": Mutant(DSRL, "known = at < edge[:, None]", "known = at < steps", STEERS["plans"]),
    "what-was-solved-before-the-end-does-not-count": Mutant(TOLD, "self._solved &= ~ended", "self._solved[:] = False", TOLDS),
    "a-task-s-episodes-count-for-ever": Mutant(TOLD, "self._counts, np.zeros_like(self._counts)", "self._counts.copy(), self._counts", TOLDS),
    "a-task-is-judged-by-more-episodes": Mutant("robolearn/cli/evaluator.py", "if each % k == 0 and", "if", ("tests/cli/test_suites.py::test_tasks_that_are_judged_together_count_alike",)),
    "words-of-another-world": Mutant(TOLD, "np.repeat(vectors, counts, axis=0)", "np.resize(vectors, (sum(counts), vectors.shape[1]))", TOLDS),
    "worlds-of-two-tasks-in-one-group": Mutant(TOLD, "> len(np.unique(ids))", "> len(ids)", TOLDS),
    "a-part-s-seed-is-lost": Mutant(TOLD, "part.reset(seed=seed, options=own)", "part.reset(options=own)", TOLDS),
    "one-task-says-success-for-all": Mutant(TOLD, "return all(part.reports_success", "return any(part.reports_success", TOLDS),
    "one-task-s-limit-for-all": Mutant(TOLD, "max(limits) if all(limits) else 0", "max(limits)", TOLDS),
    "a-task-that-forgets-is-kept": Mutant(TOLD, "if any(one is None for one in found)", "if all(one is None for one in found)", TOLDS),
    "a-part-rests-with-the-others": Mutant(TOLD, "if going[rows].any()", "if going.all()", TOLDS),
    "h2o-presses-what-is-real": Mutant(H2O, "u = (-gap[~real])", "u = gap[~real]", H2OS),
    "h2o-counts-more-than-real": Mutant(H2O, "gap.exp().clamp(max=1.0)", "gap.exp()", H2OS),
    "h2o-takes-simulated-for-real": Mutant(H2O, ">= count - stored", "< stored", H2OS),
    "h2o-ratio-of-the-states-alone": Mutant(H2O, "return whole - part", "return whole", H2OS),
    "h2o-all-simulated-windows-count": Mutant(H2O, "self._weight * off.square()", "off.square()", H2OS),
    "riql-squares": Mutant(RIQL, "self.critic.error =", "_ =", RIQLS),
    "riql-error-of-another-size": Mutant(RIQL, "delta=delta) / delta", "delta=delta)", RIQLS),
    "riql-minimum": Mutant(RIQL, ".quantile(self.settings.quantile, 0)", ".amin(0)", RIQLS),
    "riql-quantile-of-some": Mutant(RIQL, "[:, :, 0].quantile", "[:2, :, 0].quantile", RIQLS),
    "rebrac-pays-for-being-near": Mutant(REBRAC, "-self.settings.critic_bc *", "self.settings.critic_bc *", REBRACS),
    "rebrac-compares-with-what-was-done-before": Mutant(
        REBRAC, "after = slice(self._after, self._after + self.chunk)", "after = slice(0, self.chunk)", REBRACS
    ),
    "rebrac-compares-where-nobody-acted": Mutant(REBRAC, "(apart * known).mean(1)", "apart.mean(1)", REBRACS),
    "rebrac-goes-down": Mutant(REBRAC, "* copied - climbed", "* copied + climbed", REBRACS),
    "rebrac-values-as-they-are": Mutant(REBRAC, "values.detach().abs().mean().clamp_min(1e-6)", "1.0", REBRACS),
    "rebrac-climbs-the-least-critic": Mutant(REBRAC, "climbed = values.mean() /", "climbed = values.amin(0).mean() /", REBRACS),
    "rebrac-imitates-nothing": Mutant(REBRAC, "self.settings.actor_bc * copied - climbed", "-climbed", REBRACS),
    "rebrac-climbs-without-a-gradient": Mutant(REBRAC, "self._moved(batch)[:, None]", "self._moved(batch)[:, None].detach()", REBRACS),
    "cal-ql-without-calibration": Mutant(
        f"{ALGORITHMS}/cal_ql.py", "torch.maximum(proposed, to_go[:, None])", "proposed", CAL_QL
    ),
    "cal-ql-lifts-what-was-not-done": Mutant(
        f"{ALGORITHMS}/cal_ql.py", "lambda done: config.conservatism *", "lambda done: -config.conservatism *", CAL_QL
    ),
    "cal-ql-penalty-is-not-learned": Mutant(
        f"{RL}/ensemble_critic.py", "(loss + sum(added.values())).backward()", "loss.backward()", CAL_QL
    ),
    "return-to-go-of-the-next-episode": Mutant(
        f"{REPLAY}/buffer.py", '(rewards * (to_end < w["left"][:, None]) * gamma**to_end)', "(rewards * gamma**to_end)", REPLAYED
    ),
    "guide-takes-the-worst": Mutant(
        GUIDED, "guide.encode(guide.encoded(seen)), actions).mean(0)", "guide.encode(guide.encoded(seen)), -actions).mean(0)", GUIDES
    ),
    "guide-largest-is-least": Mutant(GUIDED, "return values.argmax(1)", "return values.argmin(1)", GUIDES),
    "guide-temperature-inverted": Mutant(GUIDED, "keepdims=True)) / temperature)", "keepdims=True)) * temperature)", GUIDES),
    "guide-worlds-are-mixed": Mutant(GUIDED, "np.repeat(value, self._times, axis=0)", "np.concatenate([value] * self._times)", GUIDES),
    "guide-one-draw-for-all-worlds": Mutant(GUIDED, "self._drawn.draw(worlds)[:, 0]", "self._drawn.draw(worlds)[:1, 0]", GUIDES),
    "demonstrations-that-failed": Mutant(RECORDED, " if found.success[i] or not found.outcomes]", "]", RECORDS),
    "demonstrations-of-a-set-that-says-nothing": Mutant(RECORDED, "_check_labelled(sets, flag,", "_ = (sets, flag,", RECORDS),
    "demonstrations-without-the-end-of-a-success": Mutant(RECORDED, "reward[-1] = episode.success", "pass", RECORDS),
    "demonstrations-that-nobody-commanded": Mutant(RECORDED, "np.ones(len(episode)", "np.zeros(len(episode)", RECORDS),
    "imitation-by-small-weights-is-faint": Mutant(
        "policies/kinds/chunk_net.py", "clamp_min(torch.finfo(weight.dtype).tiny)", "clamp_min(1.0)", IQL
    ),
    "proposals-that-are-all-one": Mutant(STUDENT, "            check_varied(own, config)\n", "            pass\n", OFF_POLICY),
    "proposals-without-the-noise-that-was-asked-for": Mutant(
        f"{ALGORITHMS}/cal_ql.py", "initial_noise=config.initial_noise", "initial_noise=None", OFF_POLICY
    ),
    "stored-episodes-are-forgotten": Mutant("robolearn/rl/experience.py", "if frames > capacity:", "if False:", REPLAY_RUNNER),
    "iql-expectile-of-the-other-side": Mutant(
        f"{ALGORITHMS}/iql.py", "torch.where(u < 0, 1.0", "torch.where(u > 0, 1.0", IQL
    ),
    "iql-imitates-what-was-worse": Mutant(
        f"{ALGORITHMS}/iql.py", "(self.settings.beta * advantage)", "(-self.settings.beta * advantage)", IQL
    ),
    "iql-any-weight": Mutant(f"{ALGORITHMS}/iql.py", ".exp().clamp(max=self.settings.weight_max)", ".exp()", IQL),
    "iql-the-end-is-bootstrapped": Mutant(
        f"{REPLAY}/buffer.py", 'torch.where(w["ends"], 0.0, gamma ** reach.float())', "gamma ** reach.float()",
        (f"{IQL[0]}::test_optimal_values_are_recovered_from_random_steps",),
    ),
    "iql-value-of-the-best-critic": Mutant(
        f"{ALGORITHMS}/iql.py", "return self.value(self.policy.encode(observation))",
        "return self.critic.values(self.policy.encode(observation), torch.zeros(len(next(iter(observation.values()))), 1, self.policy.size)).amax(0)[:, 0]",
        IQL,
    ),
    "imitation-of-all-windows-alike": Mutant(
        STUDENT, "counts if weight is None else counts * weight[:, None]", "counts", IQL
    ),
    "offline-every-success-ends-the-task": Mutant(
        RECORDED, "dataset.terminated if stated or not", "dataset.terminated if not", RECORDS
    ),
    "offline-a-failure-is-a-demonstration": Mutant(
        RECORDED, "np.zeros(len(episode), np.bool_) if episode.intervention is None", "np.ones(len(episode), np.bool_) if True",
        RECORDS,
    ),
    "offline-the-end-of-a-task-is-the-clock": Mutant(
        RECORDED, "bool(ends_of(dataset)[index])", "False", RECORDS
    ),
    "offline-updates-are-paid-for-again": Mutant(
        f"{RL}/replay_runner.py", "return self.offline + (self.config", "return (self.config", REPLAY_RUNNER
    ),
    "offline-goes-on-without-end": Mutant(
        f"{RL}/offline_runner.py", "self.learn(min(before + BLOCK, self._allowed), sums)", "self.learn(before + BLOCK, sums)",
        REPLAY_RUNNER,
    ),
    "preference-for-the-worse": Mutant(PREFERRED, "label * own[0] + (1.0 - label) * own[1]", "label * own[1] + (1.0 - label) * own[0]", BY_HAND),
    "preference-without-its-bias": Mutant(PREFERRED, "F.softplus(conservative * right - left)", "F.softplus(right - left)", BY_HAND),
    "preference-of-what-is-not-executed": Mutant(PREFERRED, "(step < len(clip)) & (np.arange(horizon) < execute)", "step < len(clip)", CLIPS),
    "preference-by-noises-of-their-own": Mutant(
        PREFERRED, "value.unflatten(0, (n, 1, most)).expand(n, sides, most, *value.shape[1:])", "value.repeat_interleave(2, 0).unflatten(0, (n, sides, most))",
        (f"{PREFERENCES}::test_of_a_pair_both_have_the_same_noise",),
    ),
    "preference-imitates-the-worse": Mutant(PREFERRED, "preference.better == (\"left\", \"right\")[side]", "preference.better != (\"left\", \"right\")[side]", CLIPS),
    "inverse-looks-at-now-alone": Mutant(INVERSE, "steps = [*range(ahead + 1), ", "steps = [", INPUTS),
    "inverse-of-the-step-before-twice": Mutant(INVERSE, "range(-1, -past - 1, -1)", "range(0, -past, -1)", INPUTS),
    "inverse-not-beyond-the-next": Mutant(INVERSE, "range(ahead + 1)", "range(1)", INPUTS),
    "inverse-gripper-by-its-mean": Mutant(INVERSE, "given[within == b].median()", "given.mean()", COMMANDS),
    "inverse-gripper-without-a-loss": Mutant(INVERSE, "return (squares + entropy) / len(x)", "return squares / len(x)", COMMANDS),
    "inverse-gripper-least-probable": Mutant(INVERSE, "logits.argmax(-1)", "logits.argmin(-1)", COMMANDS),
    "inverse-bins-of-half-the-range": Mutant(INVERSE, "((command + 1.0) / 2.0 * BINS)", "(command * BINS)", COMMANDS),
    "inverse-measured-where-it-was-trained": Mutant(INVERSE, "_pairs(model, dataset, order[:held])", "_pairs(model, dataset, order[held:])", FOUND),
    "inverse-worse-than-the-mean-is-taken": Mutant(INVERSE, "if not errors.model.mean() < errors.mean_action.mean():", "if False:", FOUND),
    "predicted-actions-unsaid": Mutant(
        "robolearn/data/convert/edit.py", " | {PREDICTED_ACTIONS: dict(mark)}", "",
        (f"{INVERSES}::test_the_command_labels_and_the_mark_stays",),
    ),
    "imitation-exports-the-last-weights": Mutant(
        IMITATION, "ChunkPolicy(self.ema.module, ", "ChunkPolicy(self.net, ", ("tests/train/test_imitation.py",)
    ),
    "evaluation-success-of-the-last-chunk": Mutant(
        "robolearn/eval/evaluation.py", "turn.solved[turn.worlds]", "turn.success[turn.worlds]", EVALUATION
    ),
    "evaluation-with-one-noise": Mutant(
        "robolearn/eval/evaluation.py", "policy.reset(seed)", "policy.reset(0)", EVALUATION
    ),
    "evaluation-with-one-set-of-starts": Mutant(
        "robolearn/eval/evaluation.py", "engine.reset(seed)", "engine.reset(0)", EVALUATION
    ),
    "paired-interval-without-continuity": Mutant(
        "robolearn/eval/comparison.py", "cross - n / 2", "cross", VERDICT
    ),
    "verdicts-of-several-are-not-corrected": Mutant(
        "robolearn/eval/verdict.py", "(m - rank) * verdicts[i].p_value", "verdicts[i].p_value", VERDICT
    ),
    "corrected-p-values-fall-again": Mutant(
        "robolearn/eval/verdict.py", "max(largest, min(1.0, ", "max(0.0, min(1.0, ", VERDICT
    ),
    "seeds-with-the-spread-of-a-population": Mutant(
        "robolearn/eval/intervals.py", "x.std(ddof=1)", "x.std()", INTERVALS
    ),
    "the-least-is-not-chosen": Mutant(
        "robolearn/eval/intervals.py", "1.0 - (1.0 - level) / len(successes)", "level", INTERVALS
    ),
    "the-least-has-the-widest-bounds": Mutant(
        "robolearn/eval/intervals.py", "min(high for _, high in bounds)", "max(high for _, high in bounds)", INTERVALS
    ),
    "seeds-by-the-normal-law": Mutant(
        "robolearn/eval/intervals.py", "stdtrit(k - 1, ", "stdtrit(1e9, ", INTERVALS
    ),
    "pictures-by-the-batch-of-vectors": Mutant(
        "robolearn/train/settings.py", "PICTURES_BATCH if pictures else VECTORS_BATCH", "VECTORS_BATCH",
        ("tests/train/test_imitation_images.py",),
    ),
    "run-forgets-its-batch": Mutant(
        "robolearn/cli/train.py", "write_flags(replace(self, settings=config),", "write_flags(self,",
        ("tests/train/test_imitation_images.py",),
    ),
    "freed-memory-goes-back": Mutant(
        "robolearn/core/machine.py", "mallopt(M_MMAP_MAX, 0)", "mallopt(M_MMAP_MAX, 65536)", ("tests/core/test_heap.py",)
    ),
    "off-policy-no-discount": Mutant(
        f"{ALGORITHMS}/off_policy.py", "batch.discount * self.next_value", "self.next_value", OFF_POLICY
    ),
    "off-policy-target-does-not-follow": Mutant(
        f"{RL}/ensemble_critic.py", "generator)\n        self._follow = get_ema_multi_avg_fn(1.0 - config.tau)",
        "generator)\n        self._follow = get_ema_multi_avg_fn(config.tau)",
        OFF_POLICY,
    ),
    "off-policy-optimism": Mutant(
        f"{RL}/ensemble_critic.py", ".to(features.device)).amin(0)", ".to(features.device)).amax(0)", OFF_POLICY
    ),
    "off-policy-likelihood-without-tanh": Mutant(
        "policies/kinds/gaussian.py", "(normal - 2.0 * (math.log(2.0) - u - F.softplus(-2.0 * u)))", "normal", OFF_POLICY
    ),
    "off-policy-temperature-sign": Mutant(
        f"{ALGORITHMS}/off_policy.py", "-self.log_alpha * (log_prob", "self.log_alpha * (log_prob", OFF_POLICY
    ),
    "off-policy-critics-minimised": Mutant(
        f"{ALGORITHMS}/off_policy.py", "* log_prob - value(", "* log_prob + value(", OFF_POLICY
    ),
    "off-policy-imitates-what-was-not-executed": Mutant(
        STUDENT, "~batch.planned[rows, :ahead]", "torch.zeros_like(batch.planned[rows, :ahead])", OFF_POLICY
    ),
    "off-policy-imitates-everything": Mutant(
        f"{ALGORITHMS}/proposals.py", "batch.merit if self.settings.imitate_own else batch.intervention",
        "torch.ones_like(batch.merit)", OFF_POLICY,
    ),
    "off-policy-imitates-failures-of-its-own": Mutant(
        f"{ALGORITHMS}/proposals.py", "batch.merit if self.settings.imitate_own", "~batch.intervention if True",
        OFF_POLICY,
    ),
    "off-policy-trusts-critics-at-once": Mutant(
        f"{ALGORITHMS}/proposals.py", "float(self.updates >= self.settings.trust_after)", "1.0", OFF_POLICY
    ),
    "off-policy-worth-of-the-first-candidate": Mutant(
        f"{ALGORITHMS}/proposals.py", "features, self.policy.best(features, candidates), 0.0",
        "features, candidates[:, 0], 0.0", OFF_POLICY,
    ),
    "off-policy-the-base-learns": Mutant(
        STUDENT, "ChunkPolicy(copy.deepcopy(base.net),", "ChunkPolicy(base.net,", OFF_POLICY
    ),
    "off-policy-noise-of-another-size": Mutant(
        f"{ALGORITHMS}/dsrl.py", "self.policy.chunk(batch.observation, self.settings.magnitude * w)",
        "self.policy.chunk(batch.observation, w)", OFF_POLICY,
    ),
    "off-policy-resume-forgets-an-optimiser": Mutant(
        f"{ALGORITHMS}/rlpd.py", "super().optimizers() | self.soft.optimizers()", "super().optimizers()", OFF_POLICY
    ),
    "droq-of-torch-s-own-generator": Mutant(
        f"{NETWORKS}/ensemble.py", "generator=self._generator, ", "", OPTIONS
    ),
    "droq-not-scaled": Mutant(f"{NETWORKS}/ensemble.py", " * kept / (1.0 - self.rate)", " * kept", OPTIONS),
    "droq-targets-without": Mutant(
        f"{RL}/ensemble_critic.py", "actions, members, self._drop)", "actions, members)", OPTIONS
    ),
    "crossq-two-passes": Mutant(
        f"{RL}/ensemble_critic.py", "self.net(both, drop=self._drop, over_batch=True, renorm=renorm)",
        "torch.cat([self.net(half, drop=self._drop, over_batch=True) for half in both.chunk(2)], 1)", OPTIONS,
    ),
    "crossq-gradient-through-what-comes-next": Mutant(
        f"{RL}/ensemble_critic.py", "following.detach()[", "following[", OPTIONS
    ),
    "crossq-statistics-over-all-members": Mutant(
        f"{NETWORKS}/ensemble.py", "h.mean(1, keepdim=True), h.var(1,", "h.mean((0, 1), keepdim=True), h.var((0, 1),",
        OPTIONS,
    ),
    "crossq-acts-by-the-batch": Mutant(
        f"{NETWORKS}/ensemble.py", "            if over_batch:", "            if members is None:", OPTIONS
    ),
    "gripper-changes-are-free": Mutant(
        f"{RL}/ensemble_critic.py", "- self._penalty * (made != STAY)", "", GRIPPER
    ),
    "gripper-single-dqn": Mutant(
        f"{RL}/ensemble_critic.py", "self._choices.choose(self.net(next_features)[0]",
        "self._choices.choose(self.target(next_features)[0]", GRIPPER,
    ),
    "gripper-staying-opens": Mutant("policies/kinds/gaussian.py", "((choice == STAY) & is_open)", "(choice == STAY)", GRIPPER),
    "gripper-what-was-not-executed": Mutant(
        "policies/kinds/gaussian.py", "chunk[..., self._component] * executed", "chunk[..., self._component]", GRIPPER
    ),
    "gripper-first-component": Mutant(
        "policies/kinds/gaussian.py", '= names.index("gripper"), (', "= 0, (", GRIPPER
    ),
    "gripper-resume-forgets-its-target": Mutant(
        f"{ALGORITHMS}/rlpd.py", '{"gripper_target": self.gripper.target}', "{}", GRIPPER
    ),
    "delay-of-the-critics": Mutant(
        "policies/wrappers/best_of_n.py", "self.best(self.encode(now), proposals)", "self.best(self.encode(then), proposals)", DELAYED
    ),
    "delay-begins-at-the-first-step": Mutant(
        LATE, "np.minimum(np.floor(elapsed), last)", "np.zeros(count)", DELAYED
    ),
    "delay-episode-before": Mutant(
        LATE, "np.where(fresh, 0, np.minimum(", "np.where(fresh & False, 0, np.minimum(", DELAYED
    ),
    "delay-observation-written-over": Mutant(LATE, "np.array(observation[key])", "observation[key]", DELAYED),
    "late-path-without-its-beginning": Mutant(
        LATE, "np.concatenate((np.zeros_like(paths[:, :1]), np.cumsum(paths, 1)), 1)",
        "np.concatenate((np.cumsum(paths, 1), np.cumsum(paths, 1)[:, -1:]), 1)", CAUGHT,
    ),
    "late-rotations-count-as-distance": Mutant(
        LATE, "executed[:, None])[..., parts.along]", "executed[:, None])[..., :6]", CAUGHT
    ),
    "late-beyond-the-end": Mutant(
        LATE, "last=horizon - steps)", "last=horizon - steps - 1)", CAUGHT
    ),
    "late-farthest-first": Mutant(LATE, "distance.reshape(worlds", "(-distance).reshape(worlds", CAUGHT),
    "late-does-not-come-back": Mutant(LATE, "goals[:, j] - place,", "goals[:, j] - goals[:, j - 1],", CAUGHT),
    "late-comes-back-for-ever": Mutant(LATE, "place += out[:, j]", "pass", CAUGHT),
    "late-gripper-is-a-displacement": Mutant(LATE, "np.where(displaced, ", "np.where(displaced | True, ", CAUGHT),
    "late-joints-are-displacements": Mutant(
        LATE, 'displacements=interface.action_kind == "tcp_delta"', "displacements=True", (*CAUGHT, *CHOSEN)
    ),
    "late-what-other-episodes-did": Mutant(LATE, "np.where((self._age >= back)[:, None], ", "np.where(True, ", CAUGHT),
    "late-without-the-operators-actions": Mutant(
        "robolearn/hil/agent.py", "self._history.execute(executed[None, None])",
        "self._steering or self._history.execute(executed[None, None])", AGENT,
    ),
    "late-knows-the-episode-before": Mutant(
        "robolearn/hil/agent.py", "            self._history.clear()\n", "            pass\n", AGENT
    ),
    "late-loop-without-delay": Mutant(
        "robolearn/rl/algorithms/off_policy.py", "self.explore_delayed(self._encoded(delayed.before), delayed, seen)",
        "self.explore_delayed(seen, delayed, seen)", RL_LATE,
    ),
    "late-loop-chooses-by-then": Mutant(
        f"{ALGORITHMS}/proposals.py", "return self._best(observation, self.policy.propose_delayed(then, delayed, drawn))",
        "return self._best(then, self.policy.propose_delayed(then, delayed, drawn))", RL_LATE,
    ),
    "noise-steered-without-magnitude": Mutant(
        "policies/kinds/gaussian.py", "self.chunk(observation, self.config.magnitude * self.actor.mode", "self.chunk(observation, self.actor.mode",
        ("tests/policies/test_noise_steered.py",),
    ),
    "proposals-with-all-their-noise": Mutant(
        f"{ALGORITHMS}/proposals.py", "initial_noise=config.proposal_noise", "initial_noise=None", RL_LATE
    ),
    "chosen-caution-sign": Mutant(
        "policies/wrappers/best_of_n.py", "ahead.mean(0) - self.config.caution", "ahead.mean(0) + self.config.caution", CHOSEN
    ),
    "chosen-spread-of-the-values-themselves": Mutant(
        "policies/wrappers/best_of_n.py", "* ahead.std(0, correction=0)", "* values.std(0, correction=0)", CHOSEN
    ),
    "chosen-the-gripper-is-stretched": Mutant(LATE, "~opening & displacements", "opening | displacements", CHOSEN),
    "chosen-without-slow-twins": Mutant(
        "policies/wrappers/best_of_n.py", "1.0 - 0.5 * self.config.tempo, 1.0", "1.0, 1.0", CHOSEN
    ),
    "replay-edge-of-an-intervention": Mutant(
        f"{REPLAY}/buffer.py", "valid &= start + length <= edge", "pass", REPLAYED
    ),
    "replay-time-limit-is-an-end": Mutant(
        f"{REPLAY}/buffer.py", "ends = episode.terminated & (", "ends = (", REPLAYED
    ),
    "replay-value-after-the-end": Mutant(
        f"{REPLAY}/buffer.py", 'torch.where(w["ends"], 0.0, gamma ** reach.float())', "gamma ** reach.float()",
        REPLAYED,
    ),
    "replay-next-episode": Mutant(f"{REPLAY}/buffer.py", "(start + length < rows)", "True", REPLAYED),
    "replay-discount-of-one-step": Mutant(f"{REPLAY}/buffer.py", "gamma ** reach.float()", "gamma", REPLAYED),
    "replay-rewards-not-discounted": Mutant(f"{REPLAY}/buffer.py", " * gamma**step)", ")", REPLAYED),
    "replay-padding-tells-the-end": Mutant(
        f"{REPLAY}/buffer.py", "torch.where(executed[..., None], action, others)", "action * executed[..., None]",
        REPLAYED,
    ),
    "replay-n-step-return-beyond-the-edge": Mutant(
        f"{REPLAY}/buffer.py", "np.minimum(start + chunk * n_step, edge), last)", "start + chunk * n_step, last)",
        REPLAYED,
    ),
    "replay-n-step-value-of-what-was-not-seen": Mutant(
        f"{REPLAY}/buffer.py", "last = steps if episode.terminated else rows - 1", "last = steps", REPLAYED
    ),
    "replay-n-step-end-of-the-chunk-alone": Mutant(
        f"{REPLAY}/buffer.py", "episode.terminated & (start + reach == steps)",
        "episode.terminated & (start + length == steps)", REPLAYED,
    ),
    "replay-plan-of-another-author": Mutant(
        f"{REPLAY}/buffer.py", "ends[valid], (edge - start)[valid]", "ends[valid], (steps - start)[valid]", REPLAYED
    ),
    "replay-forgets-nothing": Mutant(f"{REPLAY}/buffer.py", "column[gone:]", "column", REPLAYED),
    "replay-success-across-an-edge": Mutant(
        f"{REPLAY}/records.py", "self.intervention | (unaided & self.success)", "self.intervention | self.success",
        REPLAYED,
    ),
    "replay-a-gap-is-taken": Mutant(f"{REPLAY}/records.py", " or record.index != len(self._steps)", "", REPLAYED),
    "replay-log-begins-anew": Mutant(
        f"{REPLAY}/records.py", "Journal(self.path, resume=True)", "Journal(self.path)", REPLAYED
    ),
    "replay-log-keeps-half-a-record": Mutant(
        f"{REPLAY}/records.py", "cut_torn(self.path)", "pass", REPLAYED
    ),
    "replay-any-number": Mutant(f"{REPLAY}/records.py", "not np.isfinite(value).all()", "False", REPLAYED),
    "entropy-sign": Mutant(
        ON_POLICY, "surrogate - c.entropy * entropy", "surrogate + c.entropy * entropy",
        (f"{UPDATES}::test_the_entropy_term_raises_the_noise",),
    ),
    "value-when-the-time-is-up": Mutant(f"{RL}/critic.py", " * (time_remaining > 0)", "", CRITIC),
    "critic-without-time": Mutant(
        f"{RL}/critic.py", "2.0 * time_remaining[:, None] - 1.0", "0.0 * time_remaining[:, None]", CRITIC
    ),
    "noise-schedule": Mutant(ON_POLICY, "self.actor.noise.schedule(progress)", "pass", SCHEDULES),
    "target-schedule": Mutant(ON_POLICY, "target_at(c.target_kl, progress)", "c.target_kl", SCHEDULES),
    "initial-noise-of-the-sampler": Mutant(
        f"{ACTORS}/denoising.py", "            self.net.initial_noise_std,\n", "            1.0,\n",
        ("tests/rl/test_rl_actors.py", *INITIAL),
    ),
    "initial-noise-of-the-export": Mutant(
        ON_POLICY, "for net in (self.net, self.average.module):", "for net in (self.net,):", INITIAL
    ),
    "initial-noise-of-act": Mutant(
        "policies/policy.py", "noise * self.net.initial_noise_std", "noise",
        ("tests/policies/test_checkpoint.py",),
    ),
    "calibration-on-training-starts": Mutant(
        f"{RL}/calibrate.py", "engine.reset(seed + SEEDS_APART)", "engine.reset(seed)", CALIBRATION
    ),
    "calibration-on-evaluation-starts": Mutant(
        f"{RL}/calibrate.py", "engine.reset(seed + SEEDS_APART)", "engine.reset(seed + 1000)", CALIBRATION
    ),
    "gradient-clipping": Mutant(
        f"{RL}/policy_step.py", "(trained, self.max_grad_norm,", "(trained, math.inf,",
        (f"{UPDATES}::test_a_gradient_is_no_longer_than_allowed",),
    ),
    "regulariser-sign": Mutant(ON_POLICY, "+ c.regularisation * distance", "- c.regularisation * distance", HELD),
    "bootstrap-from-the-reset": Mutant(
        "robolearn/rollout/engine.py", "    if not out.final:\n", "    if True:\n", BUFFER
    ),
    "terminated-as-truncated": Mutant(f"{RL}/returns.py", "(~terminated) * next_value", "next_value", RETURNS),
    "truncated-as-terminated": Mutant(
        f"{RL}/returns.py", "(~terminated) * next_value", "(~ended) * next_value", RETURNS
    ),
    "episodes-run-into-each-other": Mutant(f"{RL}/returns.py", "* (~ended)", "* (~terminated)", RETURNS),
    "grid-of-other-worlds": Mutant(
        f"{RL}/buffer.py", "grid[t, worlds] = ", "grid[t, worlds[::-1]] = ", BUFFER
    ),
    "old-likelihood-of-now": Mutant(
        ON_POLICY, "before = old.rows(index)",
        "before = ChainStats(*(column.detach() for column in self.actor.evaluate(seen, path)))", RATIOS,
    ),
    "average-not-updated": Mutant(
        ON_POLICY, "self.average.update(self.net)", "pass",
        (f"{RUNNER}::test_the_average_is_that_of_the_iterations_by_hand",),
    ),
    "kl-the-other-way-round": Mutant(
        f"{ACTORS}/denoising.py", "def kl_nats(old: ChainStats, new: ChainStats)",
        "def kl_nats(new: ChainStats, old: ChainStats)", LOSSES,
    ),
    "dual-clip": Mutant(f"{RL}/returns.py", "if dual_clip is not None:", "if False:", LOSSES),
    "dppo-discount-reversed": Mutant(
        f"{ALGORITHMS}/dppo.py", "self.config.gamma_denoising**left",
        "self.config.gamma_denoising ** (M - 1 - left)", DPPO,
    ),
    "dppo-clip-reversed": Mutant(f"{ALGORITHMS}/dppo.py", "t = 1.0 - left / max(M - 1, 1)", "t = left / max(M - 1, 1)", DPPO),
    "dppo-clip-geometric": Mutant(
        f"{ALGORITHMS}/dppo.py", "first + (last - first) * torch.expm1(RATE * t) / math.expm1(RATE)",
        "first * (last / first) ** t", DPPO,
    ),
    "grpo-long-episodes-weigh-more": Mutant(
        f"{ALGORITHMS}/grpo.py", 'if self.config.weigh == "episode"', "if False", GRPO
    ),
    "likelihood-of-what-is-not-executed": Mutant(
        f"{ACTORS}/denoising.py", "log_sigma, self.executed)", "log_sigma)", EXECUTED
    ),
    "reference-of-what-is-not-executed": Mutant(
        f"{ACTORS}/denoising.py", "(action - target)[:, :execute]", "(action - target)", EXECUTED
    ),
    "exponent-by-all-components": Mutant(
        f"{ACTORS}/denoising.py", "total / math.sqrt(terms)", "total / math.sqrt(4 * terms)", EXECUTED
    ),
    "paper-exponent-without-its-bounds": Mutant(
        f"{ACTORS}/denoising.py", "(terms + self.mean.shape[2])).clamp(-1.0, 1.0)", "(terms + self.mean.shape[2]))",
        EXECUTED,
    ),
    "means-not-clipped": Mutant(
        f"{ACTORS}/denoising.py", "mean.clamp(-1.0, 1.0) if noise.clip_means else mean", "mean", EXECUTED
    ),
    "draws-anywhere": Mutant(f"{ACTORS}/denoising.py", "draw.clamp(-noise.within, noise.within)", "draw", EXECUTED),
    "cosine-of-the-actor-alone": Mutant(
        ON_POLICY, "self.baseline.optimizer.set_lr(self.config.critic_lr * share)", "pass", EXECUTED
    ),
    "regulariser-widens-the-noise": Mutant(
        f"{ACTORS}/denoising.py", "(-2 * stats.log_sigma.detach())", "(-2 * stats.log_sigma)",
        ("tests/rl/test_rl_distances.py",),
    ),
    "critic-fitted-on-what-came-next": Mutant(
        f"{RL}/critic.py", "seen = self._normalise(rows(batch.observation, index))",
        "seen = self._normalise(rows(batch.next_observation, index))",
        (f"{UPDATES}::test_the_critic_is_fitted_on_what_was_seen_not_on_what_came_next",),
    ),
    "dsrl-does-not-explore": Mutant(
        f"{ALGORITHMS}/dsrl.py", "self.policy.actor.sample(features, self.generator)[0]",
        "self.policy.actor.mode(features)", OFF_POLICY,
    ),
    "rlpd-entropy-taken-off-the-value": Mutant(
        f"{ALGORITHMS}/rlpd.py", "-self.soft.alpha * log_prob if", "self.soft.alpha * log_prob if", OFF_POLICY
    ),
    "rewards-of-resting-worlds": Mutant(
        "robolearn/rollout/engine.py", "rewards[going, a] = reward[going]", "rewards[:, a] = reward", ENGINE
    ),
    "renorm-without-its-shift": Mutant(f"{NETWORKS}/ensemble.py", "out = out * r + d", "out = out * r", OPTIONS),
    "renorm-from-the-beginning": Mutant(
        f"{RL}/ensemble_critic.py", "renorm = updates >= RENORM_AFTER", "renorm = True", OPTIONS
    ),
    "group-mean": Mutant(f"{RL}/returns.py", "returns - mean[group].to(returns.dtype)", "returns - returns.mean()",
                         RETURNS),
    "groups-begin-anywhere": Mutant(
        f"{ALGORITHMS}/grpo.py", "np.arange(config.num_envs) // config.group", "np.arange(config.num_envs) % config.group", GRPO
    ),
    "group-advantages-centred": Mutant(
        f"{ALGORITHMS}/grpo.py", "standardise(advantage, centre=False)", "standardise(advantage)", GRPO
    ),
    "chunk-leaks-into-the-next-episode": Mutant(
        "robolearn/rollout/engine.py", "need = ended | (cursor == held.chunk.shape[1])",
        "need = cursor == held.chunk.shape[1]", ENGINE,
    ),
    "precision-ignored": Mutant(IMITATION, 'mixed = precision == "bfloat16"', "mixed = False", PRECISION),
    "always-mixed": Mutant(IMITATION, "torch.bfloat16, enabled=mixed", "torch.bfloat16, enabled=True", PRECISION),
    "what-surrounds-it-decides": Mutant(
        IMITATION, "        with self._autocast:\n", "        with __import__('contextlib').nullcontext():\n", PRECISION
    ),
    "along-for-ever": Mutant(f"{RL}/along.py", "self.along_share * left, LATEST", "self.along_share, LATEST", ALONG),
    "along-from-the-start-at-once": Mutant(f"{RL}/along.py", "LATEST * left, LATEST", "0.0, LATEST", ALONG),
    "along-counts-as-the-task-s": Mutant(
        f"{RL}/buffer.py", "(turn.solved & ended & own).sum()", "(turn.solved & ended).sum()", ALONG
    ),
    "along-of-another-world": Mutant(f"{RL}/along.py", "self.own(turn)[turn.worlds & turn.ended]", "self.own(turn)[: len(ended)]", ALONG),
    "along-with-dynamics-of-its-own": Mutant(
        SNAPSHOTS, "np.where(along[:, :1] >= 0, along,", "np.where(along[:, :1] >= 9, along,", ALONG_WORLDS
    ),
    "along-without-its-set-points": Mutant(
        SNAPSHOTS, "= found.motion[frame]", "= found.motion[0]", ALONG_WORLDS
    ),
    "along-whatever-was-recorded": Mutant(SNAPSHOTS, "if difference > AGREE:", "if False:", ALONG_WORLDS),
    "along-not-in-the-state": Mutant(SNAPSHOTS, 'self._along[:] = snapshot["along"]', "pass", ALONG_WORLDS),
    "adversary-helps": Mutant(ADVERSARY, "score = -self.strength", "score = self.strength", ADVERSARIES),
    "adversary-rational-from-the-first": Mutant(ADVERSARY, "-self.strength * value", "-1.0 * value", ADVERSARIES),
    "adversary-forgets-nothing": Mutant(ADVERSARY, "FORGETTING * np.stack", "1.0 * np.stack", ADVERSARIES),
    "adversary-never-yields": Mutant(ADVERSARY, "- float(rate < FALLS_AT)", "", ADVERSARIES),
    "pushes-for-ever": Mutant("sim/embedded/pushes.py", " & (self._elapsed < first + PUSH_STEPS)", "", PUSHED),
    "pushes-of-the-next-episodes-force": Mutant(
        "sim/embedded/pushes.py", "np.where(now, self._strength, 0.0)", "np.where(now, self._force, 0.0)", PUSHED
    ),
    "adversary-begins-anew": Mutant(
        f"{RL}/runner.py", 'if starts := unprefixed("starts", tensors):', "if starts := {}:", ("tests/cli/test_adversary.py",)
    ),
    "worlds-do-not-rest": Mutant("robolearn/rollout/engine.py", "going = going & ~ended", "pass", ENGINE),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("learning", MUTANTS))
