"""Arguments of the loop's commands: of a learner, of an actor's world or arm, and of an actor."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from hardware.teleop import people
from robolearn.cli.choices import Dynamics, OffPolicyAlgorithm, PersonTeleop, Station
from robolearn.cli.station_command import device_options, shows_in_terminal, teleop_values, with_teleop_flags
from robolearn.cli.view import TeleopView, check_view, chosen
from robolearn.core import BadInput, Interface, bind_policy
from robolearn.core.machine import resolve_device
from robolearn.core.switches import check_ranges
from robolearn.hil.settings import CurriculumConfig, LearnerConfig, LearnerRun
from robolearn.io.atomic import write_text
from robolearn.rewards.choice import KEY, SPARSE, make_reward_model, reward_config
from robolearn.rewards.choice import TASK as TASK_REWARD
from robolearn.rl.algorithms import OffPolicyConfig, algorithm
from robolearn.rl.off_policy_settings import ProposalsConfig
from robolearn.runs.command import Command, peek

if TYPE_CHECKING:
    from hardware.teleop.reset_policy import PolicyReset
    from robolearn.core.scene import Scene
    from robolearn.rewards.online import OnlineDone
    from robots.stations import Contract

log = logging.getLogger(__name__)

Operators = Literal["none", "scripted"]
TASK = "peg_insert_tight"
DONE_HZ = 5.0  # of the verdicts on a reset where those on episodes are switched off


@dataclass(frozen=True, kw_only=True)
class LearnerArguments(LearnerRun, Command):
    """Arguments of the learner."""

    algo: OffPolicyAlgorithm = "proposals"
    """The algorithm."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    settings: OffPolicyConfig = field(default_factory=ProposalsConfig)

    def __post_init__(self) -> None:
        check_ranges(self)  # LearnerConfig, which comes before Command here, does not
        super().__post_init__()

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        return {"settings": algorithm(peek(args, "--algo", "proposals"), OffPolicyConfig)()} | pace_of(args)

    def check_learner(self) -> None:
        """Raise `BadInput` for arguments out of range."""
        if getattr(self.settings, "needs_data", False):
            expected = "another one: it takes what acts here for a simulator"
            raise BadInput("--algo", got=self.algo, expected=expected, hint="robolearn finetune has it")
        asked = reward_config(self.reward)
        if asked.is_offline or asked.world not in ("", SPARSE):
            expected = "the world's own, a person's key or a reward model that is asked"
            raise BadInput("--reward", got=self.reward, expected=expected, available=(TASK_REWARD, KEY))
        if self.done_check and (reward_config(self.reward).recorded or reward_config(self.done_check).recorded):
            got = f"{self.done_check} beside --reward {self.reward}"
            raise BadInput("--done-check", got=got, expected="two reward models")
        helped = self.curriculum
        if helped.by_progress and not self.ends_online:
            name, value = ("after-s", helped.help_after_s) if helped.help_after_s else ("at-loss", helped.help_at_loss)
            got = f"{value:g} without a model that looks at running episodes"
            raise BadInput(f"--help-{name}", got=got, expected="a reward model, and --done-hz above 0")
        if not (self.done_hz >= 0 and 0 <= self.done_threshold <= 1):
            got = (self.done_hz, self.done_threshold)
            raise BadInput("--done-hz, --done-threshold", got=got, expected="at least 0, and 0 to 1")
        for name in ("cut_after_s", "checkpoint_s", "score_timeout_s"):
            if not (seconds := getattr(self, name)) > 0:
                raise BadInput(f"--{name.replace('_', '-')}", got=seconds, expected="more than 0")


