# `make quickstart` and `make test` need nothing but Python 3.11 or 3.12: they make .venv and install into it.
#   make quickstart ARGS="--task pick_place --seed 1"   OUT=runs/name chooses the folder
#   make test ARGS="tests/runs -x"                      PYTHON=/path/to/python3.12 chooses the interpreter
SHELL := /bin/sh
BIN := .venv/bin
LEROBOT := .venv-lerobot/bin
ARGS ?=
OUT ?=
export PYTHON
# Many containers set it: every program, every node of an arm would compile torch anew, for three seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart docs test test-long test-all test-lerobot test-lerobot-pi check lint format wheel-test test-mutants test-record test-crash test-hil-crash test-quality test-worlds test-isaaclab test-rehearsal test-trials \
  test-maker test-controller test-launch test-first-hour figures ros-index clean

help:
	@echo "make quickstart   demonstrations, policy, RL fine-tuning, evaluation and report in about five minutes, after the installation"
	@echo "make test         the quick tests, in about three minutes on two cores; ARGS for some of all"
	@echo "make test-long    those that take longer: whole programs, stations, training, every kind of policy"
	@echo "make test-all     both, in half an hour to an hour; the build machine has 25 minutes, and says how many it leaves out"
	@echo "make test-lerobot-pi LeRobot 0.6, with Python 3.12, lends its π0 and π0.5 (6 GB)"
	@echo "make test-lerobot LeRobot, in an environment of its own, reads our sets, writes sets for us and lends its policies"
	@echo "make test-mutants takes each stage of the safety filter out, and breaks stations, pages and learning in one place, in turn: a test must fail"
	@echo "make test-record  five episodes by script, gamepad and browser on the simulated arm, and a policy from each"
	@echo "make test-crash   kills a recording 200 times: the data set opens every time, with every finished episode"
	@echo "make test-hil-crash kills learner and actor ten times each: what is learned is the same bit for bit"
	@echo "make test-rehearsal deploys policies on emulators of the drivers of FR3 and UR5e, on an SO-101 and on two arms, simulated and behind two drivers"
	@echo "make test-maker   libfranka and a server with the limits of an FR3 follow what the safety filter sends, in three minutes; ARGS=\"--episodes 1000\": episodes of the whole chain, \"--live 6\": the nodes of a deployment, too"
	@echo "make test-controller the emulator of joint_trajectory_controller beside the sources of two versions of it, sample by sample; CHECKOUT=FOLDER for another"
	@echo "make test-launch  trials through launch files by ROS's own ros2 launch, made of its sources; CHECKOUT=FOLDER for others"
	@echo "make test-trials  simulated trials by the thousand: false claims under optional stopping, blocks beside a fixed number"
	@echo "make test-first-hour every command of the first page and the tutorial, a keyboard, a browser, some mistakes, in half an hour"
	@echo "make test-quality trains on the better and on the worse half of mixed demonstrations, and by the advice"
	@echo "make test-worlds  installs the worlds of other makers (1 GB), and learns in each from its own experts"
	@echo "make test-isaaclab  installs Isaac Lab (8 GB), judges its physics by MuJoCo's, and learns our lift there"
	@echo "make figures      measures the figures of the pages that take at most twenty minutes; ARGS=--all the others, too"
	@echo "make check        what has to pass before a commit: lint, types, layers, tests, wheel"
	@echo "make lint         ruff, pyright, import-linter"
	@echo "make format       let ruff put the source in order"
	@echo "make wheel-test   build the wheel, install it in a clean environment, import it"
	@echo "make docs         the site of all pages, and a reference of commands, contracts, settings and plug-ins, in build/docs/site"
	@echo "make ros-index    let ros2 launch find this checkout (after: export AMENT_PREFIX_PATH=$$PWD/.venv:\$$AMENT_PREFIX_PATH)"
	@echo "make clean        remove the environments and caches (runs/ and data/ stay)"

