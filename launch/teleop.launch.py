"""An operator moves the arm: ros2 launch robolearn teleop.launch.py robot:=fr3 teleop:=spacemouse."""

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
    """The teleoperator's node and the arm behind its safety filter."""
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
            DeclareLaunchArgument("device", default_value="gamepad", description="the former name of teleop"),
            DeclareLaunchArgument(
                "teleop",
                default_value=LaunchConfiguration("device"),
                description="what the operator holds: gamepad, spacemouse or browser; keyboard and leader need the "
                "terminal that robolearn record has",
            ),
            DeclareLaunchArgument(
                "host",
                default_value="127.0.0.1",
                description="where the page of teleop:=browser listens; 0.0.0.0: for phones too, with TLS and a token",
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
                executable="teleop_node",
                namespace=LaunchConfiguration("namespace"),
                name="teleop",
                parameters=[
                    {
                        "contract": ParameterValue(LaunchConfiguration("robot"), value_type=str),
                        "device": ParameterValue(LaunchConfiguration("teleop"), value_type=str),
                        "host": ParameterValue(LaunchConfiguration("host"), value_type=str),
                        "realtime_priority": ParameterValue(LaunchConfiguration("realtime_priority"), value_type=int),
                    }
                ],
                output="screen",
                on_exit=Shutdown(reason="teleoperation has ended"),
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(str(ARM))),
        ]
    )
    return run_path(str(ARM))["checked"](__file__, description)
