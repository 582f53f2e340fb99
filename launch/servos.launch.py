"""The driver of an arm of bus servos: ros2 launch robolearn servos.launch.py robot:=so101."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

ARM = Path(__file__).with_name("arm.launch.py")


def generate_launch_description() -> LaunchDescription:
    """One node, which is the arm's driver and its controller; beside it start deploy, teleop or record."""
    description = LaunchDescription(
        [
            DeclareLaunchArgument(
                "namespace",
                default_value="follower/robolearn",
                description="of our nodes: follower/robolearn for a contract with the namespace follower",
            ),
            DeclareLaunchArgument(
                "robot",
                default_value="so101",
                description="robot contract with the key servos: its name, or a YAML file of yours",
            ),
            DeclareLaunchArgument("port", default_value="", description="serial port, in place of the contract's"),
            DeclareLaunchArgument(
                "limp", default_value="false", description="true: no torque, the arm is moved by hand and measured"
            ),
            DeclareLaunchArgument(
                "release", default_value="false", description="true: no torque at the end; the arm falls"
            ),
            DeclareLaunchArgument(
                "realtime_priority",
                default_value="0",
                description="SCHED_FIFO priority of what drives the arm, 1 to 99, 0 for none; robolearn doctor says "
                "whether this user may",
            ),
            Node(
                package="robolearn",
                executable="servos_node",
                namespace=LaunchConfiguration("namespace"),
                name="servos",
                parameters=[
                    {
                        "contract": ParameterValue(LaunchConfiguration("robot"), value_type=str),
                        "port": ParameterValue(LaunchConfiguration("port"), value_type=str),
                        "limp": ParameterValue(LaunchConfiguration("limp"), value_type=bool),
                        "release": ParameterValue(LaunchConfiguration("release"), value_type=bool),
                        "realtime_priority": ParameterValue(LaunchConfiguration("realtime_priority"), value_type=int),
                    }
                ],
                output="screen",
            ),
        ]
    )
    return run_path(str(ARM))["checked"](__file__, description)