# A folder with content is never overwritten: runs/quickstart, then runs/quickstart-2, and so on.
quickstart: .venv/.base
	@out="$(OUT)"; \
	if [ -z "$$out" ]; then \
	  out=runs/quickstart; n=1; \
	  while [ -e "$$out" ]; do n=$$((n + 1)); out=runs/quickstart-$$n; done; \
	fi; \
	$(BIN)/robolearn quickstart --out "$$out" $(ARGS)

test: .venv/.dev
	.ci/test $(ARGS)

test-long: .venv/.dev
	.ci/test --long $(ARGS)

test-all: .venv/.dev
	.ci/test --all $(ARGS)

# LeRobot pins older versions of what we share with it; robolearn runs with those, too.
# What failed is judged once more, alone: a shared machine stands still now and then, and arms stop then.
test-lerobot: .venv-lerobot/.lerobot
	OMP_NUM_THREADS=1 $(LEROBOT)/python -m pytest -q --cache-clear -n 2 --dist loadfile tests/lerobot $(ARGS) || \
	  OMP_NUM_THREADS=1 $(LEROBOT)/python -m pytest -q --last-failed --last-failed-no-failures none tests/lerobot $(ARGS)

check: lint test-all

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/lint-imports

format: .venv/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.dev
	$(BIN)/python .ci/docs

wheel-test: .venv/.dev
	$(BIN)/python -m pytest -q tests/house/test_wheel.py

ros-index: .venv/.base
	$(BIN)/python .ci/ros-index

# Wants Chromium (.ci/browser). ARGS="--episodes 2".
test-record: .venv/.dev
	out=$$(mktemp -d) && $(BIN)/python tests/programs/record_people.py all --out "$$out" $(ARGS); code=$$?; rm -rf "$$out"; exit $$code

# Wants the network. ARGS="--tasks metaworld:reach-v3" for some.
test-worlds: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/worlds.py $(ARGS)

# Wants the network. ARGS=--rl fine-tunes, too.
test-isaaclab: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/isaac_worlds.py $(ARGS)

# For some of them: .venv/bin/python tests/programs/mutants.py output jump
test-mutants: .venv/.dev
	$(BIN)/python tests/programs/mutants.py
	$(BIN)/python tests/programs/mutants_station.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_arm.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_pair.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_pages.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_view.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_learning.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_offline.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_hil.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_seeing.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_vla.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_rewards.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_dynamics.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_borders.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_trials.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/mutants_worlds.py

# ARGS="--kills 20 --seed 7" for fewer; --keep FOLDER leaves the sets for a closer look.
test-crash: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/crash.py $(ARGS)

# ARGS="--kills 2 --seed 7" for fewer; --keep FOLDER leaves the runs for a closer look.
test-hil-crash: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/hil_crash.py $(ARGS)

# Deployments on emulators of the drivers of FR3 and UR5e, and on a simulated SO-101; they want a machine that does nothing else.
test-rehearsal: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q tests/programs/rehearse_arms.py

# Wants the network (0.5 GB, once) and the right to make a network namespace. ARGS="--rounds 1 --seed 1".
test-maker: .venv/.dev .venv-maker/.maker
	OMP_NUM_THREADS=1 $(BIN)/python tests/programs/maker_judge.py $(ARGS)

# Wants g++, and the network or CHECKOUT=FOLDER of ros2_controllers. ARGS="--messages 10000 --seed 1".
test-controller: .venv/.dev
	@if [ -n "$(CHECKOUT)" ]; then $(BIN)/python tests/programs/controller_sources.py "$(CHECKOUT)" $(ARGS); exit $$?; fi; \
	out=$$(mktemp -d); code=0; \
	for version in 4.42.1 6.9.0; do \
	  git clone -q --depth 1 --branch $$version https://github.com/ros-controls/ros2_controllers "$$out/$$version" && \
	    echo "ros2_controllers $$version" && $(BIN)/python tests/programs/controller_sources.py "$$out/$$version" $(ARGS) || code=1; \
	done; rm -rf "$$out"; exit $$code

