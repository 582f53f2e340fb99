"""Mutation check of seeing: cameras, what a policy may see, and distillation to cameras. With any one line of it wrong,
at least one of the tests that are named here must fail.
"""

from __future__ import annotations

import sys

from mutation import Mutant, kill_replacements

ON_POLICY, CRITIC = "robolearn/rl/algorithms/on_policy.py", ("tests/rl/test_rl_asymmetric_critic.py",)
DISTILLER = "robolearn/train/distill.py"
SPEC = "robolearn/core/specs.py"
CAMERAS = ("tests/sim/test_world_cameras.py",)
RANDOMISATIONS = ("tests/sim/test_world_looks.py",)
WORLD, PAINTER = "sim/embedded/world.py", "sim/embedded/painter.py"
APPEARANCE = "sim/embedded/visual_randomisation.py"
PROCESSES = ("tests/sim/test_painter.py",)
SPECS = ("tests/core/test_specs.py",)
IMAGES = ("tests/train/test_imitation_images.py::test_what_the_policy_sees_is_chosen_and_stored",)
DISTILL, DAGGER = ("tests/train/test_distill.py",), "robolearn/rollout/agents.py"
EPISODE, REPLAYED = "policies/storage/episode_policy.py", ("tests/policies/test_episode_policy.py",)
POLICY, HISTORY = "policies/policy.py", ("tests/rollout/test_history.py",)
REGRESSION, ACT = ("tests/policies/test_regression.py",), ("tests/policies/test_act.py",)
TRANSFORMER, WORDS = ("tests/policies/test_transformer.py",), ("tests/policies/test_words.py",)

ENCODERS, CACHE = ("tests/policies/test_encoders.py",), ("tests/train/test_feature_cache.py",)
BACKBONES, AUGMENT = ("tests/policies/test_backbones.py",), ("tests/policies/test_augment.py",)
RL_ENCODERS = ("tests/rl/test_rl_encoders.py",)
SPATIAL, LIBRARIES = "policies/networks/encoder.py", "policies/networks/libraries.py"
FEATURES = "robolearn/train/feature_cache.py"
PIECES = ("tests/train/test_imitation.py",)
BACKENDS = ("tests/policies/test_backends.py",)
RECORDED = tuple(
    f"tests/policies/test_backends.py::test_{name}"
    for name in (
        "a_recording_acts_as_the_policy_to_the_bit", "what_a_recording_would_change_is_not_recorded",
        "on_an_arm_decisions_are_recorded",
    )
)  # fmt: skip
GUIDANCE, HINDSIGHT = ("tests/policies/test_guidance.py",), ("tests/data/test_hindsight.py",)
GOALS, ENDS = ("tests/policies/test_goals.py",), ("tests/rollout/test_goal_states.py",)