@dataclass(frozen=True, kw_only=True)
@with_teleop_flags
class WorldArguments(Command):
    """Arguments of the world or arm of an actor, and of its operator."""

    task: str = TASK
    """A task of ours, robosuite:<Name> or gym:<module>:<Id-v0>; with --robot that of the simulated arm."""
    dynamics: Dynamics = "none"
    """Dynamics of the world of a task of ours: a level or a file. An arm has its own."""
    words: str = ""
    """The task in a sentence, for a policy or a reward model that reads it: by default the world's own, for a reward
    model on an arm that of --demos."""
    operator: Operators = "none"
    """Operator where no --teleop is given: none, or a script that watches and takes over (tasks of ours)."""
    teleop: PersonTeleop = ""
    """Your device. You watch, take over, hand back and label."""
    robot: Station = ""
    """An arm behind the safety filter over ROS 2, with --teleop: a robot contract, by name or as a file of your own."""
    rehearse: bool = False
    """With --robot: a simulated arm behind an emulator of the station's driver, its topics, stamps and habits."""
    reset: Literal["person", "motion", "policy"] = "person"
    """With --robot of a real arm, between episodes: motion opens the gripper where the arm is, lifts the tool and
    brings the arm home by itself, slowly and through the filter, while you hold the dead-man's switch; person: you
    move it; policy: --reset-policy brings things back first, on a simulated arm too."""
    reset_policy: str = ""
    """With --reset policy: a run or checkpoint folder. Your success key says that things are back, and so does
    --reset-reward: the next episode begins by itself then, once the arm is home. Your failure key, and the clock, leave
    it to you."""
    reset_seconds: float = 20.0
    """Longest reset by --reset-policy [s]."""
    reset_reward: str = ""
    """A reward model, as of --reward, that says when things are back; it judges as often as --done-hz and
    --done-frames of the learner have it."""
    reset_words: str = ""
    """The task of --reset-policy in a sentence, for --reset-reward."""
    audit_share: float = 0.0
    """With --robot and a reward model that ends episodes: share of the episodes at whose end you are asked whether they
    succeeded, by the success or the failure key. Where the model and you part, the run ends with the reason."""
    seconds: float = 30.0
    """With --teleop: longest episode [s] of an arm and of our tasks; people take longer than scripts."""
    view: TeleopView = "auto"
    """The console, a page of loopback with the scene, the curves, take over, labels, stop: browser prints its address,
    window opens it, none; auto: browser for devices without a page of their own at a terminal, else none."""
    console: int | None = None
    """Show that page at this port whatever --view says; 0, as without this, takes a free port. The address, with its
    token, is written into the file console beside the outbox."""
    host: str = "127.0.0.1"
    """Address on which the page of --teleop browser listens; 0.0.0.0: for phones on this network too, with TLS and a
    token."""
    port: int = 8070
    """Its port; 0 takes a free one. The address, with its token, is written into the file teleop beside the outbox."""
    realtime_priority: int = 10
    """With --robot, of the nodes (SCHED_FIFO, 1 to 99), where this machine permits it; 0: none."""
    enclaves: bool = False
    """With --robot: every node in its enclave of `robolearn permissions` (SROS2)."""
    domain: int | None = None
    """With --robot: ROS domain; by default ROS_DOMAIN_ID, and on the simulated arm one that is likely to be free."""

    @property
    def live(self) -> bool:
        """True where a person or an arm sets the pace."""
        return bool(self.teleop or self.robot)

    @property
    def screen(self) -> bool:
        """True where the device shows the state in the terminal itself."""
        return shows_in_terminal(self.teleop)

    @property
    def console_port(self) -> int | None:
        """Port of the console, 0 for a free one; None without a console."""
        return 0 if self.console is None and chosen(self.view, self.teleop) != "none" else self.console

    def check_world(self) -> None:
        """Raise `BadInput` for contradictory arguments."""
        check_view(self.view)
        if self.teleop and self.teleop not in people():
            raise BadInput("--teleop", got=self.teleop, available=people())
        if self.teleop and self.operator != "none":
            raise BadInput("--operator", got=f"{self.operator} beside --teleop", expected="one of the two")
        if self.robot and self.dynamics != "none":
            raise BadInput("--dynamics", got=f"{self.dynamics} beside --robot", expected="none: an arm has its own")
        if self.robot and not self.teleop:
            raise BadInput("--robot", got="no --teleop", expected="a person with a device", available=people())
        if self.rehearse and not self.robot:
            raise BadInput("--rehearse", got="no --robot", expected="the contract of a station")
        if self.reset == "policy" and not (self.robot and self.reset_policy):
            missing = "--reset-policy" if self.robot else "--robot"
            raise BadInput("--reset policy", got=f"no {missing}", expected="both: a second policy that moves an arm")
        for name in ("reset_policy", "reset_reward", "reset_words"):
            if (value := getattr(self, name)) and self.reset != "policy":
                flag = f"--{name.replace('_', '-')}"
                raise BadInput(flag, got=f"{value} beside --reset {self.reset}", expected="--reset policy")
        if self.reset_reward:
            config = reward_config(self.reset_reward, "--reset-reward", recorded=False)
            if config.needs_prompt and not self.reset_words.strip():
                expected = f"the task of the reset in a sentence, which {self.reset_reward} reads"
                raise BadInput("--reset-words", got="nothing", expected=expected)
        if not self.reset_seconds > 0:
            raise BadInput("--reset-seconds", got=self.reset_seconds, expected="more than 0")
        if self.reset == "motion":
            from hardware.execution.homing import goes_home
            from robots.stations import load_contract

            if not self.robot or self.rehearse:
                got = "motion without a real arm: a simulated one begins anew"
                raise BadInput("--reset", got=got, expected="person, or --robot")
            goes_home(self.reset, load_contract(self.robot))
        if not 0 <= self.audit_share <= 1:
            raise BadInput("--audit-share", got=self.audit_share, expected="a share from 0 to 1")
        if self.audit_share and (not self.robot or self.reset == "policy"):
            got = "--reset policy, whose success key says that things are back" if self.robot else "no --robot"
            raise BadInput("--audit-share", got=got, expected="an arm that a person or a motion resets")
        if not self.seconds > 0:
            raise BadInput("--seconds", got=self.seconds, expected="more than 0")


