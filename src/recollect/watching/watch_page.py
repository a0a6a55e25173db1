"""Episodes with the quantities of the agent, as one self-contained page."""

import base64
import hashlib
import importlib.util
import io
import json
from collections.abc import Mapping, Sequence
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
from ..envs.spaces import ACTION_MASK
from ..reporting.summary import to_json_data
from ..run.run import Trained
from .episodes import Episode, Watched
from .influence import Influence
from .internals import Internals, MemoryTrace
from .labels import SHOWN_APART, name_actions, name_observations

_HERE, _REPORTING = files(__package__), files("recollect.reporting")
DIGITS = 6  # significant digits of a number
LEVELS = 65535  # levels of a 16-bit number
WIDEST, QUALITY = 320, 60  # largest width of a picture in pixels, and quality of its compression


def render_player(
    trained: Trained,
    watched: Watched,
    computed: Sequence[Internals],
    scaled: bool,
    images: Sequence[str],
    given: Mapping[str, Sequence[str]],
) -> str:
    """The HTML of the page.

    scaled  whether values are in units of the task's rewards
    images  data URLs, by the numbers that the episodes refer to
    given   names of actions and observations (labels.parse_labels)
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
        "unit": "" if scaled else "in the scale of the critic: the file lacks the scale of its rewards",
        "choices": list(spec.sizes) if spec.kind == "categorical" else [],
        "start": list(spec.start),
        "width": spec.width,
        "low": to_json_data(np.array(spec.low)),
        "high": to_json_data(np.array(spec.high)),
        "actions": name_actions(spec, trained.config.env.id, given, watched.names),
        "observations": name_observations(
            trained.agent.obs_spec, trained.config.env.id, given, watched.names
        ),
        "normalized": trained.agent.normalizer.scales,
        "masked": list(trained.agent.obs_spec.mask),
        "episodes": shown,
    }
    # player.html may have no other "$"; styles, scripts and data may, because values are not searched again.
    return Template(_read(_HERE / "player.html")).substitute(
        title=escape(title),
        css=_read(_REPORTING / "page.css", _HERE / "player.css"),
        js=_read(_REPORTING / "elements.js", _HERE / "pair.js", _HERE / "player.js"),
        data=_to_json(data),
    )


def render_pair(pages: Sequence[tuple[str, str]]) -> str:
    """The HTML of two players next to each other; pages: title and HTML of each."""
    shown = [{"title": title, "html": page, "episode": 0} for title, page in pages]
    return Template(_read(_HERE / "pair.html")).substitute(
        title=escape(" beside ".join(title for title, _ in pages)),
        css=_read(_REPORTING / "page.css", _HERE / "player.css"),
        js=_read(_REPORTING / "elements.js", _HERE / "pair.js"),
        pages=_to_json(shown),
    )


def _read(*parts: Traversable) -> str:
    return "".join(part.read_text(encoding="utf-8") for part in parts)


def _to_json(data: Any) -> str:
    # Without "<", no text in the data can end its script element.
    return json.dumps(data, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")


def _episode(agent: Agent, episode: Episode, inside: Internals) -> dict[str, Any]:
    record = episode.record
    # A copy, because `inside` belongs to the caller.
    value = inside.value.copy()
    if record.terminated[-1, 0]:
        value[-1] = np.nan  # a terminal observation has no value
    action = agent.action_spec.to_env(record.rows.prev_action[1:, 0].numpy())
    return {
        "name": episode.name,
        # As text: 63 bits do not fit into a number of JavaScript.
        "seed": str(episode.seed),
        "score": to_json_data(episode.score, DIGITS),
        "success": to_json_data(episode.success, DIGITS),
        "trial": [[start, to_json_data(x, DIGITS)] for start, x in episode.trial],
        "end": "terminated" if record.terminated[-1, 0] else "truncated",
        "image": episode.pictures,
        "reward": to_json_data(record.reward[:, 0], DIGITS),
        "value": to_json_data(value, DIGITS),
        "advantage": to_json_data(inside.advantage, DIGITS),
        "entropy": to_json_data(inside.entropy, DIGITS),
        "action": [to_json_data(taken, DIGITS) for taken in action.reshape(len(action), -1)],
        "policy": pack_exactly(inside.policy),
        "allowed": _allowed(agent, record.rows.obs),
        "seen": pack_exactly(_collect_observations(agent, record.rows.obs)),
        "memories": [_memory(memory) for memory in inside.memories],
    }


def _collect_observations(agent: Agent, obs: dict[str, Any]) -> Floats:
    """Observations without pictures, normalised as for the networks: (T + 1, F)."""
    columns = [
        obs[name][:, 0].double().numpy().reshape(len(obs[name]), -1)
        for name, leaf in agent.obs_spec.leaves.items()
        if leaf.kind not in SHOWN_APART
    ]
    return np.concatenate(columns, 1) if columns else np.zeros((len(next(iter(obs.values()))), 0))


def _allowed(agent: Agent, obs: dict[str, Any]) -> dict[str, Any] | None:
    """The action masks (T + 1, P); None if there are none."""
    if not agent.actor.masked:
        return None
    return pack_exactly(obs[ACTION_MASK][:, 0].double().numpy())


def _memory(memory: MemoryTrace) -> dict[str, Any]:
    return {
        "name": memory.name,
        "kind": memory.kind,
        "attention": [pack(layer) for layer in memory.attention],
        "states": {name: pack(x) for name, x in memory.states.items()},
        "path": None if memory.path is None else pack(memory.path),
        "share": to_json_data(memory.share, DIGITS),
        "influence": {name: _influence(one) for name, one in memory.influence.items()},
    }


def _influence(one: Influence) -> dict[str, Any]:
    """The changes, and for each step the sum of their sizes, which shares refer to."""
    total = np.abs(one.changes).sum(1)
    return {
        "unit": one.unit,
        "level": to_json_data(one.level, DIGITS),
        "alone": to_json_data(one.alone, DIGITS),
        "least": to_json_data(one.least, DIGITS),
        "total": to_json_data(total, DIGITS),
        "changes": pack(one.changes),
    }


# Arrays and pictures --------------------------------------------------------------------------


def pack_exactly(x: Floats) -> dict[str, Any]:
    """Encode an array with 32 bits per number, for numbers that the page prints."""
    # The byte order is fixed, because the page is read on other machines than the one that wrote it.
    return {"shape": list(x.shape), "floats": _encode(x.astype("<f4"))}


def pack(x: Floats) -> dict[str, Any]:
    """Encode an array with 16 bits per number between its extremes, for numbers that the page draws."""
    low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
    # Of a constant array all words are 0, which any step decodes to `low`.
    step = (high - low) / LEVELS or 1.0
    return {
        "shape": list(x.shape),
        "low": low,
        "step": step,
        "words": _encode(((x - low) / step).round().astype("<u2")),
    }


def _encode(x: Array) -> str:
    return base64.b64encode(x.tobytes()).decode()


class Gallery:
    """Pictures as data URLs, each of them once."""

    def __init__(self) -> None:
        self.images: list[str] = []
        self._known: dict[bytes, int] = {}

    def __call__(self, picture: Array) -> int:
        """Add a picture; returns its number."""
        digest = hashlib.blake2b(picture.tobytes(), digest_size=16).digest()
        if digest not in self._known:
            self._known[digest] = len(self.images)
            self.images.append(_encode_picture(picture))
        return self._known[digest]


def _encode_picture(picture: Array) -> str:
    from PIL import Image

    image = Image.fromarray(picture)
    if image.width > WIDEST:
        image = image.resize((WIDEST, round(image.height * WIDEST / image.width)), Image.Resampling.BOX)
    file = io.BytesIO()
    # Pictures with few colours are compressed without loss: edges stay sharp, and the file is smaller.
    few = image.getcolors(64) is not None
    image.save(file, "WEBP", lossless=few, quality=QUALITY, method=2)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def missing_package() -> str:
    """A message if Pillow, which writes the pictures, is not installed; else empty."""
    installed = importlib.util.find_spec("PIL") is not None
    return "" if installed else f"pictures need Pillow: {install_hint('video')}"
