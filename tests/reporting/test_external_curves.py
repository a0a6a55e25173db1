"""Curves of other programs: what is read of their files, and what is said where that fails."""

import numpy as np
import pytest

from recollect.common.errors import UsageError
from recollect.reporting.external_curves import read_imports, read_series, running_mean

OWN = "step,return\n10,1.5\n20,2.5\n"
PROGRESS = """time/total_timesteps,rollout/ep_rew_mean,time/time_elapsed,train/loss
2048,,1,
4096,20.5,2,0.1
6144,30.5,3,0.2
"""


def write(path, text):
    path.write_text(text)
    return path


def test_a_table_of_steps_and_returns(tmp_path):
    series = read_series(write(tmp_path / "own.csv", OWN))
    assert series["step"].tolist() == [10, 20] and series["return"].tolist() == [1.5, 2.5]
    assert "time" not in series


def test_progress_of_sb3_without_the_lines_that_know_no_return(tmp_path):
    series = read_series(write(tmp_path / "progress.csv", PROGRESS))
    assert series["step"].tolist() == [4096, 6144] and series["time"].tolist() == [2, 3]
    assert series["return"].tolist() == [20.5, 30.5]


def test_monitor_of_sb3_is_of_episodes(tmp_path):
    head = '#{"t_start": 1.0, "env_id": "CartPole-v1"}\nr,l,t\n'
    lines = "".join(f"{i % 2},{5},{i / 10}\n" for i in range(150))
    series = read_series(write(tmp_path / "monitor.csv", head + lines))
    assert series["step"].tolist() == [5 * (i + 1) for i in range(150)]
    assert np.isnan(series["return"][:99]).all() and series["return"][99:].tolist() == [0.5] * 51


def test_the_mean_of_the_last_100_episodes():
    paid = np.arange(250.0)
    np.testing.assert_allclose(running_mean(paid)[99:], [paid[i - 99 : i + 1].mean() for i in range(99, 250)])
    assert np.isnan(running_mean(paid[:50])).all()


def events(folder, tag, values):
    """An event folder as any writer leaves one."""
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for i, value in enumerate(values):
        summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(event_pb2.Event(wall_time=100.0 + i, step=10 * (i + 1), summary=summary))
    writer.close()
    return folder


@pytest.mark.parametrize("tag", ["rollout/ep_rew_mean", "episode/reward_mean", "return"])
def test_events_of_means(tag, tmp_path):
    series = read_series(events(tmp_path / "events", tag, [1.0, 2.0, 4.0]))
    assert series["step"].tolist() == [10, 20, 30] and series["time"].tolist() == [0, 1, 2]
    assert series["return"].tolist() == [1, 2, 4]


def test_events_of_episodes(tmp_path):
    series = read_series(events(tmp_path / "events", "charts/episodic_return", [3.0] * 120))
    assert np.isnan(series["return"][:99]).all() and (series["return"][99:] == 3).all()


def test_equal_labels_are_seeds_and_one_environment_need_not_be_named(tmp_path):
    path = write(tmp_path / "own.csv", OWN)
    (track,) = read_imports([f"SB3={path}", f"SB3@E={path}"], ["E"])
    assert (track.env, track.label, track.kind, len(track.series)) == ("E", "SB3 (imported)", "imported", 2)
    one, other = read_imports([f"x@E={path}", f"x@F={path}"], ["E", "F"])
    assert (one.env, other.env) == ("E", "F")


BAD = {
    "no path": ("SB3", "LABEL=PATH"),
    "no label": ("=x.csv", "LABEL=PATH"),
    "no environment": ("SB3={own}", "several environments"),
    "other environment": ("SB3@G={own}", "no run on G; the environments are E, F"),
    "no file": ("SB3@E={tmp}/nothing.csv", "No such file"),
    "columns": ("SB3@E={columns}", "needs the columns step and return"),
    "empty": ("SB3@E={empty}", "needs the columns step and return"),
    "backwards": ("SB3@E={backwards}", "do not increase"),
    "words": ("SB3@E={words}", "do not increase"),
    "bytes": ("SB3@E={bytes}", "can't decode"),
    "no events": ("SB3@E={tmp}", "no scalar of"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_cannot_be_imported_is_said_in_one_line(kind, tmp_path):
    text, message = BAD[kind]
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\n")
    files = {
        "own": OWN,
        "columns": "a,b\n1,2\n",
        "empty": "",
        "backwards": "step,return\n2,1\n1,1\n",
        "words": "step,return\none,two\n",
    }
    paths = {name: write(tmp_path / name, content) for name, content in files.items()}
    with pytest.raises(UsageError, match=message) as caught:
        read_imports([text.format(tmp=tmp_path, bytes=tmp_path / "bytes", **paths)], ["E", "F"])
    assert "\n" not in str(caught.value)
