"""Scripted demonstrators: a sequence of waypoints for the tcp, followed in N worlds at once.

    action = clip( T_tcp⁻¹ · waypoint / step size )          (proportional, in the tcp frame)

Quality is adjustable, because policies that learn from many perfect demonstrations of every start leave RL nothing to
repair. There are two ways to be worse, and zero-mean noise is not one of them: imitation averages it away.

- Errors of aim (`fair`, `mixed`, `poor`): some demonstrations fail. The errors of all strategies have the same sign;
  where two strategies err in opposite directions, their mean is a good demonstration.
- Coverage (`narrow`): nearly all demonstrations succeed, from the middle of the range of starts alone. What a policy
  lacks is what a user's lacks who has demonstrated little: the rest of the range, precision, recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface, Observation, check_choice
from robolearn.core.se3 import matrix_to_rotvec
from robolearn.core.specs import COUSIN, DISTRACTOR
from robots import PAIRS, ROBOTS, AnyRobot, make_control, robot_named
from robots.control import CONTROLS, DELTA_POS, DELTA_ROT
from robots.spec import ArmPart, Base

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Quality:
    """Quality of a scripted demonstrator."""

    noise: float = 0.0  # standard deviation of Gaussian noise on each action component (full deflection = 1)
    bias: float = 0.0  # size of the strategy-dependent error of the demonstrator's aim, 1 = as large as the task names
    haste: float = 0.0  # chance that a waypoint is left too early, per episode
    strategies: int = 1  # how many of the task's strategies are used
    # share of each range of starts that is demonstrated, about its centre; for whoever makes the worlds
    start_range: float = 1.0
    # kinds of failure (`sim.experts.failures`) that the episodes take in turn; empty: none on purpose
    failures: tuple[str, ...] = ()


EACH = "failures"  # the quality of all kinds of failure that a task has
QUALITIES: dict[str, Quality] = {
    "expert": Quality(),
    "narrow": Quality(strategies=2, start_range=0.5),
    "fair": Quality(noise=0.10, bias=1.0, haste=0.2, strategies=2),
    "mixed": Quality(noise=0.10, bias=1.25, haste=0.3, strategies=2),
    "poor": Quality(noise=0.20, bias=1.8, haste=0.6, strategies=2),
    EACH: Quality(noise=0.05, failures=("missed", "dropped", "wrong_place", "nearly", "pushed_away", "frozen")),
    "missed": Quality(noise=0.05, failures=("missed",)),
    "dropped": Quality(noise=0.05, failures=("dropped",)),
    "wrong_place": Quality(noise=0.05, failures=("wrong_place",)),
    "nearly": Quality(noise=0.05, failures=("nearly",)),
    "pushed_away": Quality(noise=0.05, failures=("pushed_away",)),
    "frozen": Quality(noise=0.05, failures=("frozen",)),
    DISTRACTOR: Quality(noise=0.05, failures=(DISTRACTOR,)),
}


@dataclass(frozen=True)
class Waypoint:
    """Where the tcp shall be next, in N worlds."""

    pos: Array  # (N, 3) in the base frame [m]
    rot: Array  # (N, 3, 3) in the base frame
    opening: Array | float  # (N,) gripper command in [-1, 1], 1 open
    speed: Array | float = 1.0  # (N,) or scalar, largest deflection of an action component
    tolerance: float = 0.01  # distance at which the waypoint counts as reached [m]
    dwell: int = 0  # control steps to stay once it is reached


@dataclass(frozen=True)
class View:
    """The parts of an observation that scripts need of an arm, in the base frame; of a pair in the station's."""

    tcp_pos: Array  # (N, 3)
    tcp_rot: Array  # (N, 3, 3)
    width: Array  # (N,)
    objects: Mapping[str, Array]  # name of an `objects` component → (N,)
    grip: Array  # (3,) where a thing is gripped, in the frame of the tcp
    ceiling: float  # how high the tcp goes, gripper down [m]

    @property
    def jaw(self) -> bool:
        """True where a thing is gripped beside the tcp, by one jaw against a finger that stands still."""
        return bool(self.grip.any())

    def vector(self, prefix: str, components: str = "xyz") -> Array:
        """(N, 3) the components ``<prefix>_x``, ``<prefix>_y``, ``<prefix>_z``."""
        return np.stack([self.objects[f"{prefix}_{c}"] for c in components], -1)

    def rotation(self, prefix: str) -> Array:
        """(N, 3, 3) from the six components ``<prefix>0`` … ``<prefix>5``."""
        x = np.stack([self.objects[f"{prefix}{i}"] for i in range(3)], -1)
        y = np.stack([self.objects[f"{prefix}{i}"] for i in range(3, 6)], -1)
        return np.stack([x, y, np.cross(x, y)], -1)


