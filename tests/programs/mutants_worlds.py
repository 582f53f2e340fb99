"""Mutation check of worlds in processes and environments of their own: one line is wrong, a test that is named here fails."""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

FAR, BRIDGE = "sim/bridge/far", "sim/bridge"
TESTS = "tests/sim/test_bridge.py"
SAME = (f"{TESTS}::test_it_gives_what_gymnasium_gives_in_this_process",)
FAULT = (f"{TESTS}::test_a_fault_while_it_steps_is_named",)
MADE = (f"{TESTS}::test_a_fault_while_it_is_made_is_named",)
HANG = (f"{TESTS}::test_a_hang_ends_and_is_named",)
HERE = (f"{TESTS}::test_a_hang_in_this_process_is_named_once",)
DEATH = (f"{TESTS}::test_it_dies_with_its_parent",)
SAID = (f"{TESTS}::test_what_it_prints_and_a_slow_start_are_said_once",)
NONE = (f"{TESTS}::test_what_is_no_interpreter_is_refused",)
FAMILY = ("tests/cli/test_worlds.py::test_an_installed_family_demonstrates_and_is_judged",)
ABSENT = ("tests/cli/test_worlds.py::test_one_that_is_not_installed_names_the_command_that_mends_it",)
LACKING = ("tests/cli/test_worlds.py::test_an_interpreter_that_lacks_the_package_is_named_with_the_command",)
SUITES = ("tests/cli/test_suites.py",)
MAKERS = ("tests/sim/test_other_makers.py",)
CHUNKS = ("tests/sim/test_adapters_chunks.py",)
VECTOR = ("tests/sim/test_adapters_vector.py",)
COUSINS = ("tests/sim/test_cousins.py",)
SCENES, RANGES = "sim/embedded/cousin_scenes.py", "sim/embedded/cousins.py"
SECOND, BESIDE = "sim/embedded/distractor.py", ("tests/sim/test_distractor.py",)
SHARES = (
    "tests/sim/test_workers.py::test_shares_are_the_same_worlds_and_one_that_dies_costs_its_running_episodes_alone",
)
AGAIN = ("tests/sim/test_workers.py::test_what_has_to_be_done_again",)
BUSY = ("tests/sim/test_workers.py::test_a_cluster_that_is_slow_to_serve_a_client_is_asked_twice",)
TOKENS = ("tests/sim/test_workers.py::test_a_token_is_one_that_ray_sends",)
REFUSED = ("tests/sim/test_workers.py::test_what_names_no_workers_is_refused_in_one_line",)
ALONE = ("tests/sim/test_workers.py::test_worlds_whose_episodes_need_more_than_seed_and_actions_are_refused",)
ISAAC, ISAACS = "sim/bridge/far/isaaclab_scene.py", "tests/sim/test_isaaclab.py"
TURNED = (f"{ISAACS}::test_states_are_turned_into_isaac_labs_conventions_and_back",)
MOVES = (f"{ISAACS}::test_the_arm_moves_as_in_the_task_of_the_same_name",)
SOLVED = (f"{ISAACS}::test_scripts_solve_it_and_the_last_observation_is_handed_over",)
RESTS = (f"{ISAACS}::test_worlds_rest_and_time_limits_are_no_ends",)
NAMED = (f"{ISAACS}::test_another_version_names_what_mends_it",)
DEVICES = (f"{ISAACS}::test_a_gpu_is_taken_where_there_is_one_and_refused_where_there_is_none",)
PIECES = (f"{ISAACS}::test_scenes_come_in_pieces_that_hold_the_whole",)
SLOTS = ("tests/sim/test_workers.py::test_each_node_has_a_worker_before_any_has_two",)
FAR_RUN = "robolearn/bench/rivals/far/run.py"
BEGUN = ("tests/bench/test_rivals.py::test_worlds_are_reset_once_where_their_code_leaves_it_to_an_evaluation",)
WHOLE = ("tests/bench/test_rivals.py::test_rollouts_are_whole_episodes_only_where_they_begin_with_a_reset",)
RIVALS, REPAIRS = "tests/bench/test_rivals.py", "robolearn/bench/rivals/far/repairs.py"
GRID = (f"{RIVALS}::test_the_sampler_has_the_grid_of_the_likelihood",)
APART = (f"{RIVALS}::test_equal_policies_are_at_no_distance",)
CLOCK = (f"{RIVALS}::test_an_episode_that_its_clock_ends_is_bootstrapped_from_its_last_state",)
SCALED = (f"{RIVALS}::test_states_and_actions_are_scaled_by_the_demonstrations",)
FEW = ("tests/cli/test_benchmark_rivals.py::test_the_number_of_demonstrations_is_halved_until_imitation_is_weak",)

