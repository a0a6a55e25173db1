"""A small GPT-2 that learned from text, for `--critic.pretrained`.

    python -m benchmarks.pretrain --out runs/gpt2_bytes [--steps 2000]

It reads the sources of Python's standard library byte by byte, because they lie on every machine. Its
sizes are those of the critic (2 blocks of 64 with 8 heads), so nothing but the weights differs from a
critic that begins at random. It is not OpenAI's GPT-2, which has 124 M weights and read 40 GB.

The folder holds what transformers stores, and pretraining.json: the bits a byte of text that was not
trained on costs the model, and those that the frequencies of bytes alone would cost.
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


def text() -> Bytes:
    """Every module of the standard library, in the order of names."""
    files = sorted(Path(os.__file__).parent.glob("*.py"))
    return np.frombuffer(b"\n".join(file.read_bytes() for file in files), dtype=np.uint8)


def draw(data: Bytes, random: np.random.Generator) -> torch.Tensor:
    """Stretches of text (BATCH, CONTEXT)."""
    places = random.integers(0, len(data) - CONTEXT, BATCH)
    return torch.from_numpy(np.stack([data[place : place + CONTEXT] for place in places]).astype(np.int64))


def bits(model: GPT2LMHeadModel, data: Bytes) -> float:
    """Bits a byte, over 50 batches."""
    random, total = np.random.default_rng(0), 0.0
    with torch.no_grad():
        for _ in range(50):
            batch = draw(data, random)
            total += float(model(batch, labels=batch).loss)
    return total / 50 / math.log(2)


def entropy(data: Bytes) -> float:
    """Bits a byte where each is guessed from its frequency."""
    share = np.bincount(data, minlength=256) / len(data)
    share = share[share > 0]
    return float(-(share * np.log2(share)).sum())


def train(steps: int, seed: int) -> tuple[GPT2LMHeadModel, dict[str, float]]:
    """A model, and how well it reads."""
    data = text()
    learned, kept = np.split(data, [int(len(data) * (1 - HELD_OUT))])
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 8, "vocab_size": 256, "n_positions": CONTEXT}
    model = GPT2LMHeadModel(GPT2Config(**sizes, resid_pdrop=0, attn_pdrop=0, embd_pdrop=0))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    start = time.perf_counter()
    for step in range(steps):
        batch = draw(learned, random)
        loss = model(batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if (step + 1) % 200 == 0:
            print(
                f"{step + 1} of {steps} steps: {float(loss.detach()) / math.log(2):.2f} bits a byte",
                flush=True,
            )
    model.eval()
    scores = {"bits": bits(model, kept), "bits_by_frequency": entropy(learned), "bytes": len(learned)}
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