class Script(Protocol):
    """One task's knowledge: its waypoints for the strategy and bias of each world."""

    phases: int
    strategies: int

    def plan(self, phase: int, view: View, strategy: NDArray[np.int64], bias: Array, memory: Array) -> Waypoint:
        """The waypoint of `phase`.

        Args:
          phase: 0 … phases − 1.
          strategy: (N,) the strategy of each world's episode.
          bias: (N,) the size of its error of aim.
          memory: (N, 3) the tcp position at the moment when the present phase began.
        """
        ...

    def resume(self, view: View, strategy: NDArray[np.int64]) -> NDArray[np.int64]:
        """(N,) the phase that a demonstrator of these strategies (N,) begins with who takes over here."""
        ...


OPEN = 0.08  # a demonstrator opens no gripper wider than this: a jaw that is wide open is long on its way back [m]


Waypoints = tuple[Waypoint, Waypoint]
"""Of the left arm and of the right one."""


@runtime_checkable
class PairScript(Protocol):
    """One task's knowledge for two arms, see `Script`; positions are in the frame of the station."""

    phases: int
    strategies: int

    def plan_both(
        self, phase: int, views: tuple[View, ...], strategy: NDArray[np.int64], bias: Array, memory: Array
    ) -> Waypoints:
        """The waypoints of `phase`; `memory` (N, 2, 3) are the tcps when it began."""
        ...


class JointMotion:
    """Actions of ``joint_position`` that do what actions of ``tcp_delta`` say."""

    def __init__(self, robot: AnyRobot, control_hz: float) -> None:
        self._tcp = make_control("tcp_delta", robot, control_hz)
        self._joints = make_control("joint_position", robot, control_hz)
        openings = [min(1.0, OPEN / part.robot.gripper.max_width) for part in robot.parts]
        self._opening = openings[0] if len(openings) == 1 else np.array(openings)

    def __call__(self, q: Array, motion: NDArray) -> NDArray[np.float32]:
        """Actions from joint positions (N, n) [rad] and motions (N, 7) of each tcp in [-1, 1]."""
        goal, width = self._tcp.targets(q, None, motion)
        return self._joints.actions(q, goal, self._opening * width).astype(np.float32)


def steer(view: View, goal: Waypoint) -> tuple[Array, Array]:
    """(N, 7) action of ``tcp_delta`` towards a waypoint, and (N,) how far away it is [m]."""
    n = len(view.tcp_pos)
    error = goal.pos - view.tcp_pos
    turn = matrix_to_rotvec(np.swapaxes(view.tcp_rot, -1, -2) @ goal.rot)
    step = np.einsum("nji,nj->ni", view.tcp_rot, error) / DELTA_POS
    speed = np.broadcast_to(np.asarray(goal.speed, dtype=np.float64), (n,))[:, None]
    # The direction is kept when the step is too long; the rotation is clipped for itself.
    length = np.linalg.norm(step, axis=-1, keepdims=True)
    step *= np.minimum(1.0, speed / np.maximum(length, 1e-9))
    full = np.concatenate([step, np.clip(turn / DELTA_ROT, -speed, speed), np.zeros((n, 1))], -1)
    full[:, 6] = goal.opening
    return full, np.linalg.norm(error, axis=-1)


