"""What the presets reach: the last weights of several seeds, 100 deterministic episodes each.

    python -m benchmarks.returns [--tasks CartPole-v1 ...] [--seeds 5] [--out benchmarks/results]

All seeds are reported. Runs go one after another unless --jobs says otherwise; EnvPool takes one
thread then, so that neighbours do not slow each other. Threads change no result.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

# environment, steps, what is asked of the mean, the first mean that counts as learned
TASKS = (
    ("CartPole-v1", 500_000, 500.0, 475.0),
    ("Acrobot-v1", 1_000_000, -78.0, -90.0),
    ("LunarLander-v3", 1_000_000, 260.0, 200.0),
    ("BipedalWalker-v3", 5_000_000, 300.0, 280.0),
)


def run(env: str, steps: int, learned: float, seed: int, threads: int) -> dict[str, Any]:
    """Train, evaluate the last weights, and say when the training return first was good."""
    import recollect

    with tempfile.TemporaryDirectory() as out:
        options = {"env.threads": threads}
        trained = recollect.train(env, steps=steps, seed=seed, options=options, out=out, quiet=True)
        lines = (trained.folder / "metrics.jsonl").read_text().splitlines()
        result = trained.evaluate(episodes=100, seed=seed)
    rows = [json.loads(line) for line in lines]
    good = (r for r in rows if r["return"] is not None and r["return"] >= learned)
    first = next(good, None)
    return {
        "seed": seed,
        **result.summary(),
        "steps": trained.summary["step"],
        "seconds": trained.summary["time"],
        "learned_at": first["step"] if first else None,
        "learned_after": first["time"] if first else None,
    }


def main() -> None:
    """Run all seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--tasks", nargs="*", help="names, or parts of names, of environments")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--one", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        env, steps, learned, seed, threads = args.one
        print(json.dumps(run(env, int(steps), float(learned), int(seed), int(threads))))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    tasks = [t for t in TASKS if not args.tasks or any(part in t[0] for part in args.tasks)]
    threads = "1" if args.jobs > 1 else "0"
    with ThreadPoolExecutor(args.jobs) as pool:
        # The longest first, so that no core waits at the end.
        runs = {
            (env, seed): pool.submit(_in_a_process, env, steps, learned, seed, threads)
            for env, steps, _, learned in sorted(tasks, key=lambda task: -task[1])
            for seed in range(1, args.seeds + 1)
        }
    print("| environment | steps | mean return of each seed | mean | asked | learned after steps |")
    print("|---|---|---|---|---|---|")
    for env, steps, asked, _ in tasks:
        found = [runs[env, seed].result() for seed in range(1, args.seeds + 1)]
        (args.out / f"returns-{env}.json").write_text(json.dumps(found, indent=1) + "\n")
        means = ", ".join(f"{r['mean']:.1f}" for r in found)
        at = ", ".join("-" if r["learned_at"] is None else f"{r['learned_at'] / 1000:.0f} k" for r in found)
        overall = statistics.mean(r["mean"] for r in found)
        print(f"| {env} | {steps:,} | {means} | {overall:.1f} | >= {asked:g} | {at} |", flush=True)


def _in_a_process(env: str, steps: int, learned: float, seed: int, threads: str) -> dict[str, Any]:
    what = [env, str(steps), str(learned), str(seed), threads]
    command = [sys.executable, "-m", "benchmarks.returns", "--one", *what]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    print(f"  {env} seed {seed}: {found}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main()
