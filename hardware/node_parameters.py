"""Parameters of the ROS 2 nodes: one frozen dataclass per node, read by the node, its program's flags and launch files.

A field's default fixes its type. `ros2 launch` runs with the system's
Python, which does not see our packages: launch files load this file by its path, so it imports the standard library
alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


def param(default: Any, description: str) -> Any:
    """A parameter, whose description `descriptions` has."""
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True, kw_only=True)
class NodeParameters:
    """Of every node."""

    contract: str = param(
        "sim", "robot contract: its name (robolearn deploy --help lists them) or a YAML file of yours"
    )
    autostart: bool = param(True, "configure and activate at once; false: a lifecycle manager does")
    realtime_priority: int = param(
        0,
        "SCHED_FIFO priority of what drives the arm, 1 to 99, 0 for none; robolearn doctor says whether this user may",
    )


@dataclass(frozen=True, kw_only=True)
class PolicyParameters(NodeParameters):
    """Of the node `policy`."""

    policy: str = param("", "the policy: a run or its checkpoint folder, FILE.onnx, lerobot:FOLDER, or episode:DATA#N")
    device: str = param("auto", "where the policy computes: auto (a GPU where there is one), cpu, cuda or cuda:<index>")
    backend: str = param("torch", "what computes its decisions: torch, trace, compile or onnx")
    precision: str = param("float32", "in which: float32, bfloat16 (torch, compile) or int8 (onnx)")
    words: str = param("", "what to do, in a sentence, for a policy trained with words")
    goals: str = param("", "a data set whose goal states are goals, for a policy trained with a goal")
    goal_choice: str = param("nearest", "which demonstration of that set: nearest (by its start) or drawn by seed")
    denoise_steps: int = param(0, "K, denoising steps; 0: as trained")
    guidance: float = param(-1.0, "w of a policy that was trained with a goal; below 0: as trained")
    guide: str = param("", "a run whose critics choose among the policy's chunks")
    guide_samples: int = param(10, "N, chunks that they choose among")
    guide_temperature: float = param(0.0, "beta, in units of their values; 0: the most valuable")
    tempo: float = param(1.0, "factor on displacements")
    objects: str = param(
        "", "names of privileged components, with commas, where neither policy nor contract states them"
    )
    seed: int = param(0, "of starts in simulation and of the policy's noise")
    tail_steps: int = param(-1, "actions sent beyond those executed; below 0: as many as inference takes")
    delay_steps: int = param(0, "control steps that every inference takes longer, in simulation")
    seconds: float = param(
        0.0, "longest episode [s]: then the arm is disarmed, and the node ends; 0: you or robolearn deploy end it"
    )
    reward: str = param(
        "", "a reward model that ends the episode as solved: MODULE:CLASS, serve:HOST:PORT or the folder of a critic"
    )
    reward_ends: bool = param(True, "false: that model ends no episode, its verdict on each is reported")
    by_key: bool = param(
        True, "the operator ends the episode by the success or the failure key of robolearn operate; false: nobody asks"
    )


@dataclass(frozen=True, kw_only=True)
class StreamerParameters(NodeParameters):
    """Of the node `streamer`."""

    grace_ms: float = param(
        -1.0,
        "how long the last action is held when the next chunk is late [ms]; below 0: one control step, on a simulated "
        "arm 150 ms",
    )
    freeze_steps: int = param(0, "control steps that follow the old chunk entirely when the next one has come")
    blend: bool = param(True, "blend a chunk with the one before over the measured latency")


@dataclass(frozen=True, kw_only=True)
class SafetyParameters(NodeParameters):
    """Of the node `safety`."""

    dry_run: bool = param(False, "true: everything runs, but nothing is sent to the arm")
    targets: str = param(
        "joints", "what the safety node takes: joints, or poses of the tcp on target_pose, from a planner"
    )


@dataclass(frozen=True, kw_only=True)
class MotionParameters(NodeParameters):
    """Of the node `motion`."""

    way: str = param("", "the motion: an .npy of joint targets, one row each period of the stream")
    out: str = param("", "the log of what was commanded and measured (.npz), for robolearn identify")


@dataclass(frozen=True, kw_only=True)
class GripperParameters(NodeParameters):
    """Of the node `gripper`."""

    if_needed: bool = param(False, "end at once where the contract has no gripper action")


@dataclass(frozen=True, kw_only=True)
class ServosParameters(NodeParameters):
    """Of the node `servos`."""

    port: str = param("", "serial port, in place of the contract's")
    limp: bool = param(False, "true: no torque, the arm is moved by hand and measured")
    release: bool = param(False, "true: no torque at the end; the arm falls")


@dataclass(frozen=True, kw_only=True)
class SimArmParameters(NodeParameters):
    """Of the node `sim_arm`."""

    task: str = param("lift", "task of the simulated arm")
    seed: int = param(0, "of starts in simulation and of the policy's noise")
    dynamics: str = param("none", "dynamics that the simulated arm has: none, mild, wild or a file")
    joint_hz: float = param(200.0, "rate of the simulated joint states [Hz]")
    camera_hz: float = param(25.0, "rate of the simulated cameras [Hz]")


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of some teleoperation devices."""

    host: str = param(
        "127.0.0.1",
        "where the page of teleop:=browser or view:= listens; 0.0.0.0: for phones too, with TLS and a token",
    )
    port: int = param(8070, "its port; 0 takes a free one, and so does view:= where it is taken")
    speed: float = param(0.0, "of keyboard, gamepad and spacemouse, in (0, 1]; 0: as the device has it")
    leader_port: str = param("/dev/ttyACM0", "serial port of the leader arm, or with a comma of each arm's leader")
    leader_id: str = param("leader", "name of the leader arm's calibration, or with a comma of each one's")


