"""Mutation check of the loop with a human in it: with any one line of it wrong, a test that is named here must fail.

Every mutant is a replacement of source text, made in a temporary copy of the checkout.
"""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

HIL, WIRE = "robolearn/hil", "robolearn/io/wire"
EXPERIENCE, RUNNER = "robolearn/rl/experience.py", "robolearn/rl/replay_runner.py"
OFFLINE = "robolearn/rl/offline_runner.py"
REPLAY = ("tests/rl/test_replay_runner.py",)
PAID = "robolearn/rl/off_policy_settings.py"
LOOP_FILE, LINK_FILE, AGENT_FILE = (f"tests/hil/test_hil_{name}.py" for name in ("loop", "link", "agent"))
AGENT, LEARNER, DOOR = (AGENT_FILE,), ("tests/hil/test_hil_learner.py",), ("tests/hil/test_hil_wire.py",)
RECORDS = (f"{LOOP_FILE}::test_records_are_what_was_executed_and_seen",)
SAME = (f"{LOOP_FILE}::test_in_lockstep_one_seed_gives_one_run",)
STOPPED = (f"{LOOP_FILE}::test_a_run_that_was_stopped_goes_on_as_if_it_had_not_been",)
OTHERWISE = (f"{LOOP_FILE}::test_an_episode_that_comes_out_otherwise_stays_cut",)
NEWEST = (f"{LOOP_FILE}::test_the_actor_acts_by_the_learner_s_last_weights",)
STARTS = (f"{LOOP_FILE}::test_each_episode_has_a_start_of_its_own",)
LARGER = (f"{LOOP_FILE}::test_a_finished_run_goes_on_with_a_larger_budget",)
BOTH = (f"{LOOP_FILE}::test_interventions_are_in_both_buffers",)
ALONE = (f"{LOOP_FILE}::test_lockstep_takes_one_actor_alone",)
LABELS = (f"{AGENT_FILE}::test_a_person_s_labels_end_episodes",)
REFUSED = (f"{LINK_FILE}::test_records_that_are_none_are_refused_and_nothing_is_stored",)
TOLD = (f"{LINK_FILE}::test_who_does_not_belong_is_told_why",)
SECOND = (f"{LINK_FILE}::test_a_second_process_by_one_name_ends_the_first",)
FULL = (f"{LINK_FILE}::test_a_full_disk_stops_the_learner_and_leaves_a_whole_log",)
CURRICULUM, WATCHED = ("tests/hil/test_hil_curriculum.py",), ("tests/hil/test_hil_watched.py",)
HAND, STATION = ("tests/hil/test_hil_hand.py",), ("tests/hil/test_hil_station.py",)
PAD = ("tests/hardware/teleop/test_teleop_gamepad.py",)
KEY = (f"{AGENT_FILE}::test_with_a_key_alone_the_world_s_word_is_no_end",)
REWARDS = (
    "tests/rewards/test_rewards.py",
    f"{LOOP_FILE}::test_a_model_s_score_is_what_is_learned_from",
    f"{LOOP_FILE}::test_what_was_shown_is_scored_too",
)
GONE = (
    "tests/hil/test_hil_learner.py::test_a_dead_actor_s_episode_is_cut_after_a_while",
    "tests/hil/test_hil_learner.py::test_in_lockstep_an_actor_is_waited_for_however_long_it_takes",
)
SETS = (f"{LINK_FILE}::test_weights_are_loaded_beside_those_in_use",)

SCORES, RULE = "robolearn/rewards/scoring.py", "robolearn/rewards/done.py"
ONLINE, VERDICTS = "robolearn/rewards/online.py", ("tests/rewards/test_online.py", "tests/hil/test_hil_online.py")
SCORING, SCORED = f"{HIL}/scoring.py", ("tests/hil/test_hil_scoring.py",)

DOUBT = ("tests/hil/test_hil_doubt.py",)
SEES = ("tests/rl/test_rl_off_policy_sees.py",)

OBJECTIVE = ("tests/rewards/test_pairs.py",)

TEMPO, QUICKER = "policies/wrappers/wrapper.py", ("tests/policies/test_tempo.py",)

HELP = ("tests/hil/test_hil_help.py",)
SPOT, SPOTTED = f"{HIL}/spot_labels.py", ("tests/hil/test_hil_spot_labels.py",)

