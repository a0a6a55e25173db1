"""Episodes and what was thought in them as one page that plays them and needs nothing else."""

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

from ..agent import Agent
from ..envs import Array
from ..report.intervals import Floats
from ..report.summary import plain
from ..run import Trained
from .episodes import Episode, Watched
from .inside import Memory, Thoughts

DIGITS = 6  # that count of a number
LEVELS = 65535  # of a number in an array
WIDEST, QUALITY = 320, 60  # pixels of a picture, and how well it is kept


def player(
    trained: Trained, watched: Watched, thought: Sequence[Thoughts], scaled: bool, images: Sequence[str]
) -> str:
    """The whole file.

    scaled  whether values are in rewards of the task
    images  that episodes name by their place
    """
    pairs = zip(watched.episodes, thought, strict=True)
    shown = [_episode(trained.agent, episode, mind) for episode, mind in pairs]
    spec = trained.agent.action_spec
    title = f"{trained.folder} on {trained.config.env.id}"
    data = {
        "title": title,
        "fps": watched.fps,
        "images": list(images),
        "played": watched.played,
        "note": watched.note,
        "unit": "" if scaled else "as the critic measures them: the scale of its rewards is not in the file",
        "choices": list(spec.sizes) if spec.kind == "categorical" else [],
        "start": list(spec.start),
        "width": spec.width,
        "low": plain(np.array(spec.low)),
        "high": plain(np.array(spec.high)),
        "observations": observations(trained.agent),
        "masked": list(trained.agent.obs_spec.mask),
        "episodes": shown,
    }
    # No text in it can end the element that holds it.
    packed = json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    here, there = files(__package__), files("recollect.report")

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


def _episode(agent: Agent, episode: Episode, mind: Thoughts) -> dict[str, Any]:
    record = episode.record
    value = mind.value.copy()
    if record.terminated[-1, 0]:
        value[-1] = np.nan  # nothing comes after an end
    action = agent.action_spec.to_env(record.rows.prev_action[1:, 0].numpy())
    return {
        "name": episode.name,
        "seed": str(episode.seed),
        "score": plain(episode.score, DIGITS),
        "success": plain(episode.success, DIGITS),
        "end": "ended" if record.terminated[-1, 0] else "cut at the time limit",
        "image": episode.pictures,
        "reward": plain(record.reward[:, 0], DIGITS),
        "value": plain(value, DIGITS),
        "advantage": plain(mind.advantage, DIGITS),
        "entropy": plain(mind.entropy, DIGITS),
        "action": [plain(taken, DIGITS) for taken in action.reshape(len(action), -1)],
        "policy": exact(mind.policy),
        "seen": exact(_seen(agent, record.rows.obs)),
        "memories": [_memory(memory) for memory in mind.memories],
    }


def _seen(agent: Agent, obs: dict[str, Any]) -> Floats:
    """What was seen beside pictures, normalised as the agent reads it: (T + 1, F)."""
    kept = [
        obs[name][:, 0].double().numpy().reshape(len(obs[name]), -1)
        for name, leaf in agent.obs_spec.leaves.items()
        if leaf.kind != "picture"
    ]
    return np.concatenate(kept, 1) if kept else np.zeros((len(next(iter(obs.values()))), 0))


def _memory(memory: Memory) -> dict[str, Any]:
    return {
        "name": memory.name,
        "kind": memory.kind,
        "attention": [packed(layer) for layer in memory.attention],
        "states": {path: packed(x) for path, x in memory.states.items()},
        "path": None if memory.path is None else packed(memory.path),
        "share": plain(memory.share, DIGITS),
        "influence": {name: _shares(x) for name, x in memory.influence.items()},
    }


def _shares(x: Floats) -> dict[str, Any]:
    """Each row's share of its sum, beside the sum: choices that are certain change by next to nothing."""
    total = x.sum(1)
    shares = x / np.where(total > 0, total, 1.0)[:, None]
    return {"total": plain(total, DIGITS), "shares": packed(shares)}


# Arrays and pictures --------------------------------------------------------------------------


def exact(x: Floats) -> dict[str, Any]:
    """Numbers that are read, in 32 bits each."""
    return {"shape": list(x.shape), "floats": _text(x.astype("<f4"))}


def packed(x: Floats) -> dict[str, Any]:
    """Numbers that are looked at, in 16 bits each, between the least and the largest."""
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
    """Pictures as data of a page, none of them twice."""

    def __init__(self) -> None:
        self.images: list[str] = []
        self._known: dict[bytes, int] = {}

    def __call__(self, picture: Array) -> int:
        """Keep a picture; its place."""
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
    """What pictures of a page need and is not installed."""
    there = importlib.util.find_spec("PIL") is not None
    return "" if there else "pictures need Pillow: pip install 'recollect[video]'"