@dataclass(frozen=True, kw_only=True)
class TeleopParameters(DeviceOptions, NodeParameters):
    """Of the node `teleop`."""

    device: str = param(
        "gamepad",
        "what the operator holds: gamepad, spacemouse or browser; keyboard and leader need the terminal that robolearn "
        "record and hil run have",
    )


@dataclass(frozen=True, kw_only=True)
class RecordParameters(TeleopParameters):
    """Of the node `record`."""

    out: str = param("", "folder of the data set; it is added to where it exists")
    task: str = param("", "the task in words; in simulation by default those of sim_task")
    episodes: int = param(10, "how many the data set has in the end")
    cameras: str = param("", "those to record, e.g. front,wrist; by default all of the contract, in simulation none")
    view: str = param(
        "none",
        "where you see the arm, the task's bodies and the cameras: browser prints the address of a page, window opens "
        "it, none; teleop:=browser has a page of its own, which window opens",
    )
    sim_task: str = param("lift", "task of the simulated arm")
    seed: int = param(0, "of starts in simulation and of the script's choices")
    quality: str = param("expert", "of the script")
    seconds: float = param(60.0, "longest episode [s]")
    reset: str = param("person", "between the episodes of a real arm: person, or motion: it goes home by itself")


@dataclass(frozen=True, kw_only=True)
class HilParameters(TeleopParameters):
    """Of the node `hil`."""

    reward: str = param(
        "task",
        "task: in simulation its own, and what you say of it; key: your success key alone; or a reward model, e.g. "
        "<module>:<Class> of yours",
    )
    words: str = param("", "the task in words, for a reward model; by default the simulated task's, or that of demos")
    done_hz: float = param(
        5.0, "verdicts a second by which a reward model ends an episode as solved; 0: it only scores"
    )
    done_frames: int = param(3, "verdicts in a row for that")
    done_threshold: float = param(0.5, "least confidence of a reward model's done, in episodes and in scores")
    done_check: str = param("", "a second reward model that has to agree before an episode ends, or counts, as solved")
    help_after_s: float = param(
        0.0,
        "with a reward model that ends episodes: seconds in which its progress gains nothing, after which you are "
        "asked to steer; 0: you are not",
    )
    help_at_loss: float = param(
        0.0, "the same where its progress falls by so much from the best of the episode, 0 to 1; 0: not by that"
    )
    audit_share: float = param(
        0.0, "with a reward model that ends episodes: share of them at whose end you are asked whether they succeeded"
    )
    score_timeout_s: float = param(60.0, "seconds for a reward model to score an episode; then it is not learned from")
    env_steps: int = param(24_000, "budget of control steps")
    episodes: int = param(0, "budget of episodes; 0: as many as the steps allow")
    policy: str = param("", "the policy to begin with: a run or its checkpoint folder")
    demos: str = param("", "folder of a data set of demonstrations")
    seconds: float = param(30.0, "longest episode [s]")
    reset: str = param(
        "person",
        "between the episodes of a real arm: person; motion: it goes home by itself; policy: reset_policy brings "
        "things back before that",
    )
    reset_policy: str = param("", "with reset:=policy, what brings things back: a run or its checkpoint folder")
    reset_seconds: float = param(20.0, "longest reset by reset_policy [s]")
    reset_reward: str = param("", "a reward model that says when things are back, beside your success key")
    reset_words: str = param("", "the task of reset_policy in words, for reset_reward")
    out: str = param("", "the run folder; a run that is there already is gone on with")
    task: str = param("peg_insert_tight", "task of the simulated arm")
    algo: str = param(
        "proposals",
        "the algorithm: proposals, rlpd, dsrl, iql, riql, famo2o, rebrac, ro2o, cal_ql, recap, ogpo or uni_o4",
    )
    seed: int = param(0, "of starts in simulation and of the policy's noise")
    view: str = param(
        "none",
        "the console, a page with the curves, take over, labels and stop: browser writes its address into the file "
        "spool/console of out, window opens it, none",
    )
    publish_every: int = param(50, "updates between two versions of the weights")
    success_window: int = param(100, "number of the last intervention-free episodes over which success is counted")
    checkpoint_s: float = param(30.0, "seconds between two checkpoints")
    cut_after_s: float = param(
        60.0, "seconds without a word of the actor after which its episode is learned from without an outcome"
    )