WORDS = "tests/hil/test_hil_words.py"
ONE_SENTENCE = (f"{WORDS}::test_words_come_before_those_of_demonstrations_and_those_before_the_world_s",)
NO_SENTENCE = (f"{WORDS}::test_without_one_sentence_there_is_none",)
STARTED = (f"{WORDS}::test_learner_and_actor_are_started_with_one_sentence",)
SENT = (f"{WORDS}::test_an_actor_sends_the_words_that_its_policy_was_told",)
TASKS = f"{HIL}/task_words.py"
COMMANDS = "robolearn/cli/hil/commands.py"

MUTANTS: dict[str, Mutant] = {
    "an-actor-of-any-words": Mutant(
        f"{HIL}/learner_service.py", "if words and request.task != words:", "if words and not request.task:",
        (f"{WORDS}::test_an_actor_with_other_words_is_refused_by_the_wire",),
    ),
    "an-actor-that-sends-other-words-than-its-policy-s": Mutant(
        COMMANDS, "acting = replace(self, words=told(base) or self.words)", "acting = self", SENT
    ),
    "an-actor-without-its-words": Mutant(
        COMMANDS, "return world.words or task_of(WorldConfig(world.task))", "return task_of(WorldConfig(world.task))", SENT
    ),
    "a-learner-is-told-no-words": Mutant(COMMANDS, "learner = replace(self, words=sentence)", "learner = self", STARTED),
    "an-actor-is-told-no-words": Mutant(
        COMMANDS, "actor = replace(self, words=sentence or self.words)", "actor = self", STARTED
    ),
    "a-run-of-any-words": Mutant(
        f"{HIL}/learner_process.py", '**({"words": words} if (words := words_of(base)) else {}),', "",
        (f"{WORDS}::test_a_run_is_of_its_words",),
    ),
    "demonstrations-say-more-than-words": Mutant(
        TASKS, "if words.strip():", "if words.strip() and demos is None:", ONE_SENTENCE
    ),
    "the-world-says-more-than-demonstrations": Mutant(
        TASKS, "found := said[0] if said else otherwise()", "found := otherwise() or said[0]", ONE_SENTENCE
    ),
    "one-of-several-tasks": Mutant(TASKS, "if len(said) > 1:", "if len(said) > 2:", NO_SENTENCE),
    "words-that-nobody-reads": Mutant(TASKS, "if words and not taken:", "if False:", NO_SENTENCE),
    "stalls-by-any-gain": Mutant(ONLINE, ">= self._best + GAIN", ">= self._best", HELP),
    "stalls-by-what-comes-back": Mutant(
        ONLINE, "self._best = self._best if score is None else float(score.progress[-1])", "pass", HELP
    ),
    "stalls-by-the-episode-before": Mutant(ONLINE, "            self._best = 0.0\n            self._risen = self._known = self._fallen = 0\n", "", HELP),
    "spot-labels-of-everything": Mutant(SPOT, "if self._rng.random() >= self._share:", "if not self._share:", SPOTTED),
    "spot-labels-forgotten-on-a-restart": Mutant(SPOT, "        if self._path.exists():\n", "        if False:\n", SPOTTED),
    "spot-labels-of-all-time": Mutant(SPOT, "self._labels[-self._config.audit_window :]", "self._labels", SPOTTED),
    "spot-labels-by-the-model-alone": Mutant(SPOT, "self._labels.append((self._called, solved))", "self._labels.append((self._called, self._called))", SPOTTED),
    "spot-labels-that-nothing-waits-for": Mutant(f"{HIL}/arm_recording.py", "elif EpisodeCommand.BEGIN in commands and self._question:", "elif False:", SPOTTED),
    "spot-labels-by-a-key-of-before": Mutant(f"{HIL}/arm_recording.py", "by_key = not (self._called or verdict.truncated)", "by_key = not verdict.truncated", SPOTTED),
    "spot-labels-that-end-nothing": Mutant(f"{HIL}/arm_recording.py", "            self.fail(RobolearnError(f\"{reason}; the run ends here\"))", "            pass", SPOTTED),
    "falls-by-one-verdict": Mutant(ONLINE, "if self._fallen >= self._rule.frames else", "if self._fallen else", HELP),
    "falls-though-it-came-back": Mutant(ONLINE, "self._fallen + 1 if 0 < self._loss <= lost else 0", "self._fallen + (0 < self._loss <= lost)", HELP),
    "falls-where-nobody-asks": Mutant(ONLINE, "if 0 < self._loss <= lost else", "if self._loss <= lost else", HELP),
    "falls-from-nothing": Mutant(ONLINE, "self._best - float(score.progress[-1])", "1.0 - float(score.progress[-1])", HELP),
    "helps-by-the-clock-too": Mutant(f"{HIL}/curriculum.py", " and not self._config.by_progress", "", HELP),
    "helps-where-nobody-asks": Mutant(ONLINE, "if 0 < self._patience <=", "if self._patience <=", HELP),
    "tempo-stretches-the-gripper": Mutant(
        TEMPO, "np.where(self._displaced, np.clip(self.factor * chunk, -1.0, 1.0), chunk)",
        "np.clip(self.factor * chunk, -1.0, 1.0)", QUICKER,
    ),
    "tempo-leaves-the-range": Mutant(TEMPO, "np.clip(self.factor * chunk, -1.0, 1.0)", "self.factor * chunk", QUICKER),
    "unplugged-and-the-policy-goes-on": Mutant(
        f"{HIL}/device_operator.py", "lost = slipped or bool(self._gone)", "lost = slipped", HAND
    ),
    "start-without-a-device": Mutant(
        f"{HIL}/device_operator.py", "EpisodeEvent.START in events and not self._gone:", "EpisodeEvent.START in events:", HAND
    ),
    "unplugged-pads-hand-back": Mutant(
        "hardware/teleop/gamepad.py", "released=None if held else alive", "released=None if held else True", PAD
    ),
    "untouched-pads-are-silent": Mutant(
        "hardware/teleop/gamepad.py", "self._watchdog.clock() if alive and not held else self._watchdog.newest",
        "self._watchdog.newest", PAD,
    ),
    "devices-come-back-in-mid-motion": Mutant(
        "hardware/teleop/wrapped.py", "elif self._waits and now", "elif now", ("tests/hardware/teleop/test_reconnecting.py",)
    ),
    "nobody-is-awaited": Mutant(
        "robolearn/hil/learner.py", "len(beats) >= self._awaited and ", "",
        ("tests/hil/test_hil_learner.py",),
    ),
    "record-leaves-a-dead-device": Mutant(
        "robolearn/cli/record.py", "viewed(reconnecting(device, own), own", "viewed(device, own",
        ("tests/cli/test_record_devices.py",),
    ),
    "leader-s-thread-is-not-waited-for": Mutant(
        "hardware/teleop/leader.py", "self._thread.join(5 * READ_S)", "pass",
        ("tests/hardware/teleop/test_teleop_leader.py",),
    ),
    "start-without-its-device": Mutant(
        "hardware/teleop/wrapped.py", " if event is not EpisodeEvent.START", "",
        ("tests/hardware/teleop/test_reconnecting.py",),
    ),
    "one-camera-for-all": Mutant(
        "policies/policy.py", "self.encoder.encode_picture(key, ", "self.encoder.encode_picture(self._pictures[0], ", SEES
    ),
    "pictures-are-kept": Mutant("robolearn/rl/algorithms/off_policy.py", "if not is_image(spec)}", "}", SEES),
    "doubt-ties-in-order": Mutant(f"{HIL}/evaluation.py", "rankdata(uncertainty)", "rankdata(uncertainty, method='ordinal')", DOUBT),
    "doubt-every-failure-whenever": Mutant(f"{HIL}/evaluation.py", " <= within)", " <= 10**9)", DOUBT),
    "doubt-of-successes": Mutant(f"{HIL}/evaluation.py", "~turn.solved[over]", "turn.solved[over]", DOUBT),
    "doubt-is-not-said": Mutant(f"{HIL}/operator_console.py", "asks_help=status.asks_help", "asks_help=False", DOUBT),
    "doubt-of-the-set-before": Mutant(f"{HIL}/agent.py", "self.uncertain = self._used.unsure", "pass", DOUBT),
    "chunk-goes-on-after-a-take-over": Mutant(
        f"{HIL}/agent.py", "self._chunks.drop(worlds)", "pass", AGENT
    ),
    "chunk-of-the-episode-before": Mutant(
        f"{HIL}/agent.py", "self._chunks.drop(np.ones(1, np.bool_))", "pass", STOPPED
    ),
    "intervention-not-marked": Mutant(
        f"{HIL}/agent.py", '"intervention": self._steering', '"intervention": False', AGENT,
    ),
    "observation-not-copied": Mutant(f"{HIL}/agent.py", "np.array(value) for key", "value for key", AGENT),
    "policy-s-action-in-place-of-the-operator-s": Mutant(
        f"{HIL}/agent.py", "action = commanded[0] if self._steering else None", "action = None", AGENT
    ),
    "action-beyond-one": Mutant(f"{HIL}/agent.py", "np.clip(action, -1.0, 1.0)", "action", AGENT),
    "time-limit-is-an-end": Mutant(f"{HIL}/actor.py", "ended = labelled or terminated", "ended = True", RECORDS),
    "failure-is-a-success": Mutant(
        f"{HIL}/actor.py", 'success = label == "success" if labelled', 'success = labelled if labelled', LABELS
    ),
    "spool-not-compared": Mutant(
        f"{HIL}/actor.py", "if self._outbox.encode(record) != self._outbox.raw(number):", "if False:", OTHERWISE
    ),
    "one-start-for-all-episodes": Mutant(
        f"{HIL}/actor.py", "self._engine.reset(seeds[0])", "self._engine.reset(0)",
        STARTS,
    ),
    "noise-goes-on-from-episode-to-episode": Mutant(f"{HIL}/actor.py", "self._buffered.seed(seeds[1])", "pass", STOPPED),
    "weights-stay-in-lockstep": Mutant(
        f"{HIL}/actor.py", "if self._lockstep:\n            self._buffered.swap()", "if False:\n            pass", NEWEST
    ),
    "acknowledged-before-the-disk": Mutant(f"{HIL}/transition_receiver.py", "log.log.append(content)", "pass", REFUSED),
    "records-that-are-known-come-again": Mutant(
        f"{HIL}/transition_receiver.py", "contents[log.count - first :]", "contents", REFUSED
    ),
    "gaps-are-taken": Mutant(f"{HIL}/transition_receiver.py", "if not 0 <= first <= log.count:", "if False:", REFUSED),
    "order-not-looked-at": Mutant(f"{HIL}/transition_receiver.py", "if begins or goes_on:", "if True:", REFUSED),
    "old-sessions-go-on": Mutant(f"{HIL}/transition_receiver.py", "log.ended.add(log.session)", "pass", SECOND),
    "queue-without-end": Mutant(f"{HIL}/transition_receiver.py", "max(QUEUED_BYTES, self._schema.limit)", "1e18", LEARNER),
    "two-actors-in-lockstep": Mutant(f"{HIL}/transition_receiver.py", "if self._single and self.actors:", "if False:", ALONE),
    "full-disk-goes-on": Mutant(f"{HIL}/transition_receiver.py", "self.failure = error", "pass", FULL),
    "interventions-are-not-shown": Mutant(
        EXPERIENCE, "if scored.intervention.any():", "if False:", BOTH
    ),
    "crash-is-not-cut": Mutant(
        f"{HIL}/experience.py", "if isinstance(record, ReplayStep) and record.index == 0 and assembler.expects[1] > 0:",
        "if False:", LEARNER,
    ),
    "share-of-demonstrations": Mutant(
        EXPERIENCE, "round(config.demo_share * count)", "round((1 - config.demo_share) * count)", LEARNER
    ),
    "ratio-without-warmup": Mutant(
        PAID, "env_steps - self.warmup", "env_steps", LEARNER,
    ),
    "ratio-not-kept": Mutant(
        f"{HIL}/learner.py", "self.updates < self.allowed", "self.updates <= self.allowed", LEARNER,
    ),
    "draws-not-restored": Mutant(f"{HIL}/learner.py", 'self.draws.set_state(tensors["draws"])', "pass", STOPPED),
    "networks-not-restored": Mutant(
        f"{HIL}/learner.py", 'self.algorithm.load_state(tensors, meta["algorithm"])', "pass", STOPPED
    ),
    "cut-episodes-not-rebuilt": Mutant(f"{HIL}/learner.py", "        if cut:\n", "        if False:\n", LEARNER),
    "tail-of-the-log-forgotten": Mutant(
        f"{HIL}/learner.py", "self._waiting.extend(", "tuple(", LEARNER
    ),
    "records-before-updates-in-lockstep": Mutant(
        f"{HIL}/learner.py", "if self._lockstep and self.due:\n            self._update()",
        "if False:\n            self._update()", LEARNER,
    ),
    "published-in-the-middle-of-an-episode-s-updates": Mutant(
        f"{HIL}/learner.py", "if self._lockstep and (self.due or self.finished):", "if False:", STOPPED
    ),
    "nothing-shown-after-a-resumption": Mutant(
        f"{HIL}/learner.py", "self.publish()\n        self._show()\n", "self.publish()\n", LARGER
    ),
    "success-with-help-counts": Mutant(
        f"{HIL}/learner.py", "if not o.interventions and not o.cut and", "if not o.cut and", LEARNER,
    ),
    "spool-of-another-run": Mutant(f"{HIL}/link.py", 'self._outbox.belongs_to(reply.run)', "pass", TOLD),
    "weights-loaded-over-those-in-use": Mutant(
        f"{HIL}/agent.py", "self._spare.load_acting(", "self._used.load_acting(", SETS,
    ),
    "control-loop-waits-for-weights": Mutant(
        f"{HIL}/agent.py", "not self._lock.acquire(blocking=False)", "not self._lock.acquire(timeout=2)", SETS
    ),
    "hurried-after-a-delay": Mutant(f"{HIL}/actor.py", "self._next = now + self._period_s", "pass", LEARNER),
    "any-token": Mutant(f"{WIRE}/server.py", "if not hmac.compare_digest(given, self._header):", "if False:", DOOR),
    "no-limit-of-a-method": Mutant(f"{WIRE}/server.py", "if len(content) > handler.limit:", "if False:", DOOR),
    "door-beyond-loopback": Mutant(
        f"{WIRE}/server.py", "check_encryption(address, certificates)\n        self.refusals", "self.refusals", DOOR,
    ),
    "caller-without-certificate": Mutant(
        f"{WIRE}/security.py", "require_client_auth=True", "require_client_auth=False", DOOR,
    ),
    "NaN-passes": Mutant(
        f"{WIRE}/protocol.py", 'words.endswith("double") and not math.isfinite(', 'False and not math.isfinite(', DOOR,
    ),
    "missing-fields-pass": Mutant(
        f"{WIRE}/protocol.py", 'if " " not in words and not message.HasField(field):', "if False:", DOOR,
    ),
    "NaN-weights": Mutant(
        f"{HIL}/wire/messages.py", 'if value.dtype.kind == "f" and not np.isfinite(value).all():', "if False:", DOOR,
    ),
    "each-refusal-is-said": Mutant(f"{WIRE}/server.py", "if now - self._last < self._every_s:", "if False:", DOOR),
    "another-interface": Mutant(
        f"{HIL}/learner_service.py", '"interface": interface, "policy": policy}', '"policy": policy}', TOLD,
    ),
    "curriculum-what-an-operator-did-alone-comes-again": Mutant(
        f"{HIL}/curriculum.py", "if self._alone and (self._helped", "if (self._helped", CURRICULUM
    ),
    "curriculum-what-was-helped-does-not-come-again": Mutant(
        f"{HIL}/curriculum.py", "(self._helped or not record.success)", "(not record.success)", CURRICULUM
    ),
    "curriculum-free-for-ever": Mutant(
        f"{HIL}/curriculum.py", "max(0.0, 1.0 - self._steps / self._config.free_steps)", "1.0", CURRICULUM
    ),
    "curriculum-a-second-failure-is-of-another-start": Mutant(
        f"{HIL}/curriculum.py", "append(self._starts)", "append(record.episode)", CURRICULUM
    ),
    "curriculum-forgets-at-a-restart": Mutant(
        f"{HIL}/curriculum.py", "                self.begin(record.episode)\n", "                pass\n", CURRICULUM
    ),
    "hand-begins-with-what-the-stick-says": Mutant(
        "hardware/teleop/supervised.py", "if not taken or kept.action is None:", "if True:", HAND
    ),
    "hand-opens-the-gripper": Mutant(
        "hardware/teleop/supervised.py", "action[self._grippers] = np.where(np.isnan(self._found), asked, self._grip)\n", "pass\n", HAND
    ),
    "hand-lost-hands-to-the-policy": Mutant(
        f"{HIL}/device_operator.py", 'return [*commands, OperatorCommand.RETURN]', "return commands", HAND
    ),
    "hand-does-not-wait-for-start": Mutant(
        f"{HIL}/device_operator.py", "self._waits = True  # for START", "self._waits = False", HAND
    ),
    "page-does-not-hold-the-hand": Mutant(f"{HIL}/device_operator.py", "self._held = command == OperatorCommand.TAKE_OVER", "pass", HAND),
    "clutch-without-hysteresis": Mutant("hardware/teleop/wrapped.py", "engaged = now - self._moved_at < self._rest_s",
        "engaged = self._device.moving", HAND),
    "clutch-of-a-device-that-is-gone-was-let-go": Mutant(
        "hardware/teleop/wrapped.py", "return replace(theirs, released=False)",
        "return replace(theirs, released=True)", HAND,
    ),
    "arm-policy-moves-while-the-arm-is-placed": Mutant(
        "hardware/teleop/teleoperation.py", "(not sample.automatic or", "(True or", STATION
    ),
    "arm-final-observation-is-the-last-step-s": Mutant(
        f"{HIL}/arm_recording.py", "if len(self._rows) > 1:\n            self._step(float(success))",
        "self._step(float(success))", STATION,
    ),
    "arm-success-earns-nothing": Mutant(f"{HIL}/arm_recording.py", "self._step(float(success))", "self._step(0.0)", STATION),
    "arm-a-stop-is-a-failure": Mutant(
        f"{HIL}/arm_recording.py", "        self._rows, self._episode = [], self._episode + bool(self._index)\n",
        "        self.end(success=False, truncated=True)\n", STATION,
    ),
    "arm-goes-on-without-a-learner": Mutant(
        f"{HIL}/arm_recording.py", "elif self.episodes.phase is Phase.RECORDING and not self._link.alive:",
        "elif False:", STATION,
    ),
    "arm-begins-without-a-learner": Mutant(
        f"{HIL}/arm_recording.py", "if EpisodeCommand.BEGIN in commands and not self._link.alive:", "if False:", STATION
    ),
    "arm-moves-though-the-page-says-stop": Mutant(
        f"{HIL}/arm_recording.py", "self.do(self.episodes.stopped(STOPPED))", "pass", STATION
    ),
    "arm-an-intervention-is-the-policy-s": Mutant(
        f"{HIL}/arm_recording.py", "ReplayStep(self._episode, self._index, seen, action, reward, intervention, words)",
        "ReplayStep(self._episode, self._index, seen, action, reward, False, words)", STATION,
    ),
    "reward-of-the-world-beside-a-model-s": Mutant(
        "robolearn/rewards/scoring.py", "reward=shaped_rewards(score.progress[:steps], done, gamma=gamma, ended=terminated)",
        "reward=episode.reward[:steps]", REWARDS,
    ),
    "critic-gains-when-it-runs-backwards": Mutant(
        "robolearn/rewards/pairs.py", "np.where(t >= i, c, -c)", "np.where(t >= i, c, c)", OBJECTIVE
    ),
    "critic-without-reversed-clips": Mutant(
        "robolearn/rewards/pairs.py", "        if turned:\n            i, t = t, i\n", "", OBJECTIVE
    ),
    "critic-without-failures": Mutant(
        "robolearn/rewards/pairs.py", "turned, still, wrong, failed = (round(share * batch) for share in shares)",
        "turned, still, wrong, failed = (*(round(share * batch) for share in shares[:3]), 0)", OBJECTIVE,
    ),
    "critic-believes-failures": Mutant(
        "robolearn/rewards/training.py", "torch.where(bound, (c - target).clamp_min(0.0), c - target)",
        "torch.where(bound, 0 * c, c - target)", OBJECTIVE,
    ),
    "critic-is-read-by-its-best-member": Mutant(
        "robolearn/rewards/critic.py", "torch.stack(values).amin(0)", "torch.stack(values).amax(0)",
        ("tests/rewards/test_critic.py::test_the_worst_member_is_read",),
    ),
    "critic-scores-against-another-episode": Mutant(
        "robolearn/rl/model_reward.py", "self._running[world] = not bool(batch.ended[at[-1]])",
        "self._running[world] = True", ("tests/rl/test_rl_model_reward.py",),
    ),
    "potential-goes-on-after-the-end": Mutant(
        "robolearn/rl/model_reward.py", "ended=bool(terminated[rows[-1]])", "ended=False",
        ("tests/rl/test_rl_model_reward.py",),
    ),
    "potential-does-not-telescope": Mutant(
        "robolearn/rewards/shaping.py", '(gamma if kind == "shaped" else 1.0)', "1.0", OBJECTIVE
    ),
    "reward-goes-on-after-the-task-is-solved": Mutant(
        "robolearn/rewards/scoring.py", "len(episode) if end is None else end", "len(episode)", REWARDS
    ),
    "reward-of-demonstrations-is-left": Mutant(
        EXPERIENCE, "self.demonstrations.add(self._algorithm.keep(scored))", "self.demonstrations.add(self._algorithm.keep(episode))",
        REWARDS,
    ),
    "reward-comes-too-late": Mutant(
        EXPERIENCE, "kept = self._algorithm.keep(scored)", "kept = self._algorithm.keep(episode)", REPLAY
    ),
    "worlds-learn-from-what-is-withheld": Mutant(
        EXPERIENCE, "        if scored is None:\n            return None\n", "        scored = scored or episode\n", REPLAY
    ),
    "demonstrations-are-scored-again": Mutant(
        OFFLINE, "        if model is None:\n            self.show()\n", "        self.show()\n", REPLAY
    ),
    "score-is-made-twice": Mutant(SCORING, "job.result = self._scores.find(job.key, self._name)", "pass", SCORED),
    "score-is-not-stored": Mutant(SCORING, "self._scores.append(stored)", "pass", SCORED),
    "score-of-another-episode": Mutant(
        SCORING, "return job.closed, job.result", "return job.closed, (self._pending or [job])[-1].result or job.result",
        SCORED,
    ),
    "withheld-is-learned-from": Mutant(
        f"{HIL}/experience.py", "        if withheld:\n            self.withheld_steps += len(episode)\n        else:\n"
        "            self.add(episode)\n", "        self.add(episode)\n", SCORED,
    ),
    "deadly-model-is-asked-for-ever": Mutant(SCORING, "if before >= DEATHS else None", "if False else None", SCORED),
    "hanging-model-is-waited-for": Mutant(SCORING, "if now - job.first_at > self._timeout_s:", "if False:", SCORED),
    "late-score-overrides-what-was-withheld": Mutant(
        SCORING, "if job.result is not None or self._closed", "if self._closed", SCORED
    ),
    "lockstep-does-not-await-the-score": Mutant(
        f"{HIL}/learner.py", "(self._scoring.busy if self._lockstep else self._scoring.full)", "self._scoring.full", SCORED
    ),
    "late-model-holds-the-records": Mutant(
        f"{HIL}/learner.py", "(self._scoring.busy if self._lockstep else self._scoring.full)", "self._scoring.busy", SCORED
    ),
    "done-takes-one-verdict-more": Mutant(RULE, ">= self.frames", "> self.frames", VERDICTS),
    "done-takes-one-verdict-less": Mutant(RULE, ">= self.frames", ">= self.frames - 1", VERDICTS),
    "done-need-not-be-in-a-row": Mutant(RULE, "if sure else 0", "if sure else in_a_row", VERDICTS),
    "late-verdict-is-for-the-next-episode": Mutant(ONLINE, "if episode == self._episode:", "if True:", VERDICTS),
    "done-is-counted-over-episodes": Mutant(
        ONLINE, "self._found, self._solved = [], False", "self._solved = False", VERDICTS
    ),
    "control-waits-for-the-verdict": Mutant(ONLINE, "if self._waits and self._steps", "if self._steps", VERDICTS),
    "one-of-the-models-is-enough": Mutant(
        SCORES, "np.logical_and.reduce([score.done", "np.logical_or.reduce([score.done", VERDICTS
    ),
    "check-is-surer-than-it-says": Mutant(SCORES, "np.minimum.reduce([score", "np.maximum.reduce([score", VERDICTS),
    "done-without-confidence": Mutant(RULE, "score.done & (score.confidence >= self.threshold)", "score.done", VERDICTS),
    "learner-takes-the-first-sure-frame": Mutant(
        RULE, "self.first(sure[self.every - 1 :: self.every])", "DoneRule().first(sure[self.every - 1 :: self.every])",
        VERDICTS,
    ),
    "learner-judges-every-frame": Mutant(RULE, "sure[self.every - 1 :: self.every]", "sure", VERDICTS),
    "learner-scores-without-its-check": Mutant(
        f"{HIL}/learner_process.py", "found[0] if len(found) == 1 else Agreed(found)", "found[0]", VERDICTS
    ),
    "last-frame-is-enough-for-anybody": Mutant(RULE, "if called and sure[-1]", "if sure[-1]", VERDICTS),
    "solved-end-is-never-believed": Mutant(RULE, "if called and sure[-1]", "if False", VERDICTS),
    "model-overrules-the-person": Mutant(
        f"{HIL}/actor.py", "self._agent.label or self._verdict(turn)", "self._verdict(turn) or self._agent.label", VERDICTS
    ),
    "model-ends-the-next-episode-on-the-arm": Mutant(
        f"{HIL}/arm_recording.py", "            self._commanded, self._called = None, False\n        super().do(commands)",
        "            self._called = False\n        super().do(commands)", STATION,
    ),
    "model-ends-nothing-on-the-arm": Mutant(
        f"{HIL}/arm_recording.py", "if recording and (by_task or by_model):", "if recording and by_task:", STATION
    ),
    "words-are-the-learner-s": Mutant(SCORING, "episode.task or self._words", "self._words", SCORED),
    "cut-episode-has-no-words": Mutant(
        "robolearn/data/replay/records.py", "end.success, steps[0].task", "end.success, \"\"", SCORED
    ),
    "reward-by-key-ends-with-the-world": Mutant(
        f"{HIL}/actor.py", "by_task and bool(turn.terminated[0])", "bool(turn.terminated[0])", KEY
    ),
    "dead-actor-is-waited-for": Mutant(
        f"{HIL}/learner.py", "for closed in self.experience.cut(actor):", "for closed in ():", GONE
    ),
    "dead-actor-in-lockstep-is-cut": Mutant(
        f"{HIL}/learner.py", "() if self._lockstep else self.experience.running", "self.experience.running", GONE
    ),
    "dead-actor-s-rest-is-another-episode": Mutant(
        f"{HIL}/experience.py", "if record.episode <= self._over.get(actor, -1):", "if False:", GONE
    ),
    "watched-chunk-goes-on-after-help": Mutant(
        f"{HIL}/evaluation.py", "self._chunks.drop(steers)", "pass", WATCHED
    ),
    "worlds-end-with-what-comes-next": Mutant(
        RUNNER, "final = {key: np.array(turn.observation[key][w]) for key in seen}", "final = seen", REPLAY
    ),
    "worlds-clock-is-the-task-s-end": Mutant(
        RUNNER, "bool(turn.terminated[w]), bool(turn.solved[w])", "bool(turn.ended[w]), bool(turn.solved[w])", REPLAY
    ),
    "worlds-pay-before-the-warmup": Mutant(
        PAID, "max(env_steps - self.warmup, 0)", "env_steps", REPLAY
    ),
    "worlds-keep-their-chunks-over-a-state": Mutant(
        RUNNER, "        self._agent.drop()\n        with", "        with", REPLAY
    ),
    "worlds-forget-running-episodes": Mutant(
        RUNNER, "            self._episodes.load_state(running)\n", "            pass\n", REPLAY
    ),
    "worlds-draw-anew-after-a-resumption": Mutant(
        OFFLINE, "        self._draws.set_state(tensors[\"draws\"])\n", "", REPLAY
    ),
    "worlds-own-reward-beside-a-model": Mutant(
        OFFLINE, "if self._model is None:\n", "if True:\n", REPLAY
    ),
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(kill_replacements("the loop", MUTANTS))
