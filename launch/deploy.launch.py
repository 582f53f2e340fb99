"""A policy on an arm: ros2 launch robolearn deploy.launch.py robot:=fr3 policy:=runs/rl."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

ARM = Path(__file__).with_name("arm.launch.py")


def generate_launch_description() -> LaunchDescription:
    """The policy node, the streamer and the arm behind its safety filter."""
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
            DeclareLaunchArgument("policy", description="folder of the policy: a run or its checkpoint"),
            DeclareLaunchArgument(
                "words", default_value="", description="what to do, in a sentence, for a policy trained with words"
            ),
            DeclareLaunchArgument(
                "goals",
                default_value="",
                description="a data set whose ends are goals, for a policy trained with a goal",
            ),
            DeclareLaunchArgument(
                "device",
                default_value="auto",
                description="where the policy computes: auto (a GPU where there is one), cpu, cuda or cuda:<index>",
            ),
            DeclareLaunchArgument(
                "realtime_priority",
                default_value="0",
                description="SCHED_FIFO priority of what drives the arm, 1 to 99, 0 for none; robolearn doctor says "
                "whether this user may",
            ),
            # First, so that nothing is started where this executable is not installed.
            Node(
                package="robolearn",
                executable="policy_node",
                namespace=LaunchConfiguration("namespace"),
                name="policy",
                parameters=[
                    {
                        "contract": ParameterValue(LaunchConfiguration("robot"), value_type=str),
                        "policy": ParameterValue(LaunchConfiguration("policy"), value_type=str),
                        "words": ParameterValue(LaunchConfiguration("words"), value_type=str),
                        "goals": ParameterValue(LaunchConfiguration("goals"), value_type=str),
                        "device": ParameterValue(LaunchConfiguration("device"), value_type=str),
                    }
                ],
                output="screen",
                on_exit=Shutdown(reason="the policy node has ended"),
            ),
            Node(
                package="robolearn",
                executable="streamer_node",
                namespace=LaunchConfiguration("namespace"),
                name="streamer",
                parameters=[
                    {
                        "contract": ParameterValue(LaunchConfiguration("robot"), value_type=str),
                        "realtime_priority": ParameterValue(LaunchConfiguration("realtime_priority"), value_type=int),
                    }
                ],
                output="screen",
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(str(ARM))),
        ]
    )
    return run_path(str(ARM))["checked"](__file__, description)
