"""Episodes with everything that the agent computed in them, as one page that loads nothing."""

import base64
import hashlib
import importlib.util
import io
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from importlib.resources.abc import Traversable
from string import Template
from typing import Any

import numpy as np

from ..agent.agent import Agent
from ..common.errors import install_hint
from ..common.intervals import Floats
from ..envs import Array
from ..reporting.summary import to_json_data
from ..run.run import Trained
from .episodes import Episode, Watched
from .influence import Influence
from .internals import Internals, Memory

DIGITS = 6  # significant ones of a number
LEVELS = 65535  # of a number in an array
WIDEST, QUALITY = 320, 60  # pixels of a picture, and of its compression
# The parts of the state of one layer, by the kind of memory.
PARTS = {
    "lstm": ("LSTM hidden state h", "LSTM cell state c"),
    "gru": ("GRU hidden state h",),
    "mingru": ("minGRU hidden state h",),
    "stack": ("stacked observations",),
}


def player(
    trained: Trained, watched: Watched, computed: Sequence[Internals], scaled: bool, images: Sequence[str]
) -> str:
    """The whole file.

    scaled  whether values are in rewards of the task
    images  by the numbers that episodes have
    """
    pairs = zip(watched.episodes, computed, strict=True)
    shown = [_episode(trained.agent, episode, inside) for episode, inside in pairs]
    spec = trained.agent.action_spec
    title = f"{trained.folder} on {trained.config.env.id}"
    data = {
        "title": title,
        "fps": watched.fps,
        "images": list(images),
        "played": watched.played,
        "note": watched.note,
        "unit": ""
        if scaled
        else "in the scale of the critic: the file does not hold the scale of its rewards",
        "choices": list(spec.sizes) if spec.kind == "categorical" else [],
        "start": list(spec.start),
        "width": spec.width,
        "low": to_json_data(np.array(spec.low)),
        "high": to_json_data(np.array(spec.high)),
        "observations": observations(trained.agent),
        "masked": list(trained.agent.obs_spec.mask),
        "episodes": shown,
    }
    # No text in it can end the element that holds it.
    packed = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    here, there = files(__package__), files("recollect.reporting")

    def read(*parts: Traversable) -> str:
        return "".join(part.read_text(encoding="utf-8") for part in parts)

    return Template(read(here / "player.html")).substitute(
        title=escape(title),
        css=read(there / "page.css", here / "player.css"),
        js=read(there / "elements.js", here / "player.js"),
        data=packed,
    )


def observations(agent: Agent) -> list[str]:
    """A name for each number that is not of a picture."""
    names = []
    for name, leaf in agent.obs_spec.leaves.items():
        if leaf.kind != "picture":
            width = int(np.prod(leaf.shape)) if leaf.shape else 1
            names += [name] if width == 1 else [f"{name}[{i}]" for i in range(width)]
    return names


def _episode(agent: Agent, episode: Episode, inside: Internals) -> dict[str, Any]:
    record = episode.record
    value = inside.value.copy()
    if record.terminated[-1, 0]:
        value[-1] = np.nan  # a terminal observation has no value
    action = agent.action_spec.to_env(record.rows.prev_action[1:, 0].numpy())
    return {
        "name": episode.name,
        "seed": str(episode.seed),
        "score": to_json_data(episode.score, DIGITS),
        "success": to_json_data(episode.success, DIGITS),
        "end": "terminated" if record.terminated[-1, 0] else "truncated",
        "image": episode.pictures,
        "reward": to_json_data(record.reward[:, 0], DIGITS),
        "value": to_json_data(value, DIGITS),
        "advantage": to_json_data(inside.advantage, DIGITS),
        "entropy": to_json_data(inside.entropy, DIGITS),
        "action": [to_json_data(taken, DIGITS) for taken in action.reshape(len(action), -1)],
        "policy": exact(inside.policy),
        "seen": exact(_seen(agent, record.rows.obs)),
        "memories": [_memory(memory) for memory in inside.memories],
    }


