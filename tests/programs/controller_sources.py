"""The emulator of joint_trajectory_controller beside the controller's own sources, sample by sample.

    git clone https://github.com/ros-controls/ros2_controllers
    python tests/programs/controller_sources.py ros2_controllers

`trajectory.cpp` of the checkout is compiled as it is, with stand-ins for the headers of ROS that it includes, and is
led as the controller's `update` leads it: a new message takes the place of the one before, the point before it is what
is measured or was last commanded, and what is commanded is the sample of the next period. Random messages go to both,
with and without stamps and velocities, early and late, at several speeds; the measured arm follows late. Ends with 1
where they differ. Wants g++.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from robolearn.bench.emulators.trajectory_controller import PERIOD_S, TrajectoryController, TrajectoryPoint

JOINTS = ("a", "b")
SPEEDS = (1.0, 1.0, 0.5, 0.0)
TOLERANCE = 1e-7  # [rad]

HEADERS = {
    "rclcpp/time.hpp": """
#pragma once
#include <cstdint>
#include "rclcpp/duration.hpp"
namespace rclcpp {
struct Time {
  int64_t ns; Time(int64_t n = 0) : ns(n) {} Time(const Stamp & s) : ns(int64_t(s.sec) * 1000000000 + s.nanosec) {}
  double seconds() const { return 1e-9 * ns; }
};
inline Time operator+(Time t, Duration d) { return Time(t.ns + d.ns); }
inline Duration operator-(Time a, Time b) { return Duration::of(a.ns - b.ns); }
inline bool operator<(Time a, Time b) { return a.ns < b.ns; }
inline bool operator>(Time a, Time b) { return a.ns > b.ns; }
inline bool operator>=(Time a, Time b) { return a.ns >= b.ns; }
inline bool operator<=(Time a, Time b) { return a.ns <= b.ns; }
}
""",
    "rclcpp/duration.hpp": """
#pragma once
#include <cstdint>
struct Stamp { int32_t sec = 0; uint32_t nanosec = 0; };
namespace rclcpp {
struct Duration {
  int64_t ns; Duration(const Stamp & s) : ns(int64_t(s.sec) * 1000000000 + s.nanosec) {}
  Duration(int32_t s, uint32_t n) : ns(int64_t(s) * 1000000000 + n) {}
  static Duration of(int64_t n) { Duration d(0, 0); d.ns = n; return d; }
  static Duration from_seconds(double s) { return of(int64_t(1e9 * s)); }
  double seconds() const { return 1e-9 * ns; }
};
inline bool operator<=(Duration a, Duration b) { return a.ns <= b.ns; }
}
""",
    "rclcpp/rclcpp.hpp": """
#pragma once
#include <algorithm>
#include "rclcpp/time.hpp"
namespace rclcpp { struct Logger {}; inline Logger get_logger(const char *) { return {}; } }
#define RCLCPP_INFO(...)
#define RCLCPP_WARN(...)
#define RCLCPP_INFO_STREAM(...)
#define RCLCPP_WARN_STREAM(...)
""",
    "angles/angles.h": """
#pragma once
#include <cmath>
namespace angles {
inline double shortest_angular_distance(double a, double b) { return std::remainder(b - a, 2 * M_PI); } }
""",
    "hardware_interface/macros.hpp": """
#pragma once
#include <stdexcept>
#define THROW_ON_NULLPTR(p) if (!p) throw std::runtime_error("null");
""",
    "hardware_interface/lexical_casts.hpp": """
#pragma once
#include <string>
namespace hardware_interface { inline std::string to_lower_case(const std::string & text) { return text; } }
""",
    "trajectory_msgs/msg/joint_trajectory_point.hpp": """
#pragma once
#include <vector>
#include "rclcpp/time.hpp"
namespace trajectory_msgs::msg { struct JointTrajectoryPoint {
  std::vector<double> positions, velocities, accelerations, effort; Stamp time_from_start; }; }
""",
    "trajectory_msgs/msg/joint_trajectory.hpp": """
#pragma once
#include <string>
#include "trajectory_msgs/msg/joint_trajectory_point.hpp"
namespace trajectory_msgs::msg { struct JointTrajectory {
  struct { Stamp stamp; } header; std::vector<std::string> joint_names; std::vector<JointTrajectoryPoint> points; }; }
""",
}

# Lines in: `m stamp count, then per point: after, velocities or not, positions, velocities` and `s now period speed
# measured velocities`. Lines out, one for each `s`: the positions of the command. Times are in nanoseconds.
MAIN = """
#include <iostream>
#include "joint_trajectory_controller/trajectory.hpp"
using namespace joint_trajectory_controller;
using trajectory_msgs::msg::JointTrajectory; using Point = trajectory_msgs::msg::JointTrajectoryPoint;
static Stamp stamp(int64_t ns) {
  Stamp s; s.sec = int32_t(ns / 1000000000); s.nanosec = uint32_t(ns % 1000000000); return s; }