MUTANTS: dict[str, Mutant] = {
    "contexts-draw-at-once": Mutant(
        "sim/embedded/painter.py",
        "        with _gl:\n            picture =",
        "        if True:\n            picture =",
        ("tests/sim/test_render_threads.py",),
    ),
    "encoder-batch-norm-follows-the-batch": Mutant(SPATIAL, "        self.backbone.eval()\n", "", RL_ENCODERS),
    "encoder-frozen-is-trained": Mutant(SPATIAL, "torch.is_grad_enabled() and not self.frozen", "True", ENCODERS),
    "encoder-keypoint-of-rows-and-columns-swapped": Mutant(SPATIAL, "    return y, x", "    return x, y", ENCODERS),
    "encoder-pads-on-the-other-side": Mutant(
        "policies/networks/backbones.py",
        "[lacking // 2, lacking - lacking // 2]",
        "[lacking - lacking // 2, lacking // 2]",
        ENCODERS,
    ),
    "encoder-crops-the-corner": Mutant(
        "policies/networks/encoder.py",
        "(height - self.crop) // 2, (width",
        "0 * (height - self.crop), (width",
        ENCODERS,
    ),
    "encoder-of-the-first-camera-for-all": Mutant(
        "policies/networks/encoder.py",
        "SHARED if self.shared else _module_name(of_goal(key))",
        "SHARED if self.shared else next(iter(self.cameras))",
        ENCODERS,
    ),
    "encoder-forgets-the-pretrained-weights": Mutant(
        "policies/registry.py", "    net.encoder.load_pretrained(encoder)\n", "", (*ENCODERS, *BACKBONES)
    ),
    "encoder-unscaled-pictures": Mutant(
        SPATIAL, '(image - self.get_buffer("centre")) / self.get_buffer("scale")', "image", (*ENCODERS, *BACKBONES)
    ),
    "encoder-map-is-turned": Mutant(
        LIBRARIES,
        "places.transpose(1, 2).reshape(len(image), -1, rows, columns)",
        "places.transpose(1, 2).reshape(len(image), -1, rows, columns).mT",
        BACKBONES,
    ),
    "encoder-missing-tensor-stays-random": Mutant(
        LIBRARIES, 'missing = sorted(report["missing_keys"])', "missing = []", BACKBONES
    ),
    "encoder-stranger-names-a-file": Mutant(LIBRARIES, '"checkpoint_path", ', "", BACKBONES),
    "features-of-the-weights-before": Mutant(FEATURES, "        self._ready[:] = False\n", "        pass\n", CACHE),
    "features-are-computed-again": Mutant(FEATURES, "            self._ready[first:end] = True\n", "", CACHE),
    "features-of-another-step": Mutant(
        "robolearn/data/windows.py", "index[:, None] - (frame -", "index[:, None] + 0 * (frame -", CACHE
    ),
    "features-although-pictures-change": Mutant(
        "robolearn/train/imitation.py", " and not self._encoder.augments:", ":", CACHE
    ),
    "augment-draws-from-elsewhere": Mutant(
        "policies/networks/augment.py", "(batch, 1), generator=generator,", "(batch, 1),", (*AUGMENT, *CACHE)
    ),
    "augment-all-alike": Mutant("policies/networks/augment.py", "(batch, 1), generator", "(1, 1), generator", AUGMENT),
    "augment-never": Mutant(
        "robolearn/train/imitation.py", "return augment(observation, ", "return (lambda *a: a[0])(observation, ", CACHE
    ),
    "pieces-draw-their-own-noise": Mutant(
        "robolearn/train/processes.py", "value[piece.to(value.device)]", "value[: len(piece)]", PIECES
    ),
    "pieces-count-alike": Mutant(
        "robolearn/train/processes.py", "whole = weight.sum()", "whole = 4 * weight.shape[0] + 0 * weight.sum()", PIECES
    ),
    "pieces-keep-the-last-gradient-alone": Mutant(
        "robolearn/train/processes.py", "        total.backward()", "        net.zero_grad(); total.backward()", PIECES
    ),
    "shares-are-not-summed": Mutant(
        "robolearn/train/processes.py", "            p.grad = gradient\n", "            pass\n", PIECES
    ),
    "recording-is-not-compared": Mutant(
        "policies/storage/backends.py", ".max()) > 0.0:", ".max()) > np.inf:", RECORDED
    ),
    "recording-leaves-weights-frozen": Mutant(
        "policies/storage/backends.py", "weight.requires_grad_(True)", "pass", RECORDED
    ),
    "no-recording-in-the-policy-node": Mutant(
        "robolearn/deploy/nodes.py", "one = not p.guide", "one = False", ("tests/deploy/test_deployment.py",)
    ),
    "recording-of-what-a-guide-samples": Mutant(
        "robolearn/deploy/nodes.py", "one = not p.guide ", "one = True ", ("tests/deploy/test_deployment.py",)
    ),
    "no-recording-on-an-arm": Mutant(
        "policies/storage/loading.py", "    elif on_arm:\n", "    elif False:\n", RECORDED
    ),
    "backend-is-not-asked": Mutant("policies/policy.py", "if self.backend is not None:\n", "if False:\n", BACKENDS),
    "decision-starts-from-full-noise": Mutant(
        "policies/policy.py", "noise * self.net.initial_noise_std", "noise", BACKENDS
    ),
    "export-is-not-compared": Mutant(
        "policies/storage/onnx_export.py", "if not difference <= limit:", "if False:", BACKENDS
    ),
    "export-names-this-machine": Mutant(
        "policies/storage/onnx_export.py", "        del node.metadata_props[:]\n", "", BACKENDS
    ),
    "cameras-draw-between-decisions": Mutant(
        WORLD, "np.flatnonzero(alive if looking else alive & ended)", "np.flatnonzero(alive)", CAMERAS
    ),
    "cameras-forget-the-final-picture": Mutant(
        WORLD, "np.flatnonzero(alive if looking else alive & ended)", "np.flatnonzero(alive & looking)", CAMERAS
    ),
    "cameras-forget-the-first-picture": Mutant(
        WORLD, "return self._look(observation, ids)", "return observation", CAMERAS
    ),
    "cameras-draw-who-rests": Mutant(
        WORLD, "np.flatnonzero(alive if looking", "np.flatnonzero(np.ones(n, bool) if looking", CAMERAS
    ),
    "cameras-mix-up-worlds": Mutant(PAINTER, "state = canvas.states[w]", "state = canvas.states[0]", CAMERAS),
    "cameras-keep-the-state-of-the-world-before": Mutant(PAINTER, "data.qpos[:] = state[:nq]", "pass", CAMERAS),
    "cameras-all-look-through-one": Mutant(
        PAINTER, "self._context.draw(data, camera, out)", 'self._context.draw(data, "front", out)', CAMERAS
    ),
    "wrist-camera-looks-away": Mutant("robots/panda/panda.xml", "0.94 0 0.34", "0.94 0 -0.34", CAMERAS),
    "looks-draw-from-the-starts": Mutant(
        APPEARANCE, "default_rng([*key, RANDOMISATION_STREAM])", "default_rng()", RANDOMISATIONS
    ),
    "looks-stay-when-the-episode-ends": Mutant(
        APPEARANCE, "if drawn is None or drawn[0] != key:", "if drawn is None:", RANDOMISATIONS
    ),
    "painters-outlive-their-parent": Mutant(
        PAINTER,
        "        if not part:\n            return None",
        "        if not part:\n            continue",
        PROCESSES,
    ),
    "painter-s-death-goes-unseen": Mutant(
        PAINTER, "        if len(head) < _LENGTH.size:", "        if len(head) < 0:", PROCESSES
    ),
    "painters-draw-the-same-share": Mutant(
        PAINTER,
        "shares = np.array_split(np.asarray(rows, np.int64), len(self._children))",
        "return [rows[: len(rows) // 2]] * count",
        PROCESSES,
    ),
    "looks-of-the-world-before": Mutant(
        "sim/embedded/painter.py",
        "appearance is not None and appearance is not self._appearance",
        "self._appearance is None",
        RANDOMISATIONS,
    ),
    "looks-turn-the-task-s-own-things-as-far": Mutant(
        "sim/embedded/visual_randomisation.py",
        "config.objects, config.background)",
        "config.background, config.background)",
        RANDOMISATIONS,
    ),
    "looks-are-not-exposed": Mutant(
        "sim/embedded/visual_randomisation.py", "picture * self.gain + 0.5", "picture + 0.0", RANDOMISATIONS
    ),
    "privileged-is-seen-beside-pictures": Mutant(
        SPEC, "hidden = self.privileged if pictures else (COUSIN, DISTRACTOR)", "hidden = ()", SPECS
    ),
    "privileged-mark-is-not-written": Mutant(
        SPEC, '{"privileged": True} if key in self.privileged', '{"privileged": True} if False', SPECS
    ),
    "privileged-is-let-onto-an-arm": Mutant(
        "policies/storage/loading.py", "if needed.privileged and not simulated and", "if False and", IMAGES
    ),
    "observe-keeps-the-other-pictures": Mutant(
        "robolearn/data/reading/reader.py",
        "self.readers.items() if key in kept",
        "self.readers.items() if True",
        IMAGES,
    ),
    "critic-input-is-not-resumed": Mutant(
        ON_POLICY, "self.critic_input.fitted = True", "self.critic_input.fitted = False", CRITIC
    ),
    "critic-input-follows-every-rollout": Mutant(
        "robolearn/rl/critic.py", "        self.fitted = True", "        self.fitted = False", CRITIC
    ),
    "critic-sees-what-the-policy-sees": Mutant(
        ON_POLICY, "sees = (offered or policy.interface)", "sees = policy.interface if True else (offered)", CRITIC
    ),
    "critic-input-not-centred": Mutant(
        "policies/normalize.py", "dim=0, correction=0)", "dim=0, correction=0)[0], torch.zeros(())", CRITIC
    ),
    "distill-labels-what-was-executed": Mutant(DAGGER, "kept | {LABEL: label}", "kept | {LABEL: chunk}", DISTILL),
    "distill-teacher-always-acts": Mutant(DAGGER, "np.where(by_teacher[:, None, None], chunk, own)", "chunk", DISTILL),
    "distill-beta-the-wrong-way": Mutant(DAGGER, "< self._beta", ">= self._beta", DISTILL),
    "distill-beta-does-not-fall": Mutant(DISTILLER, "self.config.beta**r", "self.config.beta", DISTILL),
    "distill-old-frames-alone": Mutant(
        DISTILLER, "            self.trainer.forget_order()\n        return", "        return", DISTILL
    ),
    "distill-frames-of-another-moment": Mutant(
        DAGGER, "np.array(observation[key])", "np.roll(observation[key], 1, 0)", DISTILL
    ),
    "history-forgets-what-lies-within-a-chunk": Mutant(
        POLICY, "            self._history_with(self._features(observation))", "            pass", HISTORY
    ),
    "history-goes-on-into-the-next-episode": Mutant(
        POLICY, "history[self._fresh] = value[self._fresh, None]", "pass", HISTORY
    ),
    "replay-goes-on-into-the-next-episode": Mutant(EPISODE, "np.where(worlds, 0, self._step)", "self._step", REPLAYED),
    "replay-counts-decisions-not-steps": Mutant(
        EPISODE, "self._step = self._step + 1\n\n    def act", "pass\n\n    def act", REPLAYED
    ),
    "replay-moves-on-after-the-end": Mutant(
        EPISODE, "rest[:, ActionParts.of(interface).displaced] = 0.0", "pass", REPLAYED
    ),
    "history-newest-first": Mutant(POLICY, "(old[:, 1:], value[:, None])", "(value[:, None], old[:, :-1])", HISTORY),
    "history-is-not-asked-for": Mutant(
        POLICY, "self.observes_every_step = self._observe > 1", "self.observes_every_step = False", HISTORY
    ),
    "regression-second-step-without-noise": Mutant(
        "policies/kinds/regression.py",
        "self.predict(action + sigma * noise, 1, cond)",
        "self.predict(action, 1, cond)",
        REGRESSION,
    ),
    "regression-second-step-not-in-its-unit": Mutant("policies/kinds/regression.py", " / sigma**2", "", REGRESSION),
    "regression-acts-in-one-step": Mutant(
        "policies/kinds/regression.py", "range(self.config.steps)", "range(1)", REGRESSION
    ),
    "padding-is-learned-from": Mutant(
        "policies/kinds/chunk_net.py", "return (~is_pad)", "return (is_pad | ~is_pad)", REGRESSION
    ),
    "act-divergence-the-wrong-way": Mutant("policies/kinds/act.py", "kl = -0.5 *", "kl = 0.5 *", ACT),
    "act-style-without-noise": Mutant(
        "policies/kinds/act.py", "(0.5 * log_variance).exp() * noise", "0.0 * noise", ACT
    ),
    "act-attends-to-padding": Mutant(
        "policies/kinds/act.py", "        if is_pad is not None:", "        if False:", ACT
    ),
    "transformer-sees-later-actions": Mutant("policies/networks/field.py", "tgt_mask=later, ", "", TRANSFORMER),
    "transformer-forgets-the-time": Mutant(
        "policies/networks/field.py",
        "self.time(embedding)[:, None]",
        "0.0 * self.time(embedding)[:, None]",
        TRANSFORMER,
    ),
    "words-of-the-frame-before": Mutant(
        "robolearn/data/reading/reader.py", "table[self.task_index]", "table[self.task_index * 0]", WORDS
    ),
    "words-are-standardised": Mutant("policies/normalize.py", "if key == PROMPT:", "if False:", WORDS),
    "words-of-padding-count": Mutant("policies/networks/words.py", "(hidden * weight).sum(1)", "hidden.sum(1)", WORDS),
    "words-are-not-of-length-one": Mutant("policies/networks/words.py", "F.normalize(", "torch.nn.Identity()(", WORDS),
    "words-nobody-hears-are-taken": Mutant(
        "policies/wrappers/prompted.py", "    if sentence:\n        hint", "    if False:\n        hint", WORDS
    ),
    "guidance-the-wrong-way": Mutant(
        "policies/kinds/chunk_net.py", "free + w * (conditional - free)", "free - w * (conditional - free)", GUIDANCE
    ),
    "guidance-from-the-conditional-side": Mutant(
        "policies/kinds/chunk_net.py",
        "free + w * (conditional - free)",
        "conditional + w * (conditional - free)",
        GUIDANCE,
    ),
    "guidance-halves-are-swapped": Mutant(
        "policies/kinds/chunk_net.py", "(goal.without(cond), cond)", "(cond, goal.without(cond))", GUIDANCE
    ),
    "guidance-is-not-in-the-likelihood": Mutant(
        "policies/kinds/flow.py",
        "self.guided(x, self.embed(tau, dtau), cond)",
        "self.velocity(x, tau, cond, dtau)",
        GUIDANCE,
    ),
    "guidance-is-not-in-the-likelihood-of-diffusion": Mutant(
        "policies/kinds/diffusion.py", "self._guided(x, t.to(x.device)", "self.predict(x, t.to(x.device)", GUIDANCE
    ),
    "guidance-takes-the-whole-observation-away": Mutant(
        "policies/networks/encoder.py",
        "torch.full((steps * size,), is_goal(key))",
        "torch.full((steps * size,), True)",
        GUIDANCE,
    ),
    "goals-are-never-dropped": Mutant(
        "policies/kinds/chunk_net.py", 'self.goal.drop(cond, draws["dropped"])', "cond", GUIDANCE
    ),
    "goals-are-dropped-from-the-others": Mutant(
        "policies/kinds/chunk_net.py", "self.mask & dropped[:, None]", "self.mask & ~dropped[:, None]", GUIDANCE
    ),
    "hindsight-of-the-next-episode": Mutant(
        "robolearn/data/windows.py",
        "return index + left",
        "return (index + left + 1).clamp(max=len(self) - 1)",
        HINDSIGHT,
    ),
    "hindsight-is-now": Mutant(
        "robolearn/data/windows.py", "1 + (share * left).long()", "(share * left).long()", HINDSIGHT
    ),
    "hindsight-is-drawn-once": Mutant(
        "robolearn/data/windows.py", "[seed, epoch, STREAM]", "[seed, STREAM]", HINDSIGHT
    ),
    "hindsight-draws-from-elsewhere": Mutant(
        "robolearn/data/windows.py", "default_rng([seed, epoch, STREAM])", "default_rng()", (*HINDSIGHT, *GOALS)
    ),
    "goal-of-the-episode-before": Mutant(
        "policies/wrappers/prompted.py", "            self._goals.begin(worlds)\n", "            pass\n", GOALS
    ),
    "goal-goes-to-another-world": Mutant(
        "policies/wrappers/goals.py",
        "self._current[key][rows] = value",
        "self._current[key][rows] = value[::-1]",
        GOALS,
    ),
    "goal-of-a-failed-demonstration": Mutant(
        "policies/wrappers/goals.py", "np.flatnonzero(dataset.success)", "np.arange(dataset.episodes)", GOALS
    ),
    "goal-is-where-it-began": Mutant(
        "policies/wrappers/goals.py", "(dataset.starts + dataset.lengths - 1)[good]", "dataset.starts[good]", GOALS
    ),
    "goal-of-the-farthest-start": Mutant("policies/wrappers/goals.py", ".argmin(1)", ".argmax(1)", GOALS),
    "goal-of-a-start-in-other-units": Mutant(
        "policies/wrappers/goals.py", "np.maximum(starts.std(0), FLOOR)", "np.ones(starts.shape[1:])", GOALS
    ),
    "goals-nobody-follows-are-taken": Mutant(
        "policies/wrappers/prompted.py", "    if given and not wanted:", "    if False and not wanted:", GOALS
    ),
    "goals-that-lack-are-not-missed": Mutant(
        "policies/wrappers/prompted.py", "    if wanted and not given:", "    if False and not given:", GOALS
    ),
    "goal-ends-are-of-the-next-episode": Mutant(
        "robolearn/rollout/collect.py", "turn.decision.aux[key][w]", "turn.observation[key][w - 1]", ENDS
    ),
    "goal-is-seen-among-the-objects": Mutant(
        "sim/tasks/lift_to.py",
        "    def target(self, state: State)",
        "    def observe(self, state: State) -> Array:\n"
        "        return super().observe(state) + self.target(state)[:, :1]\n\n"
        "    def target(self, state: State)",
        ENDS,
    ),
    "goal-pictures-by-other-cameras": Mutant(
        "robolearn/cli/policy_flags.py",
        'action_kind="")',
        'action_kind="", station="")',
        ("tests/cli/test_cli_goal_pictures.py",),
    ),
}

if __name__ == "__main__":
    sys.exit(kill_replacements("seeing", MUTANTS))