MUTANTS: dict[str, Mutant] = {
    "worlds-outlive-their-parent": Mutant(f"{FAR}/serve.py", " | os.O_ASYNC)", ")", DEATH),
    "a-share-begins-a-row-late": Mutant(f"{FAR}/facts.py", "rows = slice(first, first + count)", "rows = slice(first + 1, first + count + 1)", SAME),
    "worlds-are-numbered-in-their-process": Mutant(f"{FAR}/serve.py", "Worlds([self._first, *others], first)", "Worlds([self._first, *others], 0)", FAULT + VECTOR),
    "a-long-chunk-forgets-what-is-seen": Mutant(f"{BRIDGE}/pools.py", "                self.block.observation[key][:] = value\n\n    def reset(self, *, begin: bool) -> None:\n        self._do", "                pass\n\n    def reset(self, *, begin: bool) -> None:\n        self._do", SAME),
    "rest-is-work": Mutant(f"{FAR}/worlds.py", "np.flatnonzero(block.active)", "range(len(block.active))", SAME + VECTOR),
    "the-next-start-is-the-last-observation": Mutant("sim/adapters/vector.py", "value[ended] = block.final[key][ended]", "pass", SAME),
    "rewards-of-the-chunk-before": Mutant("sim/adapters/vector.py", "np.arange(steps) < executed[:, None]", "np.arange(steps) >= 0", VECTOR),
    "a-hang-is-waited-for": Mutant(f"{BRIDGE}/process.py", "limit = START_S if self.block is None else STEP_S", "limit = START_S if self.block is None else 3 * STEP_S", HANG),
    "a-hang-here-is-not-said": Mutant(f"{BRIDGE}/pools.py", "elif now - moved > STEP_S:", "elif now - moved > 100 * STEP_S:", HERE),
    "a-hang-here-is-said-again-and-again": Mutant(f"{BRIDGE}/pools.py", "            moved = math.inf\n", "", HERE),
    "a-rest-is-a-hang": Mutant(f"{BRIDGE}/pools.py", "if not busy or int", "if int", HERE),
    "the-first-world-is-blamed": Mutant(f"{FAR}/worlds.py", "            block.busy[i] = True\n", "", HANG),
    "their-output-is-ours": Mutant(f"{BRIDGE}/process.py", "stderr=subprocess.STDOUT, ", "", SAID),
    "silent-while-it-starts": Mutant(f"{BRIDGE}/process.py", "if self.block is None and now - begun > TELL_S", "if False and now - begun > TELL_S", SAID),
    "our-paths-reach-it": Mutant(f"{BRIDGE}/process.py", 'if key not in ("PYTHONPATH", "PYTHONHOME")', "if key", (f"{TESTS}::test_our_paths_do_not_reach_it",)),
    "a-lack-is-a-death": Mutant(f"{BRIDGE}/process.py", 'if line.startswith("ModuleNotFoundError")', 'if line.startswith("ImportError")', NONE),
    "any-program-is-an-interpreter": Mutant(f"{BRIDGE}/process.py", "if not _is_python(self._python):", "if False:", NONE),
    "a-missing-package-is-a-failure": Mutant(f"{FAR}/serve.py", "        if not install:", "        if True:", LACKING),
    "the-interpreter-is-not-asked": Mutant("sim/adapters/other_makers.py", "interpreter(family, name, named)", "interpreter(family, name)", LACKING),
    "exit-ends-the-process": Mutant(f"{FAR}/worlds.py", "                work(i, self._worlds[i])\n            except (Exception, SystemExit) as error:", "                work(i, self._worlds[i])\n            except Exception as error:", FAULT + VECTOR),
    "an-exit-at-first-ends-the-command": Mutant("sim/adapters/gym_env.py", "    except (Exception, SystemExit) as error:", "    except Exception as error:", VECTOR),
    "their-prints-are-our-result": Mutant("sim/adapters/gym_env.py", "    with redirect_stdout(sys.stderr):  # what a", "    with redirect_stdout(sys.stdout):  # what a", VECTOR),
    "bad-input-is-a-failure": Mutant(f"{FAR}/serve.py", "                send(answers, BAD_INPUT, 0, parts_of(error))", "                send(answers, FAILED, 0, _described(error))", MADE),
    "nan-is-success": Mutant(f"{FAR}/world.py", ' or np.isnan(array).any()', "", CHUNKS),
    "one-success-of-two-is-enough": Mutant(f"{FAR}/world.py", "if len(found) > 1 and len(set(found.values())) > 1:", "if False:", CHUNKS),
    "large-numbers-are-no-numbers": Mutant(f"{FAR}/world.py", " and not np.isfinite(value).all():\n            return key", ":\n            return key", CHUNKS),
    "infinite-squares-are-sound": Mutant(f"{FAR}/world.py", "not isfinite(np.vdot(value, value)) and not np.isfinite(value).all()", "np.isnan(np.vdot(value, value))", CHUNKS),
    "the-end-of-an-episode-is-never-looked-at": Mutant("sim/adapters/vector.py", "        if ended.any():\n            final", "        if ended.all():\n            final", SAME + VECTOR),
    "any-arrangement-of-so-many-numbers": Mutant(f"{FAR}/features.py", "if array.shape != self.shape:", "if array.size != np.prod(self.shape):", CHUNKS),
    "pictures-of-any-type": Mutant(f"{FAR}/features.py", "if self.picture and array.dtype != np.uint8:", "if False:", CHUNKS),
    "the-goal-is-hidden": Mutant(f"{FAR}/envpool.py", "partially_observable=False", "partially_observable=True", MAKERS),
    "an-ended-world-is-stepped": Mutant(f"{FAR}/envpool.py", "            alive = alive[~block.ended[alive]]\n", "", MAKERS),
    "a-success-goes-on": Mutant(f"{FAR}/envpool.py", "            block.terminated[alive] = solved\n", "", MAKERS),
    "what-is-not-finite-is-seen": Mutant(f"{FAR}/envpool.py", "self._raw[alive[sound]] = raw[sound]", "self._raw[alive] = raw", MAKERS),
    "every-world-has-one-seed": Mutant(f"{FAR}/envpool.py", "start_seed(int(seed), int(start), 0)", "start_seed(int(seed), 0, 0)", MAKERS),
    "solved-starts-are-kept": Mutant(f"{FAR}/ogbench.py", "        while self._solved():", "        while False:", MAKERS),
    "a-redrawn-start-forgets-its-seed": Mutant(f"{FAR}/ogbench.py", "            self._raw, self._info = self._env.reset()", "            self._raw, self._info = self._env.reset(seed=int(np.random.randint(2**31)))", MAKERS),
    "hovering-is-paid": Mutant(f"{FAR}/pusht.py", 'float(info["is_success"])', 'float(info["coverage"])', MAKERS),
    "the-last-command-is-in-sight": Mutant(f"{FAR}/pusht.py", "        self._env.unwrapped._last_action = None", "        self._env.unwrapped", MAKERS),
    "radians-as-they-come": Mutant(f"{FAR}/aloha.py", "0.5 * (np.asarray(action, np.float64) + 1.0)", "0.5 * np.asarray(action, np.float64)", MAKERS),
    "the-right-arm-has-the-left-ones-fingers": Mutant(f"{FAR}/aloha.py", "for arm in (0, ARM + 2)", "for arm in (0, ARM)", MAKERS),
    "a-stage-is-success": Mutant(f"{FAR}/aloha.py", "success = reward == SOLVED", "success = reward >= 3", MAKERS),
    "pictures-for-nobody": Mutant(f"{FAR}/aloha.py", "        self._task.get_observation = self._observe", "        self._observe", MAKERS),
    "the-first-state-each-time": Mutant(f"{FAR}/libero.py", "self.np_random.integers(len(self._states))", "self.np_random.integers(1)", MAKERS),
    "things-fall-in-the-episode": Mutant(f"{FAR}/libero.py", "for _ in range(SETTLE):", "for _ in range(1):", MAKERS),
    "the-quaternion-of-the-maker": Mutant(f"{FAR}/libero.py", "(w, x, y, z), seen", "(x, y, z, w), seen", MAKERS),
    "tasks-that-lack-states": Mutant(f"{FAR}/libero.py", "if i not in lacking", "if True", MAKERS),
    "tasks-count-by-their-episodes": Mutant("robolearn/eval/intervals.py", "sum(one.rate for one in successes) / k", "sum(one.successes for one in successes) / sum(one.episodes for one in successes)", SUITES),
    "all-tasks-err-together": Mutant("robolearn/eval/intervals.py", "math.hypot(*(one.rate - one.low for one in successes))", "sum(one.rate - one.low for one in successes)", SUITES),
    "a-suite-is-one-task": Mutant("sim/registry.py", "        if len(tasks := tasks_of(self.task)) > 1:", "        if len(tasks := tasks_of(self.task)) > 99:", SUITES),
    "all-tasks-in-one-folder": Mutant("robolearn/cli/suite.py", "{key: path / name for", "{key: path for", SUITES),
    "double-precision-is-not-said": Mutant(f"{FAR}/features.py", "if leaf.dtype not in (np.float32, np.uint8)", "if leaf.dtype is None", CHUNKS),
    "pictures-by-the-nearest-pixel": Mutant(f"{FAR}/gym_env.py", "    if edge > cut:", "    if edge != cut:", CHUNKS),
    "experts-beyond-the-bounds": Mutant(f"{FAR}/world.py", "np.clip(np.asarray(self._adapter.demonstrate(), np.float32), -1.0, 1.0)", "np.asarray(self._adapter.demonstrate(), np.float32)", FAMILY),
    "the-expert-of-another-quality": Mutant("sim/experts/__init__.py", "    if quality != EXPERT:", "    if False:", FAMILY),
    "any-version-is-installed": Mutant(f"{BRIDGE}/environment.py", '.get("packages") == list(self.packages)', '.get("packages") is not None', ABSENT),
    "cousins-are-judged-as-the-twin": Mutant("sim/tasks/lift.py", 'pos[:, 2] > state.lying.rest + RAISED', 'pos[:, 2] > HALF + RAISED', COUSINS),
    "cousins-are-let-go-as-the-twin": Mutant("sim/tasks/pick_place.py", "released = state.width > lying.width + LOOSE", "released = state.width > 0.055", COUSINS),
    "all-cousins-lie-as-high-as-the-twin": Mutant(SCENES, "        bodies[self._thing][2] += cousin.half[2] - self._half[2]\n", "", COUSINS),
    "cousins-hang-on-the-number-of-the-world": Mutant(RANGES, '*(key if self.when == "episode" else key[:2])]', '*key]', COUSINS),
    "the-same-cousins-for-all-seeds": Mutant(RANGES, '[STREAM, *(key if self.when == "episode"', '[STREAM, *((0, *key[1:]) if self.when == "episode"', COUSINS),
    "a-capsule-has-no-caps": Mutant(RANGES, "0.4 * r**2 + 0.25 * length**2 + 0.375 * length * r", "0.4 * r**2 + 0.25 * length**2", COUSINS),
    "a-cylinder-is-half-as-high": Mutant(RANGES, "(2.0 * half[2]) ** 2) / 12.0", "half[2] ** 2) / 12.0", COUSINS),
    "a-capsule-stands": Mutant(SCENES, 'LYING if cousin.shape == "capsule" else UPRIGHT', "UPRIGHT", COUSINS),
    "clutter-in-the-way-of-the-hand": Mutant(SCENES, "if (free := np.flatnonzero(gaps > APART)).size:", "if (free := np.flatnonzero(gaps > 0.0)).size:", COUSINS),
    "policies-see-the-shape-unasked": Mutant("robolearn/core/specs.py", "hidden = self.privileged if pictures else (COUSIN, DISTRACTOR)", "hidden = self.privileged if pictures else (DISTRACTOR,)", COUSINS),
    "policies-see-the-distractor-unasked": Mutant("robolearn/core/specs.py", "if pictures else (COUSIN, DISTRACTOR)", "if pictures else (COUSIN,)", BESIDE),
    "the-distractor-lies-where-it-lay": Mutant(SECOND, "rng = np.random.default_rng([STREAM, *key])", "rng = np.random.default_rng([STREAM])", BESIDE),
    "the-distractor-is-in-the-way": Mutant(SECOND, "np.flatnonzero(gaps > APART)", "np.flatnonzero(gaps > 0.0)", BESIDE),
    "the-distractor-hangs-in-the-air": Mutant(SECOND, "np.concatenate([[x, y, HALF]", "np.concatenate([[x, y, 2 * HALF]", BESIDE),
    "cousins-beside-a-distractor": Mutant("sim/embedded/build.py", '("--cousins", cousins)', '("--cousins", None)', BESIDE),
    "the-thing-that-is-meant-is-grasped": Mutant("sim/experts/failures.py", "view=replace(m.view, objects=seen)", "view=m.view", BESIDE),
    "all-kinds-without-the-distractor": Mutant("sim/experts/__init__.py", "(DISTRACTOR,) if there and facts.thing else ()", "()", BESIDE),
    "a-distractor-that-is-not-there": Mutant("sim/experts/__init__.py", "elif DISTRACTOR in quality.failures and not there:", "elif False:", BESIDE),
    "any-width-is-gripped": Mutant(RANGES, "if self.width[1] > opens - MARGIN + 1e-9:", "if self.width[1] > opens + 1.0:", COUSINS),
    "pages-show-the-twin": Mutant("sim/embedded/world.py", "*self.physics.positions(world), appearance)", "*self.physics.positions(world))", COUSINS),
    "tall-things-weigh-as-the-twin": Mutant("sim/embedded/physics.py", "own, turns = self.cousins.mass[worlds], self.cousins.inertia[worlds]", "turns = self.cousins.inertia[worlds]", COUSINS),
    "each-worker-counts-its-worlds-from-0": Mutant(f"{BRIDGE}/remote.py", '"start_ids": self._ids[part.rows]', '"start_ids": self._ids[: part.rows.stop - part.rows.start]', SHARES),
    "the-first-episode-once-more": Mutant(f"{BRIDGE}/remote.py", "        self._episode = self._episode + ended\n", "", SHARES),
    "a-new-worker-begins-anew": Mutant(f"{BRIDGE}/remote.py", "                self._repeat(part)\n", "                pass\n", SHARES),
    "an-ended-episode-is-repeated": Mutant(f"{BRIDGE}/memory.py", "            self._items = [items[first:] for", "            self._items = [items[0:] for", AGAIN),
    "actions-that-were-dropped-are-repeated": Mutant(f"{BRIDGE}/memory.py", "chunks[w, : steps[w]].copy()", "chunks[w].copy()", AGAIN),
    "a-snapshot-is-left-with-its-first-episode": Mutant(f"{BRIDGE}/memory.py", "if self._new.all():", "if self._new.any():", AGAIN),
    "last-observations-of-others": Mutant(f"{BRIDGE}/remote.py", "final[key][rows][ended] = found[share.FINAL + key]", "pass", SHARES),
    "a-token-that-is-not-sent": Mutant("robolearn/runs/ray_cluster.py", '.lower() == "token" and (', '.lower() != "disabled" and (', TOKENS),
    "a-busy-cluster-is-asked-once": Mutant("robolearn/runs/ray_cluster.py", "for left in (1, 0):", "for left in (0,):", BUSY),
    "every-address-is-here": Mutant("robolearn/runs/ray_cluster.py", "if not on_this_machine(address) and not has_token():", "if False:", REFUSED),
    "the-first-node-is-filled-first": Mutant(f"{BRIDGE}/hosts.py", "for level in range(max(cpus.values(), default=0)) for node, count in cpus.items() if count > level", "for node, count in cpus.items() for _ in range(count)", SLOTS),
    "pushes-in-workers": Mutant(f"{BRIDGE}/remote.py", '    "pushed": "--push or --adversary",\n', "", ALONE),
    "dead-nodes-have-workers": Mutant(f"{BRIDGE}/hosts.py", ' if node["Alive"]}', "}", SLOTS),
    "rivals-sample-on-another-grid": Mutant(REPAIRS, "tau = torch.full((rows,), k / steps", "tau = torch.full((rows,), k / (steps - 1)", GRID),
    "rivals-old-actions-by-other-probabilities": Mutant(REPAIRS, "found.append(self.get_logprobs(cond, chains, **likelihood)[0])", "found.append(self.get_logprobs(cond, chains.roll(1, 0), **likelihood)[0])", GRID),
    "rivals-use-their-noise-up": Mutant(REPAIRS, "x = x + self(x, torch.full(shape[:1]", "x += self(x, torch.full(shape[:1]", APART),
    "rivals-values-ahead-undiscounted": Mutant(REPAIRS, "agents[0].gamma * ahead", "ahead", CLOCK),
    "rivals-values-after-the-reset": Mutant("robolearn/bench/rivals/far/worlds.py", 'found["final"][world])', 'found["state"][world])', CLOCK),
    "rivals-advantages-reach-into-the-next-episode": Mutant("robolearn/bench/rivals/far/worlds.py", "terminated = terminated | truncated", "pass", CLOCK),
    "rivals-actions-of-another-size": Mutant("robolearn/bench/rivals/process.py", "(scaled + 1) / 2 * (self.most", "(scaled + 1) * (self.most", SCALED),
    "rivals-worlds-begin-nowhere": Mutant(FAR_RUN, "agent.reset_at_iteration, agent.reset_env_all = True, once", "agent.reset_env_all = once", BEGUN),
    "rivals-worlds-begin-in-every-rollout": Mutant(FAR_RUN, "agent.reset_at_iteration, agent.reset_env_all = False, reset", "agent.reset_env_all = reset", BEGUN),
    "rivals-rollouts-are-always-whole-episodes": Mutant(FAR_RUN, "if resets else 1", "if True else 1", WHOLE),
    "rivals-too-few-taken-for-too-many": Mutant("robolearn/cli/rival_cells.py", "(number, many) if rate < low", "(number, many) if rate > low", FEW),
    "isaac-labs-quaternions-are-ours": Mutant(ISAAC, "pose[:, [4, 5, 6, 3]]", "pose[:, 3:]", TURNED),
    "isaac-labs-quaternions-are-read-as-ours": Mutant(ISAAC, "quat[:, [3, 0, 1, 2]]", "quat", TURNED),
    "spins-in-the-frame-of-the-thing": Mutant(ISAAC, "rotate(quat, twist[:, 3:])", "twist[:, 3:]", TURNED),
    "spins-are-turned-the-wrong-way": Mutant(ISAAC, "[-1.0, -1.0, -1.0, 1.0]", "[1.0, 1.0, 1.0, 1.0]", TURNED),
    "the-place-of-a-world-is-the-things": Mutant(ISAAC, "pose[:, :3] - self._origins", "pose[:, :3]", TURNED),
    "joints-in-isaac-labs-order": Mutant(ISAAC, "[robot.joint_names.index(name) for name in joints]", "[*range(len(joints))]", TURNED),
    "any-isaac-lab-will-do": Mutant(f"{FAR}/isaaclab.py", 'if found.partition(".")[0] != MAJOR:', "if False:", NAMED),
    "a-gpu-is-taken-for-granted": Mutant(f"{FAR}/isaaclab.py", 'wanted == "cuda" and not there', "False", DEVICES),
    "worlds-that-rest-move": Mutant("sim/bridge/far/stepped.py", "            self._engine.put(rest, held[0][rest], held[1][rest])\n", "            pass\n", RESTS),
    "episodes-begin-where-the-last-ended": Mutant("sim/adapters/isaaclab.py", "            self.pool.reset(begin=True)\n", "            pass\n", SOLVED),
    "grippers-never-hear-of-a-delay": Mutant("sim/adapters/isaaclab.py", "        self._ctrl[rows] = control[:, -1]\n", "", MOVES),
    "the-end-of-an-episode-is-the-next-ones-start": Mutant("sim/embedded/world.py", "        observation = {key: value.copy() for key, value in observation.items()}\n", "", SOLVED),
    "half-as-high-is-lifted": Mutant("sim/tasks/lift.py", "RAISED = 0.06", "RAISED = 0.03", SOLVED),
    "servos-without-damping": Mutant("sim/adapters/isaaclab.py", "-float(servo.biasprm[2])", "0.0", PIECES),
    "targets-are-things": Mutant("sim/adapters/isaaclab.py", "if body.joints]", "]", PIECES),
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(kill_replacements("worlds in processes", MUTANTS))
