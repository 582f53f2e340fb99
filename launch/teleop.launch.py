"""An operator moves the arm: ros2 launch robolearn teleop.launch.py robot:=fr3 device:=spacemouse."""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

ARM = Path(__file__).with_name("arm.launch.py")


def generate_launch_description() -> LaunchDescription:
    """The teleoperator's node and the arm behind its safety filter."""
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                "robot",
                default_value="sim",
                description="robot contract: sim, fr3, ur5e, so101 or a YAML file of yours",
            ),
            DeclareLaunchArgument(
                "device",
                default_value="gamepad",
                description="what the operator holds: gamepad, spacemouse, keyboard, leader",
            ),
            # First, so that nothing is started where this executable is not installed.
            Node(
                package="robolearn",
                executable="teleop_node",
                namespace="robolearn",
                name="teleop",
                parameters=[
                    {
                        "contract": ParameterValue(LaunchConfiguration("robot"), value_type=str),
                        "device": ParameterValue(LaunchConfiguration("device"), value_type=str),
                    }
                ],
                output="screen",
                on_exit=Shutdown(reason="teleoperation has ended"),
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(str(ARM))),
        ]
    )
