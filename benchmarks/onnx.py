"""The time of a step of an agent as an ONNX graph, beside that of its player.

    python -m benchmarks.onnx [models/CartPoleMasked-ppo_lstm.safetensors ...] [--num-envs 1]

One thread each, float32, on the same random observations; the two take turns, and the least time counts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import recollect

DEFAULT = ["models/CartPoleMasked-ppo_lstm.safetensors"]
STEPS, ROUNDS = 500, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("agents", nargs="*", default=DEFAULT)
    parser.add_argument("--num-envs", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.agents:
        by_player, by_graph = measure(recollect.load(name), options.num_envs)
        ratio = by_player / by_graph
        print(f"{name}: player {by_player * 1e6:.1f} us, onnxruntime {by_graph * 1e6:.1f} us, {ratio:.1f}x")


def measure(trained: recollect.Trained, num_envs: int) -> tuple[float, float]:
    """Seconds per step of the player and of the graph."""
    (leaf,) = trained.agent.obs_spec.leaves.values()
    random = np.random.default_rng(0)
    observations = random.standard_normal((STEPS, num_envs, *leaf.shape), dtype=np.float32)
    player, graph = trained.player(num_envs), start(trained, num_envs)
    times = [[seconds(act, observations) for act in (player.act, graph)] for _ in range(ROUNDS)]
    by_player, by_graph = np.min(times, axis=0)
    return float(by_player), float(by_graph)


def start(trained: recollect.Trained, num_envs: int) -> Callable[[Any], Any]:
    """A function that acts with the exported graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        trained.save(Path(folder) / "agent.onnx")
        session = onnxruntime.InferenceSession(Path(folder) / "agent.onnx", options)
    names = [output.name for output in session.get_outputs()]
    inputs = {"reset": np.zeros(num_envs, dtype=bool)}
    for tensor in session.get_inputs():
        if tensor.name.startswith("state."):
            kind = np.float32 if tensor.type == "tensor(float)" else np.int64
            inputs[tensor.name] = np.zeros([num_envs, *tensor.shape[1:]], dtype=kind)

    def act(obs: Any) -> Any:
        outputs = dict(zip(names, session.run(None, {"obs": obs, **inputs}), strict=True))
        inputs.update({name: outputs[f"next_{name}"] for name in inputs if name.startswith("state.")})
        return outputs["action"]

    return act


def seconds(act: Callable[[Any], Any], observations: Any) -> float:
    begin = time.perf_counter()
    for obs in observations:
        act(obs)
    return (time.perf_counter() - begin) / len(observations)


if __name__ == "__main__":
    main()