@dataclass(frozen=True, kw_only=True)
class FilmParameters(NodeParameters):
    """Of the node `film`."""

    task: str = param("", "task of the simulated arm")
    out: str = param("", "the film, .mp4")


@dataclass(frozen=True, kw_only=True)
class RolloutsParameters(NodeParameters):
    """Of the node `rollouts`."""

    out: str = param("", "a data set into which the episodes of the policy go, with their outcomes; empty: none")
    policy: str = param("", "the policy: a run or its checkpoint folder, FILE.onnx, lerobot:FOLDER, or episode:DATA#N")
    words: str = param("", "what to do, in a sentence, for a policy trained with words")
    record_task: str = param("", "the task in words, in that data set; by default words, in simulation the task's")
    sim_task: str = param("lift", "task of the simulated arm")
    every_arming: bool = param(True, "every arming is an episode; false: robolearn deploy says what is")


NODES: dict[str, type[NodeParameters]] = {
    "policy": PolicyParameters,
    "streamer": StreamerParameters,
    "safety": SafetyParameters,
    "motion": MotionParameters,
    "gripper": GripperParameters,
    "servos": ServosParameters,
    "sim_arm": SimArmParameters,
    "teleop": TeleopParameters,
    "record": RecordParameters,
    "hil": HilParameters,
    "film": FilmParameters,
    "rollouts": RolloutsParameters,
}


SIMULATED = ("sim", "panda_pair")
"""Shipped contracts whose arms are simulated: launch files start the simulation, and cannot read contracts."""


def parameter_names(kind: type) -> tuple[str, ...]:
    """Names of the parameters of `kind`."""
    return tuple(field.name for field in fields(kind))


def descriptions(kind: type) -> dict[str, str]:
    """Parameter → its description."""
    return {field.name: field.metadata["description"] for field in fields(kind)}
