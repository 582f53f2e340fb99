"""Mutation check of trials and of arms of one's own: one line is wrong, and a test fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

SEQUENTIAL, STATISTICS = "robolearn/eval/trials/sequential.py", ("tests/eval/test_trials_statistics.py",)
FUTILITY, FUTILE = "robolearn/eval/trials/futility.py", "tests/eval/test_trials_futility.py"
BY_HAND = (f"{FUTILE}::test_three_blocks_are_worked_out_by_hand",)
ENDS = (f"{FUTILE}::test_a_trial_ends_where_its_plan_could_find_nothing_more",)
GOES_ON = ("tests/cli/test_trial.py::test_a_trial_in_which_nothing_could_be_found_any_more_ends_and_may_go_on",)
DESIGN, SEEDS = "robolearn/eval/trials/design.py", "robolearn/eval/trials/analysis.py"
TREE = "test_power_and_length_are_those_of_a_tree_of_all_outcomes"
TRIAL_COMMAND = "robolearn/cli/trial.py"
PLAN, RECORDS = "robolearn/eval/trials/plan.py", "robolearn/eval/trials/records.py"
EPISODES, HASHES = "robolearn/cli/trial_episodes.py", "robolearn/cli/trial_hashes.py"
TRIAL = "tests/cli/test_trial.py"
CHANGED = (f"{TRIAL}::test_what_has_changed_is_refused",)
RESUMED = (f"{TRIAL}::test_a_killed_trial_goes_on_as_if_nothing_had_been",)
AT_THE_ARM = "tests/cli/test_trial_arm.py"
BOTH = (f"{AT_THE_ARM}::test_person_and_reward_model_judge_and_the_plan_says_whose_verdict_counts",)
NO_JUDGE = (f"{AT_THE_ARM}::test_a_reward_model_that_gives_no_verdict_is_no_judge",)
BLIND = (f"{AT_THE_ARM}::test_a_whole_trial_on_the_simulated_arm_shows_no_policy_before_the_verdict",)
VERDICTS, END, POLICY_NODE = (
    "robolearn/deploy/reward_verdicts.py", "hardware/execution/episode_end.py", "hardware/ros2/policy_node.py",
)  # fmt: skip
ENDED = ("tests/hardware/test_episode_end.py",)
HELPED = (f"{AT_THE_ARM}::test_help_and_a_refused_arming_are_outcomes_of_their_own",)
TRIES = (f"{TRIAL}::test_each_try_that_was_begun_and_not_ended_is_listed",)
BLOCKS = (f"{TRIAL}::test_a_plan_is_interleaved_in_blocks_with_one_start_each",)
MODEL, CHECK, SOURCE, OWN = (f"robots/making/{name}.py" for name in ("model", "check", "source", "folder"))
CONTRACT = "robots/making/contract.py"
ARMS = "tests/robots/test_own_robots.py"
URDF = (f"{ARMS}::test_a_urdf_becomes_an_arm_with_its_limits_and_its_kinematics",)
MJCF = (f"{ARMS}::test_an_mjcf_with_meshes_becomes_an_arm_whose_links_are_those_of_the_source",)
RULES = (f"{ARMS}::test_each_rule_of_the_model_is_named_where_it_is_broken",)

STARTS, STARTED = (
    "robolearn/cli/trial_starts.py",
    ("tests/cli/test_trial.py::test_a_start_is_kept_with_the_first_policy_of_a_block_and_shown_before_the_others",),
)

LAUNCHED, LAUNCHES = "robolearn/deploy/launched.py", "tests/launch/test_launched.py"
EXACTLY = (f"{LAUNCHES}::test_a_trial_of_a_sites_launch_file_runs_exactly_that",)
NOT_STARTED = (f"{LAUNCHES}::test_a_file_that_does_not_start_is_nobodys_failure",)
SAID = (f"{LAUNCHES}::test_what_launch_says_of_a_node_is_what_its_end_is_called",)
UNKNOWN = (f"{LAUNCHES}::test_an_argument_that_the_file_does_not_know_is_named",)
ENDED_BY_MODEL = ("tests/launch/test_launch_spawn.py::test_a_success_classifier_ends_an_episode_of_a_launch_file",)

MUTANTS: dict[str, Mutant] = {
    "launched-death-unseen": Mutant(
        LAUNCHED,
        "            raise NodeDied(name, code, last_words(self._lines(process)))\n",
        "            pass\n",
        SAID,
    ),
    "launched-node-that-says-nothing": Mutant(LAUNCHED, "last_words(self._lines(process))", '""', SAID),
    "launched-file-that-fails-is-a-death": Mutant(
        LAUNCHED, "        if self._failed:  # ", "        if False:  # ", NOT_STARTED
    ),
    "launched-file-that-ends-is-a-death": Mutant(LAUNCHED, "ended >= 0 and not self._started", "False", NOT_STARTED),
    "launched-argument-unknown": Mutant(
        LAUNCHED, "if unknown := [name for name in given if name not in known]:", "if unknown := []:", UNKNOWN
    ),
    "launched-copy-without-parameters": Mutant(
        "launch/launching.py", '*(Path(prefix) / "share" / "robolearn" for prefix in prefixes)', "", UNKNOWN
    ),
    "launched-remains-are-left": Mutant(
        LAUNCHED,
        "                _end_group(launch)\n",
        "                pass\n",
        (f"{LAUNCHES}::test_what_a_launch_leaves_behind_is_ended_too",),
    ),
    "launched-outlives-its-program": Mutant(
        LAUNCHED,
        '"--pdeathsig", "INT"',
        '"--pdeathsig", "TERM"',
        (f"{LAUNCHES}::test_a_deployment_that_is_killed_takes_its_launch_along",),
    ),
    "launched-nodes-of-another-parent": Mutant(LAUNCHED, '"env", "-u", "ROBOLEARN_PARENT"', '"env"', EXACTLY),
    "launched-by-deploy-all-the-same": Mutant(EPISODES, "Path(file) if file else None", "None", EXACTLY),
    "launched-file-of-no-hash": Mutant(
        HASHES,
        '        if file := plan.setting.get("launch"):\n',
        "        if file := None:\n",
        (f"{LAUNCHES}::test_a_launch_file_that_has_changed_is_named_and_so_is_one_that_it_includes",),
    ),
    "launched-file-hashed-alone": Mutant(
        HASHES,
        "if path.suffix in LAUNCH_FILES and",
        "if False and",
        (f"{LAUNCHES}::test_a_launch_file_that_has_changed_is_named_and_so_is_one_that_it_includes",),
    ),
    "launched-never-by-itself": Mutant(
        TRIAL_COMMAND,
        'str(own_launch_file() or "")',
        '""',
        (f"{LAUNCHES}::test_a_plan_takes_our_launch_file_where_ros2_finds_it",),
    ),
    "launched-classifier-ends-nothing": Mutant(
        END, "self._judge_ends = judge is not None and judge_ends", "self._judge_ends = False", ENDED_BY_MODEL
    ),
    "a-new-start-beside-the-last": Mutant(STARTS, "then = {} if first else read_start(", "then = read_start(", STARTED),
    "a-start-is-kept-again": Mutant(STARTS, "                if not then:\n", "                if True:\n", STARTED),
    "a-start-of-any-block": Mutant(
        STARTS, 'folder / STARTS / f"block-{block + 1}"', 'folder / STARTS / "block"', STARTED
    ),
    "a-start-beside-an-older-camera": Mutant(STARTS, "        old.unlink()\n", "        pass\n", STARTED),
    "a-start-with-red-for-blue": Mutant(
        STARTS, 'imencode(".png", np.ascontiguousarray(picture[..., ::-1]))', 'imencode(".png", picture)', STARTED
    ),
    "a-start-at-which-nobody-looks": Mutant(STARTS, "page.show(text, then, now)", "page.show(text, {}, now)", STARTED),
    "trial-p-of-the-newest-look": Mutant(
        SEQUENTIAL,
        "largest = float(so_far.max(initial=0.0))",
        "largest = float(so_far[-1])",
        (f"{STATISTICS[0]}::test_the_p_value_of_three_wins_is_worked_out_by_hand",),
    ),
    "trial-one-sided": Mutant(
        SEQUENTIAL, "walk[low:left].sum() + walk[right + 1 : high + 2].sum()", "walk[low:left].sum()", STATISTICS
    ),
    "trial-never-absorbed": Mutant(SEQUENTIAL, "        low, high = left, right\n", "        high += 1\n", STATISTICS),
    "trial-lead-that-changed-sides": Mutant(
        SEQUENTIAL,
        "if (won[-1] - lost[-1]) * (won[at] - lost[at]) <= 0:",
        "if False:",
        (f"{STATISTICS[0]}::test_a_lead_that_has_changed_sides_is_no_claim",),
    ),
    "trial-bets-on-one-side": Mutant(SEQUENTIAL, "least, most = -1 / (1 - difference)", "least, most = 0", STATISTICS),
    "trial-rate-looked-at-once": Mutant(SEQUENTIAL, "math.lgamma(k + 1) + math.lgamma(n - k + 1)", "0.0", STATISTICS),
    "trial-level-too-low": Mutant(DESIGN, ".sum() <= alpha", ".sum() <= 2 * alpha", STATISTICS),
    "trial-power-of-all-blocks": Mutant(
        DESIGN, "stats.binom.pmf(np.arange(blocks + 1), blocks, decisive) @ np.cumsum(first)", "first.sum()", STATISTICS
    ),
    "trial-futile-for-one-side": Mutant(
        FUTILITY, "lost, better = min(only_a, only_b), max(", "lost, better = only_a, max(", BY_HAND
    ),
    "trial-futile-at-the-rates-as-named": Mutant(FUTILITY, "q_a, q_b = sorted(", "q_a, q_b = (", BY_HAND),
    "trial-futile-without-ties": Mutant(
        FUTILITY, "stats.binom.sf(np.arange(left + 1) - 1, left, decisive)", "np.ones(left + 1)", BY_HAND
    ),
    "trial-futile-with-a-claim-for-the-other": Mutant(
        FUTILITY, "        going[max(0, wrong) :] = 0.0\n", "", (f"{FUTILE}::{TREE}",)
    ),
    "trial-futile-and-going-on": Mutant(FUTILITY, ">= least[n, : n + 1, None]", ">= 0", BY_HAND),
    "trial-futile-from-the-sum": Mutant(FUTILITY, "        values *= inside[: n + 1]\n", "", (f"{FUTILE}::{TREE}",)),
    "trial-blocks-by-halving-alone": Mutant(
        DESIGN,
        "_least_within(power_of, power, start, end) or enough",
        "enough",
        (f"{FUTILE}::test_the_least_number_of_blocks_is_found_below_a_step_of_the_level",),
    ),
    "trial-futile-as-soon-as-one-pair": Mutant(
        SEEDS,
        "return max(found)",
        "return min(found)",
        (f"{FUTILE}::test_of_several_policies_the_pair_with_the_best_chance_counts",),
    ),
    "trial-futile-at-the-level-of-one-pair": Mutant(
        SEEDS,
        "plan.alpha / len(undecided), plan.concentration)",
        "plan.alpha, plan.concentration)",
        (f"{FUTILE}::test_of_several_policies_the_pair_with_the_best_chance_counts",),
    ),
    "trial-futile-and-never-over": Mutant(SEEDS, "power < futility.below else None", "power < 0 else None", ENDS),
    "trial-futile-plans-of-before": Mutant(
        PLAN,
        'del content["futility"]',
        "pass",
        (f"{FUTILE}::test_plans_of_before_keep_their_hash_and_new_ones_cover_the_rule",),
    ),
    "trial-futile-unplanned": Mutant(TRIAL_COMMAND, "Futility(self.detect, plan_of.futility)", "None", GOES_ON),
    "trial-futile-and-stuck": Mutant(TRIAL_COMMAND, "self.past_futility and ended == FUTILE", "False", GOES_ON),
    "trial-seeds-not-weighted": Mutant(SEEDS, "(total - float((n**2).sum()) / total) / (k - 1)", "1.0", STATISTICS),
    "trial-always-in-one-order": Mutant(
        PLAN,
        ".permutation(sorted(self.policies))",
        ".choice(sorted(self.policies), len(self.policies), replace=False, shuffle=False)",
        BLOCKS,
    ),
    "trial-starts-of-each-episode": Mutant(PLAN, "(self.seed + block) % 2**32", "(self.seed + number) % 2**32", BLOCKS),
    "trial-plan-unread-hash": Mutant(PLAN, "if found.sha256 != stated:", "if False:", CHANGED),
    "trial-weights-unseen": Mutant(HASHES, "hash_policy(path)\n    now", '""\n    now', CHANGED),
    "trial-filter-alone-hashed": Mutant(
        HASHES,
        '("hardware", "robots")',
        '("hardware/safety", "robots")',
        (f"{TRIAL}::test_the_code_between_a_policy_and_an_arm_is_the_plans",),
    ),
    "trial-arm-unseen": Mutant(
        HASHES,
        "_arms(*(part.robot.name for part in _contract(plan.arm).robot.parts))",
        '""',
        (f"{TRIAL}::test_an_arm_and_its_station_are_the_plans",),
    ),
    "trial-names-alone-hashed": Mutant("robolearn/io/hashes.py", "sha256_file(folder / name)", '""', CHANGED),
    "trial-order-unseen": Mutant(RECORDS, "if got != wanted or", "if", CHANGED),
    "trial-torn-line-kept": Mutant(RECORDS, ".truncate(whole)", ".read(0)", RESUMED),
    "trial-restarts-at-the-first": Mutant(RECORDS, "return len(self.done)", "return 0", RESUMED),
    "trial-kill-unseen": Mutant(RECORDS, "abandoned + _not_ended(begun)", "abandoned", (*RESUMED, *TRIES)),
    "trial-second-kill-unseen": Mutant(RECORDS, "        abandoned += _not_ended(begun)\n", "", TRIES),
    "trial-timeout-is-a-success": Mutant(
        EPISODES,
        '"success" if success else "timeout" if truncated',
        '"success" if success or truncated',
        (f"{TRIAL}::test_the_verdict_names_what_was_compared",),
    ),
    "trial-end-unseen-by-the-classifier": Mutant(
        EPISODES,
        "            seen.append({key: np.array(value[0]) for key, value in last.items()})\n",
        "",
        (f"{TRIAL}::test_a_classifier_judges_beside_the_task_or_in_its_place",),
    ),
    "trial-help-is-a-success": Mutant(
        EPISODES,
        'return answer == "y"',
        'return answer in "yi"',
        (f"{TRIAL}::test_the_person_answers_by_a_key",),
    ),
    "trial-help-is-a-failure": Mutant(EPISODES, "if self._real and self._operator.helped:", "if False:", HELPED),
    "trial-refusal-is-a-stop": Mutant(EPISODES, 'return Ended("refused", ', 'return Ended("stopped", ', HELPED),
    "trial-model-at-the-arm-unrecorded": Mutant(
        EPISODES, '            judged["classifier"] = called\n', "            pass\n", BOTH
    ),
    "trial-any-judge-at-the-arm-counts": Mutant(
        EPISODES, "        if judged[counts]:\n", "        if any(judged.values()):\n", BOTH
    ),
    "trial-help-counts-where-the-model-does": Mutant(
        EPISODES,
        "if self._real and self._operator.helped:",
        'if self._operator.helped and not judged.get("classifier"):',
        BOTH,
    ),
    "trial-verdict-of-the-episode-before": Mutant(
        VERDICTS, 'said.get("episode") == self._episode and', "said and", NO_JUDGE
    ),
    "trial-model-that-failed-is-a-judge": Mutant(
        VERDICTS, 'if said["done"] or not said["fault"]:', "if True:", NO_JUDGE
    ),
    "trial-unjudged-is-a-failure": Mutant(EPISODES, "if counts not in judged:", "if False:", NO_JUDGE),
    "trial-model-ends-an-episode": Mutant(END, "self._judge_ends and not self._first", "not self._first", ENDED),
    "trial-verdict-gone-with-the-episode": Mutant(
        END, "self._first = self._first or armed", "self._first = True", ENDED
    ),
    "trial-last-frame-unjudged": Mutant(POLICY_NODE, "self._end.add_last(self.observer.observation())", "pass", ENDED),
    "trial-verdict-while-the-model-looks": Mutant(
        POLICY_NODE, 'and self._end.verdict()["settled"]:', "and True:", ENDED
    ),
    "trial-verdict-before-the-frame-is-judged": Mutant(
        "robolearn/rewards/online.py",
        "self._judged >= self._steps and not self._asked_at",
        "self._judged >= self._steps",
        ("tests/rewards/test_online.py",),
    ),
    "trial-three-frames-for-a-whole-episode": Mutant(
        "robolearn/deploy/nodes.py", "frames=3 if p.reward_ends else 1", "frames=3", ENDED
    ),
    "deploy-of-a-stop-has-a-verdict": Mutant(
        "robolearn/deploy/deployment.py",
        "[*verdicts.given, *[None] * (len(results) - len(verdicts.given))]",
        "[*verdicts.given]",
        ("tests/deploy/test_deployment.py::test_what_a_reward_model_called_done_stands_beside_what_the_person_said",),
    ),
    "trial-bar-says-who-acts": Mutant(
        TRIAL_COMMAND,
        "                        progress(records.next)\n",
        "                        progress(records.next, {plan.slot(records.next - 1).policy: 1})\n",
        BLIND,
    ),
    "own-velocity-of-nobody": Mutant(
        SOURCE, '((velocity, "velocity"), (effort, "effort"))', '((effort, "effort"),)', URDF
    ),
    "own-flange-unturned": Mutant(OWN, "at = np.array(body.pos) + turned", "at = np.array(body.pos) + at", URDF),
    "own-tcp-elsewhere": Mutant(MODEL, 'name="tcp", pos=[0, 0, TCP]', 'name="tcp", pos=[0, 0.01, TCP]', MJCF),
    "own-weight-uncarried": Mutant(MODEL, "body.gravcomp = 1.0", "body.gravcomp = 0.0", MJCF),
    "own-servos-weak": Mutant(MODEL, "m * OMEGA**2, 2 *", "m, 2 *", MJCF),
    "own-knuckle-closes-at-0": Mutant(
        CONTRACT,
        "(high, low) if turns else (low, high)",
        "(low, high)",
        (f"{ARMS}::test_the_contracts_gripper_is_that_of_the_model_and_what_is_guessed_is_to_be_confirmed",),
    ),
    "own-guesses-move-a-real-arm": Mutant(
        "robolearn/deploy/processes.py",
        "if not (contract.simulated or dry_run):",
        "if False:",
        (f"{ARMS}::test_a_real_arm_does_not_move_by_guesses_of_its_contract",),
    ),
    "own-check-of-weight-blind": Mutant(CHECK, "if left[worst] > UNCARRIED", "if left[worst] > 1e3 * UNCARRIED", RULES),
    "own-check-of-shapes-blind": Mutant(CHECK, "    if bare:\n", "    if False:\n", RULES),
    "own-check-of-home-blind": Mutant(CHECK, "> DOWN_RAD:", "> 4.0:", RULES),
}

if __name__ == "__main__":
    sys.exit(kill_replacements("trials and arms of one's own", MUTANTS))