@dataclass(frozen=True, kw_only=True)
class ActorArguments(WorldArguments):
    """Arguments of an actor: its policy, its outbox and its learner."""

    policy: Path
    """A run folder or a checkpoint folder: the one that the learner has."""
    out: Path
    """The folder of the outbox."""
    name: str = "actor"
    """Unlike that of the learner's other actors."""
    learner: str = "127.0.0.1:7350"
    """HOST:PORT."""
    token: str = ""
    """The learner's; by default that of --certs, or ROBOLEARN_HIL_TOKEN."""
    certs: Path | None = None
    """A folder of `robolearn hil certs`; required beyond loopback."""
    device: str = "cpu"
    """Device of the policy and of a reward model: auto, cpu, cuda or cuda:<i>."""
    reward: str = ""
    """The learner's reward model, as --reward of the learner names it, or its copy here: ends episodes as solved."""
    done_check: str = ""
    """The learner's --done-check, or its copy here."""

    def make_done(self, config: LearnerConfig, interface: Interface) -> OnlineDone | None:
        """The verdicts that end episodes as solved, by the settings of the learner, or None."""
        if not config.ends_online:
            return None
        if (
            not self.reward or reward_config(self.reward).recorded
        ):  # no module and no folder is opened because the other end of a wire names it
            log.warning("the learner's reward model ends no episodes here: that needs --reward %s", config.reward)
            return None
        if bool(self.done_check) != bool(config.done_check):  # the learner would call another episode solved
            expected = f"the learner's, {config.done_check}" if config.done_check else "none, as the learner has none"
            raise BadInput("--done-check", got=self.done_check or "nothing", expected=expected)
        texts = [self.reward, *([self.done_check] if self.done_check else [])]
        return self._verdicts(texts, config, interface, what="--reward, --done-check")

    def make_back(self, config: LearnerConfig, contract: Contract) -> PolicyReset | None:
        """The policy of --reset-policy on the arm of `contract` with its judge, or None."""
        from hardware.teleop.chunk_player import ChunkPlayer
        from hardware.teleop.reset_policy import PolicyReset
        from policies.storage.checkpoint import load_chunk_policy

        if self.reset != "policy":
            return None
        policy = load_chunk_policy(self.reset_policy, "cpu")
        bind_policy(policy, contract.interface, what=f"--reset-policy {self.reset_policy} on {contract.name}")
        judge = None
        if self.reset_reward:
            judge = self._verdicts([self.reset_reward], config, contract.interface, what="--reset-reward")
        player = ChunkPlayer(policy, config.seed, simulated=contract.simulated)
        return PolicyReset(player, policy.interface, self.reset_seconds, self.reset_words, judge)

    def _verdicts(self, texts: Sequence[str], config: LearnerConfig, interface: Interface, *, what: str) -> OnlineDone:
        from robolearn.rewards.online import OnlineDone

        device = str(resolve_device(self.device))
        return OnlineDone(
            [make_reward_model(text, interface, device, what) for text in texts],
            interface.control_hz, config.done_hz or DONE_HZ,
            frames=config.done_frames, threshold=config.done_threshold, waits=config.pace == "lockstep",
            help_after_s=config.curriculum.help_after_s, help_at_loss=config.curriculum.help_at_loss,
        )  # fmt: skip

    def opened_page(
        self, interface: Interface, scene: Callable[[], Scene] | None, ending: Callable[[], bool], *, holds: bool = True
    ) -> Any:
        """See `robolearn.hil.device_operator.opened_page`."""
        from robolearn.hil.device_operator import opened_page

        port, window = self.console_port, self.view == "window"
        return opened_page(port, self.out, interface, scene, ending, holds=holds, window=window)

    def opened_device(self, interface: Interface, robot: Any, *, simulated: bool) -> Any:
        """See `robolearn.hil.device_operator.opened_device`."""
        from robolearn.hil.device_operator import opened_device

        options = device_options(self.teleop, teleop_values(self)) | {"simulated": simulated}
        return opened_device(self.teleop, options, interface, robot, self.out, terminal=self.screen)

    def make_link(self, base: Any) -> tuple[Any, Any]:
        """(outbox, link) of an actor of the policy `base`; see `robolearn.hil.link.make_link`."""
        from robolearn.hil.link import make_link

        return make_link(base, self.out, self.name, self.learner, self.token, self.certs)


def pace_of(args: Sequence[str]) -> dict[str, Any]:
    """The default of --pace where a person or an arm sets it."""
    return {"pace": "realtime"} if peek(args, "--teleop", "") or peek(args, "--robot", "") else {}


def actor_result(arguments: ActorArguments, played: Any, outbox: Any, link: Any, period: Any) -> dict[str, Any]:
    """The result of an actor, for ``--json``; leaves a sign beside the outbox where the operator quit."""
    from robolearn.hil.processes import QUIT

    if played.quit:
        write_text(arguments.out / QUIT, "\n")
    return {
        "actor": arguments.name,
        "episodes": played.episodes,
        "env_steps": played.steps,
        "interventions": played.interventions,
        "records": len(outbox),
        "acknowledged": link.acknowledged,
        "connections": link.connections,
        "finished": not played.quit,
        "period_ms": {"p50": period.p50, "p99": period.p99} if period.count else None,
    }
