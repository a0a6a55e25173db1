"""Pretrain a small GPT-2 on text, for `--critic.pretrained`.

    python -m benchmarks.pretrain --out runs/gpt2_bytes [--steps 2000]

The text is the source code of Python's standard library, because every machine has it; a token is a byte.
The sizes are those of the critic (2 blocks of width 64 with 8 heads), so only the weights differ from a
randomly initialised critic. It is not OpenAI's GPT-2, which has 124 M weights and was trained on 40 GB.

The folder has the files of transformers' save_pretrained, and pretraining.json: the cross-entropy in bits
per byte on held-out text, and the entropy of the byte frequencies for comparison.
"""

import argparse
import json
import math
import os
import platform
import time
from pathlib import Path

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

BATCH, CONTEXT, HELD_OUT = 32, 128, 0.05
Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


def read_library() -> Bytes:
    """The source of every top-level module of the standard library, sorted by name."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return np.frombuffer(b"\n".join(file.read_bytes() for file in files), dtype=np.uint8)


def sample_batch(data: Bytes, random: np.random.Generator) -> torch.Tensor:
    """Random segments of the text (BATCH, CONTEXT)."""
    places = random.integers(0, len(data) - CONTEXT, BATCH)
    return torch.from_numpy(np.stack([data[place : place + CONTEXT] for place in places]).astype(np.int64))


def bits_per_byte(model: GPT2LMHeadModel, data: Bytes) -> float:
    """Cross-entropy in bits per byte, over 50 batches."""
    random, total = np.random.default_rng(0), 0.0
    with torch.no_grad():
        for _ in range(50):
            batch = sample_batch(data, random)
            total += float(model(batch, labels=batch).loss)
    return total / 50 / math.log(2)


def frequency_entropy(data: Bytes) -> float:
    """Entropy of the byte frequencies in bits per byte."""
    share = np.bincount(data, minlength=256) / len(data)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def train(steps: int, seed: int) -> tuple[GPT2LMHeadModel, dict[str, float]]:
    """A model, and its cross-entropy."""
    data = read_library()
    trained_on, held_out = np.split(data, [int(len(data) * (1 - HELD_OUT))])
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 8, "vocab_size": 256, "n_positions": CONTEXT}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    start = time.perf_counter()
    for step in range(steps):
        batch = sample_batch(trained_on, random)
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 200 == 0:
            print(
                f"{step + 1} of {steps} steps: {float(loss.detach()) / math.log(2):.2f} bits per byte",
                flush=True,
            )
    model.eval()
    scores = {
        "bits": bits_per_byte(model, held_out),
        "bits_by_frequency": frequency_entropy(trained_on),
        "bytes": len(trained_on),
    }
    return model, {**scores, "steps": steps, "seconds": time.perf_counter() - start}


def main() -> None:
    """Train and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, scores = train(args.steps, args.seed)
    model.save_pretrained(args.out)
    summary = {**scores, "python": platform.python_version(), "seed": args.seed}
    (args.out / "pretraining.json").write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
