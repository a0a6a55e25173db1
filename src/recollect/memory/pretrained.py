"""Weights of GPT-2 as Hugging Face stores them, from a folder or the hub; data only, never pickle."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..common.errors import UsageError

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
SIZES = ("n_embd", "n_layer", "n_head")
# What our blocks compute; whatever else stands there would be another network.
FIXED = {
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
}
LAYERS = {
    "before_attention": "ln_1",
    "qkv": "attn.c_attn",
    "out": "attn.c_proj",
    "before_mlp": "ln_2",
    "up": "mlp.c_fc",
    "down": "mlp.c_proj",
}


def find(pretrained: str) -> Path:
    """The folder of this name, or a copy of the repository of this id on the hub."""
    path = Path(pretrained)
    if path.is_dir():
        return path
    if not HUB_ID.fullmatch(pretrained):
        raise UsageError(f"gpt2.pretrained: there is no folder {pretrained}")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UsageError(
            f"gpt2.pretrained: there is no folder {pretrained}; if it is on the hub: "
            "pip install 'recollect[hf]'"
        ) from None
    try:
        return Path(snapshot_download(pretrained, allow_patterns=[CONFIG, "*.safetensors", INDEX]))
    except Exception as error:  # of the network, the hub and the disk, which have no class in common
        reason = " ".join(str(error).split())
        raise UsageError(
            f"gpt2.pretrained: there is no folder {pretrained}, and the hub did not give it: {reason}"
        ) from error


def sizes(pretrained: str) -> tuple[int, int, int]:
    """Width, layers and heads of stored weights, which must be of the network that we build."""
    path = find(pretrained) / CONFIG
    said = _read_json(path)
    for name, wanted in FIXED.items():
        if said.get(name, wanted) != wanted:
            raise UsageError(f"{path}: {name} is {said[name]!r}, it must be {wanted!r}")
    for name in SIZES:
        if not isinstance(said.get(name), int):
            raise UsageError(f"{path}: {name} is {said.get(name)!r}, a number is needed")
    width, layers, heads = (said[name] for name in SIZES)
    return width, layers, heads


@torch.no_grad()
def load(trunk: nn.Module, pretrained: str) -> None:
    """Copy stored weights into blocks of the same sizes, and into the normalisation after them."""
    folder = find(pretrained)
    wanted = {_their_name(name): p for name, p in trunk.named_parameters()}
    stored = _read_tensors(folder, wanted.keys())
    for name, p in wanted.items():
        if name not in stored:
            raise UsageError(f"{folder} lacks the tensor {name}")
        x, here = stored[name], tuple(p.shape[::-1])  # (in, out); a layer of torch is (out, in)
        if x.shape != here:
            raise UsageError(f"{folder}: the tensor {name} has the shape {tuple(x.shape)}, here it is {here}")
        p.copy_(x.T if x.ndim == 2 else x)


def _their_name(name: str) -> str:
    """blocks.3.qkv.weight -> h.3.attn.c_attn.weight"""
    part, kind = name.rsplit(".", 1)
    if part == "norm":
        return f"ln_f.{kind}"
    _, block, layer = part.split(".")
    return f"h.{block}.{LAYERS[layer]}.{kind}"


def _read_tensors(folder: Path, wanted: Collection[str]) -> dict[str, Tensor]:
    """Those of the wanted tensors that are there; a model around GPT-2 names them with a prefix."""
    found: dict[str, Tensor] = {}
    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no iterator)
                    plain = name.removeprefix("transformer.")
                    if plain in wanted:
                        found[plain] = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{path} is not a whole safetensors file: {error}") from error
    return found


def _files(folder: Path) -> list[Path]:
    """The file of a model, or the files it is split into."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        parts = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(parts, dict):
            raise UsageError(f"{folder / INDEX} has no weight_map")
        return [folder / name for name in sorted(set(parts.values()))]
    place = repr(str(folder))
    raise UsageError(
        f"{folder} holds no {WEIGHTS}, and pickled weights are not read; write them once as data: "
        "from transformers import AutoModel; "
        f"AutoModel.from_pretrained({place}).save_pretrained({place}, safe_serialization=True)"
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path} holds no settings")
    return data