def _seen(agent: Agent, obs: dict[str, Any]) -> Floats:
    """Observations beside pictures, normalised as for the networks: (T + 1, F)."""
    kept = [
        obs[name][:, 0].double().numpy().reshape(len(obs[name]), -1)
        for name, leaf in agent.obs_spec.leaves.items()
        if leaf.kind != "picture"
    ]
    return np.concatenate(kept, 1) if kept else np.zeros((len(next(iter(obs.values()))), 0))


def _memory(memory: Memory) -> dict[str, Any]:
    titles = state_titles(memory.kind, len(memory.states))
    return {
        "name": memory.name,
        "kind": memory.kind,
        "attention": [packed(layer) for layer in memory.attention],
        "states": {title: packed(x) for title, x in zip(titles, memory.states.values(), strict=True)},
        "path": None if memory.path is None else packed(memory.path),
        "share": to_json_data(memory.share, DIGITS),
        "influence": {name: _influence(one) for name, one in memory.influence.items()},
    }


def state_titles(kind: str | None, count: int) -> list[str]:
    """The names of the parts of a memory state, in their order."""
    parts = PARTS.get(kind or "", ("memory state",) if count == 1 else ())
    layers = count // len(parts) if parts else 0
    if layers * len(parts) != count:
        return [f"memory state, part {i} of {count}" for i in range(1, count + 1)]
    if layers == 1:
        return list(parts)
    return [f"{part}, layer {layer} of {layers}" for layer in range(1, layers + 1) for part in parts]


def _influence(one: Influence) -> dict[str, Any]:
    """The changes, and for each step their sum without signs, which shares are of."""
    total = np.abs(one.changes).sum(1)
    return {
        "unit": one.unit,
        "level": to_json_data(one.level, DIGITS),
        "alone": to_json_data(one.alone, DIGITS),
        "least": to_json_data(one.least, DIGITS),
        "total": to_json_data(total, DIGITS),
        "changes": packed(one.changes),
    }


# Arrays and pictures --------------------------------------------------------------------------


def exact(x: Floats) -> dict[str, Any]:
    """Numbers that the page prints, in 32 bits each."""
    return {"shape": list(x.shape), "floats": _text(x.astype("<f4"))}


def packed(x: Floats) -> dict[str, Any]:
    """Numbers that the page draws, in 16 bits each, between the least and the largest."""
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    step = (high - low) / LEVELS or 1.0
    return {
        "shape": list(x.shape),
        "low": low,
        "step": step,
        "words": _text(((x - low) / step).round().astype("<u2")),
    }


def _text(x: Array) -> str:
    return base64.b64encode(x.tobytes()).decode()


class Gallery:
    """Pictures as data of a page, each of them once."""

    def __init__(self) -> None:
        self.images: list[str] = []
        self._known: dict[bytes, int] = {}

    def __call__(self, picture: Array) -> int:
        """Keep a picture; its number."""
        name = hashlib.blake2b(picture.tobytes(), digest_size=16).digest()
        if name not in self._known:
            self._known[name] = len(self.images)
            self.images.append(_encoded(picture))
        return self._known[name]


def _encoded(picture: Array) -> str:
    from PIL import Image

    image = Image.fromarray(picture)
    if image.width > WIDEST:
        image = image.resize((WIDEST, round(image.height * WIDEST / image.width)), Image.Resampling.BOX)
    file = io.BytesIO()
    # Few colours are kept as they are: edges of tiles stay sharp, and the file is smaller as well.
    few = image.getcolors(64) is not None
    image.save(file, "WEBP", lossless=few, quality=QUALITY, method=2)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def missing() -> str:
    """The extra to install for pictures; empty where it is installed."""
    there = importlib.util.find_spec("PIL") is not None
    return "" if there else f"pictures need Pillow: {install_hint('video')}"
