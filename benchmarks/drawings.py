"""The drawings of the lessons, as SVG.

    python -m benchmarks.drawings [--out docs/images]

Each has a white background, so that it reads the same on a light and on a dark page.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

INK, BLUE, ORANGE, GREY = "#222222", "#1f6fb4", "#b8560b", "#666666"
Point = tuple[float, float]


def svg(width: int, height: int, title: str, parts: Sequence[str]) -> str:
    """A whole picture."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="13">\n'
        f"<title>{title}</title>\n"
        f'<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>\n'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>\n'
    )
    return head + "\n".join(parts) + "\n</svg>\n"


def text(x: float, y: float, words: str, colour: str = INK, anchor: str = "middle") -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{colour}">{words}</text>'


def box(x: float, y: float, width: float, height: float, words: str = "", colour: str = INK) -> str:
    """A rectangle with words in its middle."""
    frame = (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5" fill="#ffffff" '
        f'stroke="{colour}" stroke-width="1.5"/>'
    )
    return frame + (text(x + width / 2, y + height / 2 + 4.5, words, colour) if words else "")


def line(points: Sequence[Point], colour: str = INK, tip: bool = False, dashes: bool = False) -> str:
    """Straight lines from point to point."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    end = ' marker-end="url(#tip)"' if tip else ""
    dashed = ' stroke-dasharray="4 3"' if dashes else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"{dashed}{end}/>'


def loop() -> str:
    """The agent-environment loop."""
    parts = [
        box(30, 60, 130, 50, "agent", BLUE),
        box(330, 60, 130, 50, "environment", ORANGE),
        line([(95, 60), (95, 25), (395, 25), (395, 58)], tip=True),
        text(245, 18, "action a(t)"),
        line([(395, 110), (395, 145), (95, 145), (95, 112)], tip=True),
        text(245, 138, "reward r(t), next observation s(t+1)"),
    ]
    return svg(490, 165, "The agent-environment loop", parts)


def network(top: float, name: str, output: str, colour: str) -> list[str]:
    """One of the two networks, from left to right."""
    layers = ("observation", "256, ReLU", "256, ReLU", output)
    parts = [text(15, top + 27, name, colour, "start")]
    for i, words in enumerate(layers):
        left = 75 + 125 * i
        parts.append(box(left, top, 100, 44, words, colour))
        if i:
            parts.append(line([(left - 25, top + 22), (left - 2, top + 22)], tip=True))
    return parts


def networks() -> str:
    """Actor and critic."""
    parts = network(15, "actor", "one p per action", BLUE) + network(85, "critic", "V, one number", ORANGE)
    parts += [text(575, 42, "softmax", GREY, "start"), text(575, 112, "regression", GREY, "start")]
    return svg(650, 145, "The actor and the critic", parts)


def objective(left: float, positive: bool, clip: float = 0.2) -> list[str]:
    """min(ratio A, clip(ratio) A) over the ratio, for A = 1 or A = -1."""
    sign = 1 if positive else -1
    zero = 170 if positive else 40

    def at(ratio: float, value: float) -> Point:
        return left + 120 * ratio, zero - 65 * value

    def clipped(ratio: float) -> float:
        return min(sign * ratio, sign * min(max(ratio, 1 - clip), 1 + clip))

    bend = 1 + clip if positive else 1 - clip
    ends = 0.0, bend, 1.8
    name = "1 + ε" if positive else "1 - ε"
    free = (at(bend, sign * bend), at(1.8, sign * 1.8)) if positive else (at(0, 0), at(bend, sign * bend))
    return [
        line([at(0, 0), at(1.9, 0)], GREY),
        line([at(0, -2.0 if not positive else 0), at(0, 2.0 if positive else 0)], GREY),
        line([at(bend, 0), at(bend, sign * bend)], GREY, dashes=True),
        line(free, GREY, dashes=True),
        line([at(ratio, clipped(ratio)) for ratio in ends], BLUE if positive else ORANGE),
        text(at(bend, 0)[0], zero + (17 if positive else -9), name),
        text(at(1.75, 0)[0], zero + (17 if positive else -9), "ratio", GREY),
        text(left + 105, 205, "A &gt; 0: flat above 1 + ε" if positive else "A &lt; 0: flat below 1 - ε"),
    ]


def clip() -> str:
    """The clipped objective for both signs of the advantage."""
    return svg(560, 215, "The clipped objective of PPO", objective(25, True) + objective(305, False))


def chunks() -> str:
    """Truncated back-propagation: chunks, stored states, a reset."""
    parts = [text(15, 20, "a rollout of T = 12 steps in chunks of L = 4", anchor="start")]
    for t in range(12):
        left = 30 + 42 * t + 14 * (t // 4)
        parts.append(box(left, 60, 30, 30, str(t), ORANGE if t == 6 else BLUE))
        if t % 4 < 3:
            parts.append(line([(left + 30, 75), (left + 40, 75)], tip=True))
    for k in range(3):
        left = 30 + 182 * k
        parts.append(line([(left - 10, 45), (left - 10, 105)], GREY, dashes=True))
        parts.append(text(left - 10, 122, "stored state", GREY, "start" if k == 0 else "middle"))
        # A reset stops the gradient as well as the state.
        spans = ((0, 72), (84, 156)) if k == 1 else ((0, 156),)
        parts += [line([(left + end, 145), (left + start, 145)], tip=True) for start, end in spans]
        parts.append(text(left + 78, 162, "gradient"))
    parts.append(text(30 + 42 * 6 + 14 + 15, 52, "reset", ORANGE))
    return svg(570, 175, "Truncated back-propagation through time", parts)


DRAWINGS = {"learn-loop": loop, "learn-networks": networks, "learn-clip": clip, "learn-chunks": chunks}


def main() -> None:
    """Write all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.drawings", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out = parser.parse_args().out
    for name, drawing in DRAWINGS.items():
        (out / f"{name}.svg").write_text(drawing())


if __name__ == "__main__":
    main()