class ScriptedExpert:
    """A `Teleoperator` that follows a script, badly if so asked. `interface`: of a world with one of our arms; an
    action is ``tcp_delta`` or ``joint_position``. `seed`: world w's choices depend on (seed, w) only."""

    def __init__(
        self, script: Script | PairScript, interface: Interface, num_envs: int, quality: Quality, seed: int
    ) -> None:
        check_choice("scripted expert: action kind", interface.action_kind, CONTROLS)
        if not 1 <= quality.strategies <= script.strategies:
            raise BadInput("strategies", got=quality.strategies, expected=f"1 to {script.strategies}")
        self._script: Any = script  # of two arms in `PairExpert`
        self._quality, self._num_envs = quality, num_envs
        self._proprio = {name: i for i, name in enumerate(interface.observation["proprio"].names)}
        if interface.embodiment not in ROBOTS and interface.embodiment not in PAIRS:
            raise BadInput("scripted expert: embodiment", got=interface.embodiment, available=(*ROBOTS, *PAIRS))
        self._robot = robot_named(interface.embodiment)
        joints = interface.action_kind == "joint_position"
        self._joints = JointMotion(self._robot, interface.control_hz) if joints else None
        # Beside what is seen of the objects a goal that nothing shows, and how the scene differs.
        self._known = [key for key in ("objects", "target", COUSIN, DISTRACTOR) if key in interface.observation]
        self._names = [name for key in self._known for name in interface.observation[key].names]
        self._rngs = [np.random.default_rng([seed, w, 1]) for w in range(num_envs)]
        self._offset = np.random.default_rng([seed, 2]).random(3)
        self._episodes = np.zeros(num_envs, dtype=np.int64)  # begun in each world
        self._phase = np.zeros(num_envs, dtype=np.int64)
        self._stay = np.zeros(num_envs, dtype=np.int64)
        self._strategy = np.zeros(num_envs, dtype=np.int64)
        self._bias = np.zeros(num_envs)
        self._hasty = np.zeros(num_envs, dtype=bool)
        self._memory = np.full((num_envs, len(self._robot.parts), 3), np.nan)

    def resume(self, observation: Observation, worlds: NDArray[np.bool_], strategy: int) -> None:
        """Go on in the middle of an episode, with `strategy`, in the worlds (N,) that are true."""
        (view,) = self._views(observation)
        self._strategy[worlds] = strategy
        self._phase[worlds] = self._script.resume(view, self._strategy)[worlds]
        self._stay[worlds] = 0
        self._memory[worlds, 0] = view.tcp_pos[worlds]

    def tcp(self, observation: Observation) -> tuple[Array, Array]:
        """(N, 3) position [m] and (N, 3, 3) orientation of the tcp in the base frame."""
        view = self._views(observation)[0]
        return view.tcp_pos, view.tcp_rot

    @property
    def strategy(self) -> NDArray[np.int64]:
        """(N,) the strategy of each world's present episode."""
        return self._strategy

    def failure(self, world: int) -> str:
        """The kind of failure that the present episode of `world` is made to be; empty where it is none."""
        kinds = self._quality.failures
        return kinds[min(int(self._bias[world]), len(kinds) - 1)] if kinds else ""

    def reset(self, worlds: NDArray[np.bool_]) -> None:
        """Choose strategy, bias and haste anew in the worlds (N,) that are true."""
        for w in np.flatnonzero(worlds):
            u = (self._offset + w * _EVEN + self._episodes[w] * np.roll(_EVEN, 1)) % 1.0
            self._strategy[w] = int(u[0] * self._quality.strategies)
            self._bias[w] = self._quality.bias * (0.6 + 0.8 * u[1])
            if kinds := self._quality.failures:  # the kind of failure, and how far it goes
                self._bias[w] = (w + self._episodes[w]) % len(kinds) + u[1]
            self._hasty[w] = u[2] < self._quality.haste
        self._episodes[worlds] += 1
        self._phase[worlds] = 0
        self._stay[worlds] = 0
        self._memory[worlds] = np.nan

    def command(self, observation: Observation) -> NDArray[np.float32]:
        """(N, Da) actions in [-1, 1]."""
        return self.in_world(observation, self.motion(observation))

    def in_world(self, observation: Observation, motion: NDArray[np.float32]) -> NDArray[np.float32]:
        """(N, Da) actions of the world for motions (N, 7) of each tcp."""
        return motion if self._joints is None else self._joints(self._q(observation), motion)

    def motion(self, observation: Observation) -> NDArray[np.float32]:
        """(N, 7) motion of the tcp and the opening, as actions of ``tcp_delta``, in [-1, 1]; of a pair (N, 14)."""
        views = self._views(observation)
        tcps = np.stack([view.tcp_pos for view in views], 1)
        fresh = np.isnan(self._memory[:, 0, 0])
        self._memory[fresh] = tcps[fresh]
        action = np.zeros((self._num_envs, 7 * len(views)))
        reached = np.zeros(self._num_envs, dtype=bool)
        dwell = np.zeros(self._num_envs, dtype=np.int64)
        for phase in np.unique(self._phase):
            here = self._phase == phase
            goals, there = self._plan(int(phase), views), here
            for k, (view, goal) in enumerate(zip(views, goals, strict=True)):
                full, away = steer(view, goal)
                action[here, 7 * k : 7 * k + 7] = full[here]
                there = there & (away < goal.tolerance)
            reached |= there
            longest = max(goal.dwell for goal in goals)
            dwell[here] = np.where(self._hasty[here], longest // 3, longest)
        self._stay = np.where(reached, self._stay + 1, self._stay)
        onward = (self._stay > dwell) & (self._phase < self._script.phases - 1)
        self._phase[onward] += 1
        self._stay[onward] = 0
        self._memory[onward] = tcps[onward]
        if self._quality.noise:
            noised = np.tile(_NOISED, len(views))
            for w, rng in enumerate(self._rngs):
                action[w] += self._quality.noise * rng.standard_normal(len(noised)) * noised
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    def _plan(self, phase: int, views: tuple[View, ...]) -> tuple[Waypoint, ...]:
        """The waypoint of each arm."""
        return (self._script.plan(phase, views[0], self._strategy, self._bias, self._memory[:, 0]),)

    def _views(self, observation: Observation) -> tuple[View, ...]:
        """Views of the arms."""
        proprio = np.asarray(observation["proprio"], dtype=np.float64)
        seen = np.concatenate([np.asarray(observation[key], np.float64) for key in self._known], 1)
        objects = {name: seen[:, i] for i, name in enumerate(self._names)}
        return tuple(self._view(part, proprio, objects) for part in self._robot.parts)

    def _view(self, part: ArmPart, proprio: Array, objects: Mapping[str, Array]) -> View:
        def column(name: str) -> Array:
            return proprio[:, self._proprio[part.named(name)]]

        pos = np.stack([column(f"tcp_{c}") for c in "xyz"], -1)
        x = np.stack([column(f"tcp_rot{i}") for i in range(3)], -1)
        y = np.stack([column(f"tcp_rot{i}") for i in range(3, 6)], -1)
        rot = np.stack([x, y, np.cross(x, y)], -1)
        if part.base != Base():
            pos, rot = np.array(part.base.position) + pos @ part.base.rotation.T, part.base.rotation @ rot
        return View(
            tcp_pos=pos,
            tcp_rot=rot,
            width=column("gripper_width"),
            objects=objects,
            grip=np.array(part.robot.gripper.grip),
            ceiling=np.inf if len(part.robot.joints) >= 6 else CEILING,
        )

    def _q(self, observation: Observation) -> Array:
        """(N, n) joint positions [rad]."""
        columns = [self._proprio[name] for name in self._robot.joints]
        return np.asarray(observation["proprio"], dtype=np.float64)[:, columns]


class PairExpert(ScriptedExpert):
    """A `ScriptedExpert` of two arms, which go on together: a phase ends when both tcps are where it wants them, and
    neither lifts before the other has grasped. `interface`: of a world with a pair of ours."""

    def _plan(self, phase: int, views: tuple[View, ...]) -> tuple[Waypoint, ...]:
        return self._script.plan_both(phase, views, self._strategy, self._bias, self._memory)


# 1/g, 1/g², 1/g³ with g⁴ = g + 1: multiples of them, modulo 1, fill the unit cube evenly (a Kronecker sequence, R₃ of
# Roberts). A hundred demonstrations drawn by chance have now more of one strategy, now of the other, and the policy
# that learns from them succeeds now more, now less.
_EVEN = np.array([0.8191725133961645, 0.6710436067037893, 0.5497004779019703])

CEILING = 0.08  # of an SO-101, whose wrist is at its limit there: higher up the gripper no longer points down [m]

# A trembling hand does not tremble in roll, pitch and grip as it does in position and yaw.
_NOISED = np.array([1.0, 1.0, 1.0, 0.2, 0.2, 1.0, 0.5])


def downward(yaw: Array) -> Array:
    """(N,) → (N, 3, 3): tcp pointing down, its x axis turned by `yaw` from the base's x axis."""
    c, s, zero = np.cos(yaw), np.sin(yaw), np.zeros_like(yaw)
    x = np.stack([c, s, zero], -1)
    y = np.stack([s, -c, zero], -1)
    return np.stack([x, y, np.broadcast_to([0.0, 0.0, -1.0], x.shape)], -1)


def yaw_of(rot: Array) -> Array:
    """(N, 3, 3) → (N,) heading of the x axis about the vertical [rad]."""
    return np.arctan2(rot[:, 1, 0], rot[:, 0, 0])


def nearest(yaw: Array, reference: Array, turn: float) -> Array:
    """`yaw` turned by multiples of `turn` to lie nearest to `reference`: a cube looks the same each quarter of one."""
    return reference + (yaw - reference + turn / 2) % turn - turn / 2