# Without wheels: Python alone, three checkouts.
test-launch: .venv/.dev
	@if [ -n "$(CHECKOUT)" ]; then $(BIN)/python tests/programs/launch_sources.py "$(CHECKOUT)"; exit $$?; fi; \
	out=$$(mktemp -d) && for at in launch:3.7.1 launch_ros:0.28.0 ros2cli:0.36.1; do \
	  git clone -q --depth 1 --branch $${at#*:} https://github.com/ros2/$${at%:*} "$$out/$${at%:*}" || exit 1; \
	done; $(BIN)/python tests/programs/launch_sources.py "$$out"; code=$$?; rm -rf "$$out"; exit $$code

# Simulated trials by the thousand: false positives under optional stopping, blocks beside a fixed number. Three minutes.
test-trials: .venv/.dev
	@.ci/install --no-deps fieldtrial==0.3.0 robostats==0.2.0
	$(BIN)/python tests/programs/trial_statistics.py

# README in hand. ARGS="--keep FOLDER" leaves the report, the pictures and the runs for a closer look.
test-first-hour: .venv/.dev
	out=$$(mktemp -d) && OMP_NUM_THREADS=1 $(BIN)/python tests/programs/first_hour.py --keep "$$out" $(ARGS); code=$$?; rm -rf "$$out"; exit $$code

# ARGS=--list measures nothing, ARGS=--all takes some hours.
figures: .venv/.dev
	$(BIN)/python tests/programs/figures.py $(ARGS)

clean:
	rm -rf .venv .venv-lerobot .venv-lerobot-pi .venv-maker build dist *.egg-info .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

test-quality: .venv/.dev
	$(BIN)/python tests/programs/quality_halves.py $(ARGS)
	$(BIN)/python tests/programs/quality_advice.py

# Stamps: .made when the environment is whole, .base and .dev when that much is installed in it.
.venv/.made:
	@python=$$(.ci/find-python) && echo "making .venv with $$python" && "$$python" -m venv --clear .venv
	@touch $@

.venv/.base: pyproject.toml | .venv/.made
	@.ci/install -e '.[ros]'
	@$(BIN)/python .ci/ros-index
	@touch $@

# robosuite without what it asks for: that would take numpy back below 2, put a second OpenCV over the first and need
# a C compiler, all for keyboards and an IK that nobody uses here.
.venv/.dev: pyproject.toml | .venv/.made
	@.ci/install -e '.[dev,ros,console]'
	@.ci/browser
	@.ci/install --no-deps robosuite==1.5.2 termcolor
	@$(BIN)/python .ci/ros-index
	@.ci/compile
	@touch .venv/.base $@

.venv-lerobot/.made:
	@python=$$(.ci/find-python) && echo "making .venv-lerobot with $$python" && "$$python" -m venv --clear .venv-lerobot
	@touch $@

# PyTorch's index of CPU builds saves 6 GB here; see .ci/install. This LeRobot makes numbers of arrays of one, which numpy 2.4
# refuses.
.venv-lerobot/.lerobot: pyproject.toml | .venv-lerobot/.made
	@VENV=.venv-lerobot .ci/install -e '.[ros]' 'lerobot[feetech,smolvla]==0.4.4' 'numpy<2.4' pytest pytest-timeout pytest-xdist
	@touch $@

# LeRobot's newer releases, with its π0 and π0.5, want Python 3.12.
.venv-lerobot-pi/.lerobot: pyproject.toml
	@python=$${PYTHON312:-python3.12} && "$$python" -m venv --clear .venv-lerobot-pi
	@VENV=.venv-lerobot-pi .ci/install -e '.[ros]' 'lerobot[pi]==0.6.1' grpcio protobuf cryptography pytest pytest-timeout
	@touch $@

test-lerobot-pi: .venv-lerobot-pi/.lerobot
	OMP_NUM_THREADS=1 .venv-lerobot-pi/bin/python -m pytest -q tests/lerobot/test_lerobot_pi.py $(ARGS)

.venv-maker/.made:
	@python=$$(.ci/find-python) && echo "making .venv-maker with $$python" && "$$python" -m venv --clear .venv-maker
	@touch $@

.venv-maker/.maker: | .venv-maker/.made
	@VENV=.venv-maker .ci/install pylibfranka==0.21.3 franka-sim==1.1.7 franky-sim==1.0.4
	@touch $@
