"""The arm behind its safety filter: what deploy, teleop and record have in common, each of which includes it.

What streams targets to the filter is theirs: the streamer those of a policy, teleoperation its own.

Shared as a launch file, not as a module: ``ros2`` runs with the system's Python, which sees the prefix that robolearn
is installed in (AMENT_PREFIX_PATH) but not its packages. Launch files therefore import nothing but ROS's own.
"""

import difflib
import sys
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction, Shutdown
from launch.conditions import IfCondition, UnlessCondition
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import EqualsSubstitution, LaunchConfiguration, OrSubstitution
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

SIM_ARM = Path(__file__).with_name("sim_arm.launch.py")


def checked(file: str, description: LaunchDescription) -> LaunchDescription:
    """`description`, which first refuses arguments that it does not know.

    ROS's launch passes over them in silence, so that ``dry-run:=true`` moves the arm. Where a launch file of somebody
    else's includes `file`, the arguments are that one's, and nothing is said.
    """

    def check(context: LaunchContext) -> None:
        name = Path(file).name
        if not any(Path(word).name == name for word in sys.argv):
            return
        given = [word.split(":=", 1)[0] for word in context.argv if ":=" in word]
        known = sorted({argument.name for argument in description.get_launch_arguments()})
        unknown = [word for word in given if word not in known]
        if unknown:
            near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.5)
            meant = f" (did you mean {near[0]}:=?)" if near else ""
            raise RuntimeError(f"{name} knows no {unknown[0]}:={meant}; available: {', '.join(known)}")

    return LaunchDescription([OpaqueFunction(function=check), *description.entities])


def generate_launch_description() -> LaunchDescription:
    """The safety node, what passes openings on to a gripper that knows only actions, for ``robot:=sim`` the arm."""
    robot = LaunchConfiguration("robot")
    contract = ParameterValue(robot, value_type=str)
    priority = ParameterValue(LaunchConfiguration("realtime_priority"), value_type=int)
    dry_run = ParameterValue(LaunchConfiguration("dry_run"), value_type=bool)
    targets = ParameterValue(LaunchConfiguration("targets"), value_type=str)
    description = LaunchDescription(
        [
            DeclareLaunchArgument(
                "namespace",
                default_value="robolearn",
                description="of our nodes: left/robolearn for a contract with the namespace left",
            ),
            DeclareLaunchArgument(
                "robot",
                default_value="sim",
                description="robot contract: its name, as robolearn deploy --help lists them, or a YAML file of yours",
            ),
            DeclareLaunchArgument(
                "dry_run",
                default_value="false",
                description="true: everything runs, but nothing is sent to the arm",
            ),
            DeclareLaunchArgument(
                "targets",
                default_value="joints",
                description="what the safety node takes: joints, or poses of the tcp on target_pose, from a planner",
            ),
            DeclareLaunchArgument(
                "realtime_priority",
                default_value="0",
                description="SCHED_FIFO priority of what drives the arm, 1 to 99, 0 for none; robolearn doctor "
                "says whether this user may",
            ),
            Node(
                package="robolearn",
                executable="safety_node",
                namespace=LaunchConfiguration("namespace"),
                name="safety",
                parameters=[
                    {"contract": contract, "dry_run": dry_run, "targets": targets, "realtime_priority": priority}
                ],
                output="screen",
                # Never restarted: whoever looks why it ended also looks at the arm.
                on_exit=Shutdown(reason="the safety node has ended, and nothing may move without it"),
            ),
            # Whether the gripper knows only actions stands in the contract, which is not read here.
            Node(
                package="robolearn",
                executable="gripper_node",
                namespace=LaunchConfiguration("namespace"),
                name="gripper",
                parameters=[{"contract": contract, "if_needed": True}],
                output="screen",
                condition=UnlessCondition(
                    OrSubstitution(EqualsSubstitution(robot, "sim"), LaunchConfiguration("dry_run"))
                ),
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(str(SIM_ARM)), condition=IfCondition(EqualsSubstitution(robot, "sim"))
            ),
        ]
    )
    return checked(__file__, description)
