"""Images of Gymnasium environments."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np

from ..common.errors import UsageError
from .spaces import Array


def rendered(render: Callable[[], Any]) -> Any:
    """The result of a renderer; UsageError if it lacks a package."""
    try:
        return render()
    except (gym.error.DependencyNotInstalled, ImportError) as error:
        raise UsageError(f"the environment cannot be rendered: {error}") from error


def as_rgb(picture: Any) -> Array | None:
    """An image in grey, RGB or RGBA -> (H, W, 3) uint8; None for everything else."""
    image = np.asarray(picture)
    if image.ndim == 2:
        image = image[..., None].repeat(3, -1)
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (3, 4):
        return None
    return image[..., :3]


def images_per_second(metadata: dict[str, Any]) -> int:
    """At least 1; third-party metadata may hold anything, so 30 if it is no number."""
    fps = metadata.get("render_fps")
    return max(1, round(fps)) if isinstance(fps, int | float) else 30
