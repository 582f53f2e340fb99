"""Programs that checks let another Python run: what they try may end the process that tries it."""

TORCH = """
import json, torch
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
for i in range(len(names)):
    torch.zeros(8, device=f"cuda:{i}").sum().item()
print(json.dumps({"version": torch.__version__, "threads": torch.get_num_threads(), "gpus": names}))
"""

#: Without cameras first: what was printed stays valid when GL then aborts the process.
WORLDS = """
import json, os, time
from importlib.metadata import version
from sim.registry import make_env
import numpy as np

env = make_env("lift", 1, threads=1)
env.reset(seed=0)
action = np.zeros((1, *env.single_action_space.shape), np.float32)
env.step(action)
began = time.perf_counter()
for _ in range(20):
    env.step(action)
print(json.dumps({"mujoco": version("mujoco"), "steps_per_s": 20 / (time.perf_counter() - began)}), flush=True)

env = make_env("lift", 1, cameras=("front",), threads=1)
env.reset(seed=0)
began = time.perf_counter()
for _ in range(5):
    observation = env.step(action)[0]
fps = 5 / (time.perf_counter() - began)
assert observation["images.front"].std() > 1, "the picture is empty"
try:
    from OpenGL import GL
    renderer = GL.glGetString(GL.GL_RENDERER).decode()
except Exception:
    renderer = ""
print(json.dumps({"gl": os.environ.get("MUJOCO_GL", "the display"), "renderer": renderer, "fps": fps}))
"""