int main(int, char ** argv) {
  const bool from_desired = argv[1][0] == '1';
  const auto how = interpolation_methods::InterpolationMethod::VARIABLE_DEGREE_SPLINE;
  Trajectory current; Point last; int64_t traj_time = 0, last_time = 0;
  std::cout.precision(17);
  for (std::string kind; std::cin >> kind;) {
    if (kind == "m") {
      auto m = std::make_shared<JointTrajectory>(); int64_t at; size_t count; std::cin >> at >> count;
      m->header.stamp = stamp(at);
      for (size_t i = 0; i < count; ++i) {
        Point p; int64_t after; int has; double x; std::cin >> after >> has; p.time_from_start = stamp(after);
        for (int j = 0; j < 2; ++j) { std::cin >> x; p.positions.push_back(x); }
        for (int j = 0; has && j < 2; ++j) { std::cin >> x; p.velocities.push_back(x); }
        m->points.push_back(p);
      }
      current.update(m); continue;
    }
    int64_t now, period; double speed, x; std::cin >> now >> period >> speed;
    Point measured, desired, next; TrajectoryPointConstIter a, b;
    for (int j = 0; j < 2; ++j) { std::cin >> x; measured.positions.push_back(x); }
    for (int j = 0; j < 2; ++j) { std::cin >> x; measured.velocities.push_back(x); }
    if (last.positions.empty()) { last = measured; last.velocities = {0, 0}; last.time_from_start = stamp(0); }
    if (current.has_trajectory_msg()) {
      if (!current.is_sampled_already()) {
        const int64_t from = from_desired && last_time ? last_time : now;
        current.set_point_before_trajectory_msg(rclcpp::Time(from), from_desired ? last : measured);
        traj_time = now;
      } else { traj_time += int64_t(speed * period); }
      current.sample(rclcpp::Time(traj_time), how, desired, a, b);
      if (current.sample(rclcpp::Time(traj_time + period), how, next, a, b, false)) last = next;
    }
    last_time = now;
    std::cout << last.positions[0] << ' ' << last.positions[1] << '\\n';
  }
}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="of ros2_controllers")
    parser.add_argument("--messages", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source = args.checkout / "joint_trajectory_controller/src/trajectory.cpp"
    if not source.is_file():
        print(
            f"error: got {args.checkout}, expected a checkout of ros2_controllers ({source} is not there)",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory() as folder:
        for name, text in HEADERS.items():
            path = Path(folder, "stand-ins", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        Path(folder, "main.cpp").write_text(MAIN)
        own = args.checkout / "joint_trajectory_controller/include"
        subprocess.run(
            [
                "g++",
                "-std=c++17",
                "-O1",
                f"-I{own}",
                f"-I{folder}/stand-ins",
                f"{folder}/main.cpp",
                source,
                "-o",
                f"{folder}/it",
            ],
            check=True,
        )
        worst = 0.0
        for from_desired in (False, True):
            lines, ours = _both(np.random.default_rng(args.seed), args.messages, from_desired)
            said = subprocess.run(
                [f"{folder}/it", str(int(from_desired))],
                input="\n".join(lines),
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            theirs = np.array([line.split() for line in said.splitlines()], np.float64)
            apart = np.abs(np.array(ours) - theirs).max(axis=1)
            start, far = "desired" if from_desired else "measured", apart.max()
            longest = np.abs(np.diff(theirs, axis=0)).max()
            print(f"from {start}: {args.messages} messages, {len(ours)} samples, at most {far:.1e} rad apart;", end=" ")
            print(f"longest step {longest:.2f} rad")
            worst = max(worst, float(far))
    return int(worst > TOLERANCE)


def _both(rng: np.random.Generator, messages: int, from_desired: bool) -> tuple[list[str], list[np.ndarray]]:
    """The lines for the sources, and what the emulator commands."""
    measured, velocity = np.zeros(2), np.zeros(2)
    controller = TrajectoryController(JOINTS, measured, from_desired=from_desired)
    lines, ours = [], []
    period = round(1e9 * PERIOD_S)
    now = 1000 * 10**9  # [ns]; a float64 shows the time of day to 2.4e-7 s only

    def sample(speed: float) -> None:
        nonlocal measured, velocity, now
        now += period
        lines.append(f"s {now} {period} {speed!r} {_row(measured)} {_row(velocity)}")
        controller.speed = speed
        ours.append(controller.sample(1e-9 * now, measured, velocity).copy())
        velocity = 20.0 * (ours[-1] - measured)
        measured = measured + PERIOD_S * velocity

    for _ in range(messages):
        stamp = 0 if rng.random() < 0.2 else now + int(rng.integers(-60, 60)) * 10**6 + int(rng.integers(0, 10**6))
        # Never on a sample exactly: by rounding, that may belong to either segment.
        after, points = int(rng.integers(0, 40)) * 10**6 + int(rng.integers(1, 10**6)), []
        for i in range(count := int(rng.integers(1, 12))):
            rests = i == count - 1
            v = None if rng.random() < 0.2 else np.zeros(2) if rests else rng.normal(size=2)
            points.append((after, rng.normal(scale=0.3, size=2), v))
            after += int(rng.integers(1, 40)) * 10**6
        made = [TrajectoryPoint(1e-9 * at, q, v) for at, q, v in points]
        if controller.accept(JOINTS, made, 1e-9 * stamp, 1e-9 * now):
            continue  # it ends in the past: the controller's `validate` refuses it before these sources see it
        text = " ".join(f"{at} {int(v is not None)} {_row(q)} {'' if v is None else _row(v)}" for at, q, v in points)
        lines.append(f"m {stamp} {len(points)} {text}")
        speed = float(rng.choice(SPEEDS))
        for _ in range(int(rng.integers(1, 120))):
            sample(speed)
    return lines, ours


def _row(values: np.ndarray) -> str:
    return " ".join(repr(float(value)) for value in values)


if __name__ == "__main__":
    sys.exit(main())
