"""Writes docs/reference.md from docstrings: `python docs/_ext/reference.py` after a change of one.

A test compares the page with what this writes, and runs its examples.
"""

import inspect
from pathlib import Path
from typing import Any

import recollect
import recollect.testing
from recollect.agent.player import Player
from recollect.encoder import Encoder, EncoderConfig
from recollect.memory import Memory, MemoryConfig
from recollect.run.update import Training

PAGE = Path(__file__).parents[1] / "reference.md"

HEAD = """# Python API

Generated from the docstrings by `python docs/_ext/reference.py`. [The guide](guide.md) shows how the parts go together; options of a run are listed by `recollect train --help-all`, and in [hyperparameters](hyperparameters.md).

The examples run in order, as one script:

```python
import recollect
```
"""  # noqa: E501 (in Markdown a paragraph is one line)

# Name: what is documented, and an example.
NAMES: dict[str, tuple[Any, str]] = {
    "recollect.train": (
        recollect.train,
        'run = recollect.train("CartPole-v1", "ppo_gru", steps=100_000, seed=2, run_id="first")',
    ),
    "recollect.iterate": (
        recollect.iterate,
        'training = recollect.iterate("CartPole-v1", steps=100_000)\n'
        "for update in training:\n"
        '    if (update.metrics["return"] or 0) > 450:\n'
        "        update.stop()\n"
        "print(training.trained)",
    ),
    "recollect.load": (recollect.load, "same = recollect.load(run.folder)"),
    "recollect.resume": (recollect.resume, "run = recollect.resume(run.folder)  # finished: nothing to do"),
    "recollect.evaluate": (
        recollect.evaluate,
        'print(recollect.evaluate("random", env="CartPole-v1", episodes=100).mean)',
    ),
    "recollect.compare": (
        recollect.compare,
        'rows = recollect.compare("CartPole-v1", "ppo", seeds=1, steps=100_000, episodes=10, quiet=True)',
    ),
    "recollect.report": (recollect.report, 'verdict = recollect.report("runs", out="report")["verdict"]'),
    "recollect.watch": (recollect.watch, 'page = recollect.watch(run, "watch.html", episodes=3)'),
    "recollect.probe": (recollect.probe, "print(recollect.probe(run, episodes=10).uses)"),
    "recollect.tune": (
        recollect.tune,
        'result = recollect.tune("CartPole-v1", trials=2, seeds=1, steps=100_000, quiet=True)',
    ),
    "recollect.RunConfig": (
        recollect.RunConfig,
        "from dataclasses import replace\n\nagain = recollect.train(replace(run.config, seed=3))",
    ),
    "recollect.Trained": (
        recollect.Trained,
        "import numpy\n\n"
        'run.save("agent.safetensors")\n'
        "obs = numpy.zeros((2, 4), numpy.float32)  # of two environments\n"
        "action, state = run.predict(obs)\n"
        "print(run.value(obs), run.distribution(obs).entropy())\n"
        "action, state = run.predict(obs, state, episode_start=[False, True])",
    ),
    "recollect.Evaluation": (
        recollect.Evaluation,
        "evaluation = run.evaluate(episodes=100)\nprint(evaluation.mean, evaluation.summary())",
    ),
    "recollect.Update": (
        recollect.Update,
        "def halve(update):\n"
        '    if update.metrics["iteration"] == 2:\n'
        "        update.learning_rate /= 2\n\n\n"
        'recollect.train("CartPole-v1", steps=100_000, on_rollout=halve, run_id="halved")',
    ),
    "recollect.run.update.Training": (Training, "training.close()  # stops a run that has not ended"),
    "recollect.agent.player.Player": (
        Player,
        "import gymnasium\n\n"
        'env, player = gymnasium.make("CartPole-v1"), run.player()\n'
        "obs, _ = env.reset()\n"
        "for _ in range(10):\n"
        "    obs, reward, terminated, truncated, _ = env.step(player.act(obs))\n"
        "    if terminated or truncated:\n"
        "        obs, _ = env.reset()\n"
        "        player.reset()",
    ),
    "recollect.memory.Memory": (
        Memory,
        "from recollect.memory.rnn import GruConfig\n\n"
        "import torch\n\n"
        "memory = GruConfig(width=8).build(in_dim=4)\n"
        "x, first = torch.zeros(3, 2, 4), torch.zeros(3, 2, dtype=torch.bool)\n"
        "y, state = memory(x, memory.initial_state(2), first)",
    ),
    "recollect.memory.MemoryConfig": (MemoryConfig, "print(sorted(MemoryConfig.available()))"),
    "recollect.encoder.Encoder": (
        Encoder,
        "from recollect.encoder.mixed import MixedConfig\n\n"
        "encoder = MixedConfig(width=8).build(run.agent.obs_spec)\n"
        'features = encoder({"obs": torch.zeros(3, 2, 4)}, torch.float32)',
    ),
    "recollect.encoder.EncoderConfig": (EncoderConfig, "print(sorted(EncoderConfig.available()))"),
    "recollect.testing.check_memory": (
        recollect.testing.check_memory,
        "from recollect.testing import check_memory\n\ncheck_memory(GruConfig(width=8))",
    ),
    "recollect.testing.check_encoder": (
        recollect.testing.check_encoder,
        "from recollect.testing import check_encoder\n\ncheck_encoder(MixedConfig(width=8))",
    ),
    "recollect.testing.check_agent": (
        recollect.testing.check_agent,
        "from recollect.testing import check_agent\n\ncheck_agent(run.agent)",
    ),
}
# Before an example that needs one.
IMPORTS = {
    "recollect.memory.MemoryConfig": "from recollect.memory import MemoryConfig\n\n",
    "recollect.encoder.EncoderConfig": "from recollect.encoder import EncoderConfig\n\n",
}


def render() -> str:
    """The page."""
    return "\n".join([HEAD, *(_entry(name, thing) for name, (thing, _) in NAMES.items())])


def _entry(name: str, thing: Any) -> str:
    """A heading, the signature, the docstring, an example, and the public members of a class."""
    text = [f"## `{name}`", f"```text\n{_signature(name, thing)}\n\n{_docstring(thing)}\n```"]
    text.append(f"```python\n{IMPORTS.get(name, '')}{NAMES[name][1]}\n```")
    members = _members(thing) if inspect.isclass(thing) else {}
    if members:
        lines = [
            f"{_signature(member, value)}\n{_indented(_docstring(value))}"
            for member, value in members.items()
        ]
        text.append("```text\n" + "\n\n".join(lines) + "\n```")
    return "\n\n".join(text) + "\n"


def _members(kind: type) -> dict[str, Any]:
    """The public methods and properties of a class of ours, with docstrings."""
    return {
        name: value
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("recollect")
        for name, value in vars(base).items()
        if not name.startswith("_") and _docstring(value) and not isinstance(value, str | int | tuple)
    }


def _signature(name: str, thing: Any) -> str:
    thing = getattr(thing, "__func__", thing)
    if not callable(thing) or isinstance(thing, property):
        return name
    # Without the module of each annotation.
    signature = inspect.signature(thing)
    parameters = [str(p.replace(annotation=p.empty)) for p in signature.parameters.values()]
    star = [i for i, p in enumerate(signature.parameters.values()) if p.kind is p.KEYWORD_ONLY][:1]
    keywords = any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values())
    for i in star if not keywords else ():
        parameters.insert(i, "*")
    shown = [p for p in parameters if p not in ("self", "cls")]
    return f"{name}({', '.join(shown)})"


def _docstring(thing: Any) -> str:
    return inspect.getdoc(thing) or ""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in text.splitlines())


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
