"""Published MMER of POPGym's tasks, as reference values of reports.

The numbers are those of Table 3 of the paper of POPGym (Morad et al., 2023), with RLlib's PPO, 15 million
steps and 3 trials. They are taken from a transcription of that table in another repository (SOURCES), and
have not been checked against the paper. The transcription has the GRU and the best of the 13 memories of each
task, and not all tasks. The paper says Stateless for PositionOnly; popgym renamed these tasks in 2023.
"""

from dataclasses import dataclass

MEMORIES = 13
TRIALS = 3
STEPS = 15_000_000
SOURCES = (
    ("paper: Morad et al., 2023, Table 3", "https://arxiv.org/abs/2303.01859"),
    (
        "transcription: fly-critic, flycritic/popgym/results.py",
        "https://github.com/bryjudy/fly-critic/blob/main/flycritic/popgym/results.py",
    ),
)
# popgym 1.0.7 corrected errors of these tasks, so the numbers of the paper are of other tasks.
CORRECTED = ("CountRecall", "MineSweeper")


@dataclass(frozen=True)
class PublishedScore:
    """MMER of one memory of the paper in one task."""

    label: str
    mean: float
    std: float | None = None
    """Over the trials; None: not transcribed."""


# Task -> mean and standard deviation of the GRU, best memory, its mean.
_TABLE: dict[str, tuple[float, float, str, float]] = {
    "AutoencodeEasy": (-0.283, 0.029, "GRU", -0.283),
    "AutoencodeMedium": (-0.425, 0.018, "IndRNN", -0.420),
    "AutoencodeHard": (-0.456, 0.009, "IndRNN", -0.448),
    "HigherLowerEasy": (0.529, 0.002, "GRU", 0.529),
    "HigherLowerMedium": (0.511, 0.002, "IndRNN", 0.513),
    "HigherLowerHard": (0.506, 0.001, "IndRNN", 0.509),
    "MultiarmedBanditEasy": (0.619, 0.007, "Elman", 0.631),
    "MultiarmedBanditMedium": (0.538, 0.036, "TCN", 0.598),
    "MultiarmedBanditHard": (0.516, 0.083, "TCN", 0.574),
    "NoisyPositionOnlyCartPoleEasy": (0.995, 0.000, "GRU", 0.995),
    "NoisyPositionOnlyCartPoleMedium": (0.642, 0.012, "IndRNN", 0.659),
    "NoisyPositionOnlyCartPoleHard": (0.390, 0.007, "IndRNN", 0.404),
    "PositionOnlyCartPoleEasy": (1.000, 0.000, "GRU", 1.000),
    "PositionOnlyCartPoleMedium": (1.000, 0.000, "GRU", 1.000),
    "PositionOnlyCartPoleHard": (1.000, 0.000, "GRU", 1.000),
    "RepeatFirstEasy": (1.000, 0.000, "GRU", 1.000),
    "RepeatFirstMedium": (1.000, 0.000, "GRU", 1.000),
    "RepeatFirstHard": (0.940, 0.012, "IndRNN", 0.969),
    "RepeatPreviousEasy": (1.000, 0.000, "GRU", 1.000),
    "RepeatPreviousMedium": (-0.315, 0.017, "LMU", 0.789),
    "RepeatPreviousHard": (-0.428, 0.002, "LMU", 0.191),
}


def published_scores(task: str) -> list[PublishedScore]:
    """The published scores of a task, the best memory first; none for tasks that are not in the table."""
    if task not in _TABLE:
        return []
    mean, std, best, highest = _TABLE[task]
    if best == "GRU":
        return [PublishedScore("GRU (published, best)", mean, std)]
    return [
        PublishedScore(f"{best} (published, best)", highest),
        PublishedScore("GRU (published)", mean, std),
    ]
