"""The simulated arm alone, behind the topics that a real arm's controller has."""

from pathlib import Path
from runpy import run_path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

ARM = Path(__file__).with_name("arm.launch.py")


def generate_launch_description() -> LaunchDescription:
    """One node: the MuJoCo arm and its task in real time."""
    description = LaunchDescription(
        [
            DeclareLaunchArgument(
                "namespace",
                default_value="robolearn",
                description="of our nodes: left/robolearn for a contract with the namespace left",
            ),
            DeclareLaunchArgument("task", default_value="lift", description="task of the simulated arm"),
            DeclareLaunchArgument(
                "sim_task",
                default_value=LaunchConfiguration("task"),
                description="the same where task is a task in words, as for record",
            ),
            DeclareLaunchArgument("seed", default_value="0", description="seed of the simulated episodes"),
            Node(
                package="robolearn",
                executable="sim_arm_node",
                namespace=LaunchConfiguration("namespace"),
                name="sim_arm",
                parameters=[
                    {
                        "contract": "sim",
                        "task": ParameterValue(LaunchConfiguration("sim_task"), value_type=str),
                        "seed": ParameterValue(LaunchConfiguration("seed"), value_type=int),
                    }
                ],
                output="screen",
            ),
        ]
    )
    return run_path(str(ARM))["checked"](__file__, description)
