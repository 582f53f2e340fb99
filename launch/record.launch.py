"""Demonstrations: ros2 launch robolearn record.launch.py robot:=fr3 out:=data/fr3 task:="stack the cups"."""

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
    """The recorder and the arm behind its safety filter."""
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
            DeclareLaunchArgument("out", description="folder of the data set; it is added to where it exists"),
            DeclareLaunchArgument("words", default_value="", description="the former name of task"),
            DeclareLaunchArgument(
                "task",
                default_value=LaunchConfiguration("words"),
                description="the task in words; in simulation by default those of sim_task",
            ),
            DeclareLaunchArgument("episodes", default_value="10", description="how many the data set has in the end"),
            DeclareLaunchArgument(
                "cameras",
                default_value="",
                description="those to record, e.g. front,wrist; by default all of the contract, in simulation none",
            ),
            DeclareLaunchArgument("seconds", default_value="60.0", description="longest episode [s]"),
            DeclareLaunchArgument("sim_task", default_value="lift", description="task of the simulated arm"),
            DeclareLaunchArgument(
                "view",
                default_value="none",
                description="where you see the arm, the task's bodies and the cameras: browser prints the address of a "
                "page, window opens it, none; teleop:=browser has a page of its own, which window opens",
            ),
            DeclareLaunchArgument(
                "host",
                default_value="127.0.0.1",
                description="where the page of teleop:=browser or view:= listens; 0.0.0.0: for phones too, with TLS "
                "and a token",
            ),
            DeclareLaunchArgument(
                "port",
                default_value="8070",
                description="its port; 0 takes a free one, and so does view:= where it is taken",
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
                executable="record_node",
                namespace=LaunchConfiguration("namespace"),
                name="record",
                parameters=[
                    {
                        "contract": ParameterValue(LaunchConfiguration("robot"), value_type=str),
                        "device": ParameterValue(LaunchConfiguration("teleop"), value_type=str),
                        "out": ParameterValue(LaunchConfiguration("out"), value_type=str),
                        "task": ParameterValue(LaunchConfiguration("task"), value_type=str),
                        "episodes": ParameterValue(LaunchConfiguration("episodes"), value_type=int),
                        "cameras": ParameterValue(LaunchConfiguration("cameras"), value_type=str),
                        "seconds": ParameterValue(LaunchConfiguration("seconds"), value_type=float),
                        "sim_task": ParameterValue(LaunchConfiguration("sim_task"), value_type=str),
                        "view": ParameterValue(LaunchConfiguration("view"), value_type=str),
                        "host": ParameterValue(LaunchConfiguration("host"), value_type=str),
                        "port": ParameterValue(LaunchConfiguration("port"), value_type=int),
                        "realtime_priority": ParameterValue(LaunchConfiguration("realtime_priority"), value_type=int),
                    }
                ],
                output="screen",
                on_exit=Shutdown(reason="the recording has ended"),
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(str(ARM))),
        ]
    )
    return run_path(str(ARM))["checked"](__file__, description)
