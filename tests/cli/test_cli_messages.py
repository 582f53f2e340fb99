"""What commands say of bad input, word for word: provoked, and read by somebody who asked what a newcomer does next.

A message that is changed is read again here. Beside the commands there are a set, `demos`, and a run, `runs/bc`.
"""

# ruff: noqa: E501

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from untrained import make_policy

from robolearn.cli.main import main
from robots.stations import load_contract
from sim.registry import make_env

pytestmark = pytest.mark.long

A_POLICY = "A policy is a run folder (robolearn runs lists them) or its policy/"
A_SET = "A data set is a LeRobotDataset v3.0 folder, as robolearn collect and robolearn record write it"
ONE_ARM = "it was made for panda, this is {0}: one arm, one policy. `robolearn train` on data of {0} makes one for it"
OTHERS = (
    "robosuite:<Name>, gym:<module>:<Id-v0>, metaworld:<task>, envpool:<task of metaworld>, ogbench:<task>, "
    "pusht:state, aloha:<task>, isaaclab:<task>, "
    "libero:<suite>/<number>"
)
TASKS = (
    f"lift, lift_to, pick_place, peg_insert, peg_insert_tight, lift_two, handover, lift_back, pick_place_back, {OTHERS}"
)
OTHER_TASK = (
    "observation 'objects': got 18 numbers (target_x, target_y, target_z and 3 more unknown to it), expected the 12 that it "
    "was trained on. It was trained on another task, or by another robot"
)
SAYS: dict[str, str] = {
    # --- the command line
    "trian": "command: got trian (did you mean train?), expected one that robolearn --help lists",
    "dataset inf": "command 'dataset': got dataset inf, expected one word more; available: dataset info, …",
    "train": "robolearn train: --data and --out are missing. See robolearn train --help",
    "train --data demos": "robolearn train: --out is missing. See robolearn train --help",
    "dataset info": "robolearn dataset info: PATH is missing. See robolearn dataset info --help",
    "hub push": "robolearn hub push: PATH and OWNER/NAME are missing. See robolearn hub push --help",
    "runs compare": "runs compare: got no run, expected two or more",
    "evaluate --policy": "robolearn evaluate: --policy needs a value. See robolearn evaluate --help",
    "train --data demos --out n --stepps 3":
        "robolearn train: there is no flag --stepps (did you mean --steps?). See robolearn train --help",
    "train --data demos --out n --no-video": "robolearn train: there is no flag --no-video. See robolearn train --help",
    "collect --out n stray": "robolearn collect: 'stray' stands where no value belongs. See robolearn collect --help",
    "train --data demos --out n --steps many":
        "robolearn train: --steps takes a whole number, not many. See robolearn train --help",
    "train --data demos --out n --mix a b": "robolearn train: --mix takes numbers, not a b. See robolearn train --help",
    "finetune --policy runs/bc --out n --initial-noise x":
        "robolearn finetune: --initial-noise takes a number, not x. See robolearn finetune --help",
    "evaluate --policy runs/bc --looks wldi": "robolearn evaluate: --looks: got wldi; available: none, mild, wild "
        "(did you mean wild?). See robolearn evaluate --help",
    # --- numbers and names
    "collect --out n --episodes 0": "--episodes: got 0, expected at least 1",
    "collect --out n --cameras fornt": "camera: got fornt; available: front, side, wrist (did you mean front?)",
    "collect --out n --start-range 2": "start range: got 2.0, expected above 0, at most 1",
    "train --data demos --out n --lr -1": "--lr: got -1.0, expected a positive number",
    "train --data demos --out n --lr-final -1": "--lr-final: got -1.0, expected a positive number, or 0",
    "train --data demos --out n --ema 1": "--ema: got 1.0, expected a share from 0 to less than 1",
    "train --data demos --out n --steps 0": "--steps: got 0, expected at least 1",
    "train --data demos --out n --observe propio": "observation of data set demos: got no 'propio', expected what it "
        "has; available: proprio, objects (did you mean proprio?)",
    "train --data demos --out n --observe proprio images": "observation of data set demos: got no 'images', nor any other "
        "camera, expected what it has; available: proprio, objects",
    "train --data demos --out n --encoder resnet18": "--encoder: got a policy without images, which observes "
        "proprio, objects, expected a camera among what it observes",
    "train --data demos --out n --random-shift 4": "--random-shift: got a policy without images, which observes "
        "proprio, objects, expected a camera among what it observes",
    "distill --teacher runs/bc --out n --observe proprio images": "--observe: got images, of which a set that is yet to come "
        "has none, expected cameras by their names, e.g. images.front images.wrist",
    "train --data demos --out n --weights": "data set demos: got no sampling weights, expected some. `robolearn dataset "
        "quality --weights` writes them",
    "train --data demos --out n --eval-every 2": "--eval-every: got 2, expected --eval-task with it, to evaluate in",
    "train --data demos --out n --patience 2": "--patience: got 2, expected --eval-every with it: it counts evaluations",
    "train --data demos --out n --eval-task lft": f"task: got lft; available: {TASKS} (did you mean lift?)",
    "finetune --policy runs/bc --out n --task lft": f"task: got lft; available: {TASKS} (did you mean lift?)",
    "finetune --policy runs/bc --out n --env-steps 3000": "--env-steps: got 3000, expected at least 54614, for 4 "
        "iterations of 10240 (128 worlds x 80 steps). --worlds 7 are as many as that pays for",
    "finetune --policy runs/bc --out n --critic-observe objcts": "observation of the critic's worlds: got no 'objcts', "
        "expected what it has; available: proprio, objects (did you mean objects?)",
    "finetune --policy runs/bc --out n --algo grpo --env-steps 300": "--env-steps: got 300, expected at least 10923, for 1 "
        "iteration of 8192 (128 worlds x 64 steps). A lower --worlds (now 128) makes an iteration cheaper; --env-steps pays for "
        "more",
    "hil run --policy runs/bc --out n --task lft": f"task: got lft; available: {TASKS} (did you mean lift?)",
    "evaluate --policy runs/bc --task gym:nomodule": "task gym:nomodule: it is gym:<module>:<Id-v0>, as in "
        "gym:gymnasium:Pendulum-v1",
    "evaluate --policy runs/bc --task gym:nomodule:X-v0":
        "task gym:nomodule:X-v0: no module nomodule is installed, and no nomodule.py is here",
    "collect --out n --task gym:gymnasium:Pendulum-v1": "scripted expert for task: got gym:gymnasium:Pendulum-v1; "
        "available: lift, lift_to, pick_place, peg_insert, peg_insert_tight, lift_two, handover, lift_back, pick_place_back. Other demonstrations are recorded from Python "
        "by EpisodeWriter: robolearn/examples/catch.py",
    "collect --out n --task peg_insert --robot so101": "robot of peg_insert: got so101, expected an arm that can do it; "
        "available: panda, fr3, ur5e. A jaw that turns holds no peg upright, and the ways back are laid out for longer arms",
    "evaluate --policy runs/bc --robot so101": f"policy runs/bc in lift: {ONE_ARM.format('so101')}",
    # --- arms
    "hil run --policy runs/so101 --out n --task peg_insert": "robot of peg_insert: got so101, expected an arm that can do it; "
        "available: panda, fr3, ur5e. A jaw that turns holds no peg upright, and the ways back are laid out for longer arms",
    "hil run --policy runs/bc --out n --robot fr3 --teleop keyboard":
        f"policy runs/bc on fr3: {ONE_ARM.format('fr3')}",
    "hil run --policy runs/bc --out n --robot sim --task lift --teleop gamepad --delay-steps 5":
        "--delay-steps: got 5 beside --robot, expected 0: an arm has a delay of its own",
    "hil run --policy runs/bc --out n --task lift --teleop keyboard": "keyboard: got a standard input that is no terminal, "
        "expected a terminal. Start the program in a terminal, or choose another device",
    "deploy --policy runs/bc --robot fr3": f"policy runs/bc on fr3: {ONE_ARM.format('fr3')}",
    "deploy --policy nope --robot fr3": f"policy nope: there is no such folder. {A_POLICY}",
    "deploy --policy runs/fr3 --robot fr3": "fr3 is a real arm, and there is no terminal to ask on before it moves. Start "
        "this in a terminal, or with --yes where somebody holds the emergency stop",
    "record --policy runs/bc --robot fr3 --task lift --out n": f"policy runs/bc on fr3: {ONE_ARM.format('fr3')}",
    "record --policy nope --robot fr3 --out n": f"policy nope: there is no such folder. {A_POLICY}",
    "record --policy runs/fr3 --robot fr3 --task lift --out n": "keyboard: got a standard input that is no terminal, "
        "expected a terminal. Start the program in a terminal, or choose another device",
    "driver --robot fr3": "contract fr3: it names no servos, and this drives nothing else. Start the arm's own ROS driver, "
        "or name port and calibration under servos there",
    "driver --robot nope": "contract: got nope; available: fr3, sim, so101, ur5e, fr3_pair, panda_pair, so101_pair, <path>.yaml",
    # --- a hub
    "hub push runs/bc lift": "hub: name: got lift, expected OWNER/NAME, e.g. me/lift-fr3",
    "calibrate --robot fr3": "contract fr3: it has no camera. Describe one there first",
    # --- policies, sets and runs
    "evaluate --policy nope": f"policy nope: there is no such folder. {A_POLICY}",
    "finetune --policy runs --out n": "policy runs: that is a folder of runs, name one of them; available: bc",
    "evaluate --policy demos": "policy demos: that is a data set. robolearn train --data demos makes a policy of it",
    "train --data demos --from nope --out n": f"policy nope: there is no such folder. {A_POLICY}",
    "hil run --policy nope --out n": f"policy nope: there is no such folder. {A_POLICY}",
    "hil run --policy runs/bc --out n --task pick_place": f"policy runs/bc in pick_place: {OTHER_TASK}",
    "finetune --policy runs/bc --out n --task pick_place": f"policy runs/bc in pick_place: {OTHER_TASK}",
    "distill --teacher runs/bc --out n --task pick_place": f"teacher runs/bc in pick_place: {OTHER_TASK}",
    "train --data nope --out n": f"data set nope: there is no such folder. {A_SET}",
    "dataset validate nope": f"data set nope: there is no such folder. {A_SET}",
    "train --data runs/bc --out n": "data set runs/bc: got no meta/info.json, expected a LeRobotDataset v3.0 folder",
    "collect --out demos --resume --robot fr3": "data set demos: interface, observation: got proprio (17: fr3_joint1, …), "
        "objects (12: cube_x, …), expected proprio (17: panda_joint1, …), objects (12: cube_x, …), as the episodes have "
        "it that are there",
    "train --data demos --out n --resume":
        "run n: there is nothing to resume in it (no config.json). Start it without --resume",
    "train --data demos --out runs/bc": "run runs/bc: got a folder that is not empty, expected a new one. --resume goes "
        "on with it, another --out starts afresh",
    "finetune --policy runs/bc --out runs/bc --resume":
        "run runs/bc: it is one of robolearn train, not of robolearn finetune. Start another --out",
    "runs nope": "runs folder nope: there is no such folder",
    "runs compare runs/bc nope": "run nope: there is no such folder. robolearn runs lists those that there are",
    "runs rm demos": "run demos: that is no run folder. robolearn runs lists those that there are",
    "runs rm": "runs rm: got no run, expected one or more",
    # --- places
    "collect --out /proc/nope": "--out /proc/nope: got a place that cannot be written (no such file or directory), "
        "expected a folder of yours, or another name",
    "collect --out demos/README/x": "--out demos/README/x: got demos/README, which is a file, expected a folder on the "
        "way, or a new name",
    "dataset quality demos --out x.pdf": "--out x.pdf: got no HTML file, expected a path that ends in .html",
    # --- files of flags, sweeps
    "train --config nope --data demos --out n": "--config nope: there is no such file, and no such preset; available: "
        "reinflow-paper, reinflow-short, diffusion, dppo, rlpd-paper, groups",
    "train --config dppo --data demos --out n": "--config dppo: got robolearn train, expected robolearn finetune",
    "sweep --out n -- evaluate": "training behind --: got evaluate; available: train, finetune, distill",
    "sweep --out n --vary lr -- train": "--vary: got lr, expected a flag and its values, as in lr=0.001,0.0003",
    "train --data demos --out n --log wandbb": "robolearn train: --log: got wandbb; available: none, wandb, trackio, "
        "mlflow (did you mean wandb?). See robolearn train --help",
}  # fmt: skip


@pytest.fixture(scope="module")
def place(demos: Path, bc: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    import shutil

    folder = tmp_path_factory.mktemp("messages")
    shutil.copytree(demos, folder / "demos")
    (folder / "demos" / "README").write_text("a file")
    shutil.copytree(bc, folder / "runs" / "bc")
    make_policy(folder / "runs" / "so101", make_env("lift", 1, robot="so101", threads=1).interface)
    make_policy(folder / "runs" / "fr3", load_contract("fr3").with_cameras(()).interface)
    return folder


@pytest.mark.parametrize("line", SAYS)
def test_a_message_is_as_it_was_read(
    line: str, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(place)
    assert main(shlex.split(line)) == 2
    out, err = capsys.readouterr()
    said = err.removeprefix("robolearn: error: ").removesuffix("\n")
    begun = SAYS[line].split("available: dataset info, …")[0]  # a long list of commands is not repeated here
    assert not out and (said == SAYS[line] or (begun != SAYS[line] and said.startswith(begun)))
    assert not os.path.exists("n"), "something was written"
