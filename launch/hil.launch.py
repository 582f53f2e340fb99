"""A human in the loop: ros2 launch robolearn hil.launch.py robot:=fr3 policy:=runs/bc out:=runs/hil."""

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
    """The actor, which starts its learner, and the arm behind its safety filter."""
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
                "terminal that robolearn hil run has",
            ),
            DeclareLaunchArgument("policy", description="the policy to begin with: a run or its checkpoint folder"),
            DeclareLaunchArgument("out", description="the run folder; a run that is there already is gone on with"),
            DeclareLaunchArgument("demos", default_value="", description="folder of a data set of demonstrations"),
            DeclareLaunchArgument(
                "algo", default_value="proposals", description="the algorithm: proposals, rlpd or dsrl"
            ),
            DeclareLaunchArgument(
                "reward",
                default_value="task",
                description="task: in simulation its own, and what you say of it; key: your success key alone; or "
                "<module>:<Class> of yours",
            ),
            DeclareLaunchArgument("env_steps", default_value="24000", description="budget of control steps"),
            DeclareLaunchArgument("seconds", default_value="30.0", description="longest episode [s]"),
            DeclareLaunchArgument("task", default_value="peg_insert_tight", description="task of the simulated arm"),
            DeclareLaunchArgument(
                "host",
                default_value="127.0.0.1",
                description="where the page of teleop:=browser listens; 0.0.0.0: for phones too, with TLS and a token",
            ),
            DeclareLaunchArgument("port", default_value="8070", description="its port; 0 takes a free one"),
            DeclareLaunchArgument(
                "realtime_priority",
                default_value="0",
                description="SCHED_FIFO priority of what drives the arm, 1 to 99, 0 for none; robolearn doctor says "
                "whether this user may",
            ),
            # First, so that nothing is started where this executable is not installed.
            Node(
                package="robolearn",
                executable="hil_node",
                namespace=LaunchConfiguration("namespace"),
                name="hil",
                parameters=[
                    {
                        "contract": ParameterValue(LaunchConfiguration("robot"), value_type=str),
                        "device": ParameterValue(LaunchConfiguration("teleop"), value_type=str),
                        "policy": ParameterValue(LaunchConfiguration("policy"), value_type=str),
                        "demos": ParameterValue(LaunchConfiguration("demos"), value_type=str),
                        "out": ParameterValue(LaunchConfiguration("out"), value_type=str),
                        "algo": ParameterValue(LaunchConfiguration("algo"), value_type=str),
                        "reward": ParameterValue(LaunchConfiguration("reward"), value_type=str),
                        "env_steps": ParameterValue(LaunchConfiguration("env_steps"), value_type=int),
                        "seconds": ParameterValue(LaunchConfiguration("seconds"), value_type=float),
                        "task": ParameterValue(LaunchConfiguration("task"), value_type=str),
                        "host": ParameterValue(LaunchConfiguration("host"), value_type=str),
                        "port": ParameterValue(LaunchConfiguration("port"), value_type=int),
                        "realtime_priority": ParameterValue(LaunchConfiguration("realtime_priority"), value_type=int),
                    }
                ],
                output="screen",
                on_exit=Shutdown(reason="the loop has ended"),
            ),
            IncludeLaunchDescription(PythonLaunchDescriptionSource(str(ARM))),
        ]
    )
    return run_path(str(ARM))["checked"](__file__, description)
