"""GPT-2 weights in the format of Hugging Face, from a folder or the hub; only safetensors, never pickle."""

import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from ..common.errors import UsageError, install_hint

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
SIZES = ("n_embd", "n_layer", "n_head")
# Properties of our blocks; other values in config.json mean a different network.
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
    """The folder of this name, or a local copy of the hub repository of this id."""
    path = Path(pretrained)
    if path.is_dir():
        return path
    if not HUB_ID.fullmatch(pretrained):
        raise UsageError(f"gpt2.pretrained: {pretrained} is not a folder, and not a hub id")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UsageError(
            f"gpt2.pretrained: {pretrained} is not a folder; a download needs the hub: {install_hint('hf')}"
        ) from None
    try:
        # Patterns, so that neither pickled weights nor code are downloaded.
        return Path(snapshot_download(pretrained, allow_patterns=[CONFIG, "*.safetensors", INDEX]))
    except Exception as error:  # errors of the network, the hub and the disk have no common class
        reason = " ".join(str(error).split())
        raise UsageError(
            f"gpt2.pretrained: {pretrained} is not a folder, and the download from the hub failed: {reason}"
        ) from error


def sizes(pretrained: str) -> tuple[int, int, int]:
    """Width, layers and heads of a stored GPT-2; raises an error if it is a different network."""
    path = find(pretrained) / CONFIG
    config = _read_json(path)
    for name, required in FIXED.items():
        # A missing setting has its default, which is the required value.
        if config.get(name, required) != required:
            raise UsageError(f"{path}: {name} is {config[name]!r}, it must be {required!r}")
    for name in SIZES:
        if not isinstance(config.get(name), int):
            raise UsageError(f"{path}: {name} is {config.get(name)!r}, an integer is needed")
    width, layers, heads = (config[name] for name in SIZES)
    return width, layers, heads


@torch.no_grad()
def load(trunk: nn.Module, pretrained: str) -> None:
    """Copy stored weights into blocks of the same sizes, and into the normalisation after them."""
    folder = find(pretrained)
    parameters = {_name_in_file(name): p for name, p in trunk.named_parameters()}
    stored = _read_tensors(folder, parameters.keys())
    for name, p in parameters.items():
        if name not in stored:
            raise UsageError(f"{folder}: the tensor {name} is missing")
        x, expected = stored[name], tuple(p.shape[::-1])  # files hold (in, out), torch layers (out, in)
        if x.shape != expected:
            raise UsageError(f"{folder}: the tensor {name} has shape {tuple(x.shape)}, expected {expected}")
        p.copy_(x.T if x.ndim == 2 else x)


def _name_in_file(name: str) -> str:
    """blocks.3.qkv.weight -> h.3.attn.c_attn.weight"""
    module, kind = name.rsplit(".", 1)
    if module == "norm":
        return f"ln_f.{kind}"
    _, block, layer = module.split(".")
    return f"h.{block}.{LAYERS[layer]}.{kind}"


def _read_tensors(folder: Path, names: Collection[str]) -> dict[str, Tensor]:
    """The stored tensors of these names; models that contain a GPT-2 prefix them by `transformer.`."""
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no iterator)
                    short = name.removeprefix("transformer.")
                    # Files may also hold a language head and causal masks, which no block has.
                    if short in names:
                        tensors[short] = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise UsageError(f"{path} is not a complete safetensors file: {error}") from error
    return tensors


def _files(folder: Path) -> list[Path]:
    """The weights file of a model, or the files that it is split into."""
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if (folder / INDEX).is_file():
        weight_map = _read_json(folder / INDEX).get("weight_map")
        if not isinstance(weight_map, dict):
            raise UsageError(f"{folder / INDEX} has no weight_map")
        return [folder / name for name in sorted(set(weight_map.values()))]
    place = repr(str(folder))
    raise UsageError(
        f"{folder} has no {WEIGHTS}, and pickled weights are not loaded; convert them once: "
        "from transformers import AutoModel; "
        f"AutoModel.from_pretrained({place}).save_pretrained({place}, safe_serialization=True)"
    )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
    if not isinstance(data, dict):
        raise UsageError(f"{path} is not a JSON object")
    return data
