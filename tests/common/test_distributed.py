"""One run on several processes: what they learn together is what one learns alone, or all of them stop."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import recollect
from recollect.common.distributed import ALONE, Ranks, batch_scheduling, pinned_cores, process_group
from recollect.common.errors import UsageError
from recollect.run import checkpoint, run

from ..helpers import assert_same_end, metrics_of, run_quietly, sampled, set_status, small_config
from . import ranked

ROOT = Path(__file__).parents[2]
SECONDS = 120  # until a process that hangs fails its test


def world_of(size: int) -> dict[str, str]:
    """The environment that torchrun gives to all of its processes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    world = {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_ADDR": "localhost", "MASTER_PORT": port}
    known = os.environ | {name: str(value) for name, value in world.items()}
    known |= {"TORCHELASTIC_RUN_ID": "test", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    return known | {"PYTHONFAULTHANDLER": "1"}  # a process that is aborted says where


def together(size: int, folder: Path, *command: str) -> list[tuple[int, str]]:
    """How each process ended and what it said; torchrun itself would take seconds more."""
    world = world_of(size)
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", *command],
            env=world | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    said = [process.communicate(timeout=SECONDS)[0] for process in begun]
    return [(process.returncode, text) for process, text in zip(begun, said, strict=True)]


def asked(folder: Path, *what: str, size: int = 2) -> list[tuple[int, str]]:
    """How each of so many processes of ranked.py ended and what it said."""
    command = [sys.executable, "-m", "tests.common.ranked", str(folder), str(size), *what]
    done = subprocess.run(
        command, env=world_of(size), cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=True
    )
    said = [(folder / f"{rank}.txt").read_text() for rank in range(size)]
    return list(zip(json.loads(done.stdout), said, strict=True))


def well(ended: list[tuple[int, str]]) -> None:
    """All must have ended well; else what they said is why."""
    assert not any(code for code, _ in ended), "\n".join(f"{code}: {text}" for code, text in ended)


def found(folder: Path, size: int = 2) -> list[dict]:
    """What each of them has, by name."""
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> list[dict]:
    """What two processes did together, one thing after the other: they take seconds to begin."""
    folder = tmp_path_factory.mktemp("pair")
    well(asked(folder, "one_update", "two_updates", "said", "manners", "wrong_gradient", "unlike"))
    return found(folder)


@pytest.fixture(scope="module")
def four(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("four")
    well(asked(folder, "two_updates", size=4))
    return found(folder, 4)


def largest(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name].double() - other[name].double()).abs().max()) for name in one)


OWN_ROUNDING = ("ratio_error", "value_error", "state_error")


# One learner ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "what"),
    sampled(
        [("pair", "one_update"), ("pair", "two_updates"), ("four", "two_updates")], ("pair", "two_updates")
    ),
)
def test_processes_learn_what_one_learns(world, what, request):
    alone = getattr(ranked, what)(ALONE)
    shares = [share[what] for share in request.getfixturevalue(world)]
    # The claim is empty where processes have as many rows each.
    assert len({share["plain"]["own rows"] for share in shares}) > 1
    for name, wanted in alone.items():
        allowed = 1e-6 if name == "float32" else 1e-12
        for share in shares:
            assert largest(share[name]["weights"], wanted["weights"]) < allowed, name
            assert largest(share[name]["rewards"], wanted["rewards"]) < allowed, name
            assert torch.equal(share[name]["episodes"][:, :2], wanted["episodes"][:, :2])
            assert share[name]["step"] == wanted["step"]
            for row, other in zip(share[name]["metrics"], wanted["metrics"], strict=True):
                exact = [row[key] for key in row if key not in OWN_ROUNDING and row[key] is not None]
                wanted_too = [other[key] for key in row if key not in OWN_ROUNDING and row[key] is not None]
                assert exact == pytest.approx(wanted_too, rel=1e-5, abs=1e-6), name
        same = [share[name]["weights"] for share in shares]
        assert all(largest(weights, same[0]) == 0 for weights in same), name


def test_what_is_said_is_heard(pair):
    first, second = (share["said"] for share in pair)
    numbers, flags, whole = first["all_gather_envs"]
    assert numbers.tolist() == [[0, 0, 0, 1, 1, 1]] * 2 and numbers.dtype == torch.float32
    assert flags.tolist() == [[False] * 3 + [True] * 3] and whole.dtype == torch.int32
    assert first["all_reduce_max"] == second["all_reduce_max"] == (1, 0)
    assert first["gather"] == [{"rank": 0}, {"rank": 1}] and second["gather"] == [{"rank": 1}]
    assert (first["block"], second["block"]) == ([0, 3], [3, 6])


def test_processes_of_a_machine_keep_to_cores_of_their_own(monkeypatch):
    monkeypatch.setattr(os, "getppid", os.getpid)
    before, shares = os.sched_getaffinity(0), []
    for place in range(len(before)):
        with pinned_cores(place, len(before)):
            shares.append(os.sched_getaffinity(0))
    assert shares == [{core} for core in sorted(before)]
    with pinned_cores(0, len(before) + 1):
        assert os.sched_getaffinity(0) == before


def test_who_is_bound_already_stays_so(monkeypatch):
    before = os.sched_getaffinity(0)
    with subprocess.Popen(["sleep", "60"]) as other:
        os.sched_setaffinity(other.pid, [min(before)])
        monkeypatch.setattr(os, "getppid", lambda: other.pid)
        with pinned_cores(0, 2):
            assert os.sched_getaffinity(0) == before
        other.kill()


def test_threads_that_send_do_not_interrupt_one_another(pair):
    """Or a message that others interrupt takes as long as all else that a minibatch asks for."""
    for share in pair:
        assert set(share["manners"]["gloo"]) == {os.SCHED_BATCH}
        assert share["manners"]["own"] == os.SCHED_OTHER


def test_who_schedules_a_process_is_not_overruled():
    code = "import os; from recollect.common.distributed import batch_scheduling\n"
    code += "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\n"
    code += "with batch_scheduling(): assert os.sched_getscheduler(0) == os.SCHED_IDLE\n"
    code += "assert os.sched_getscheduler(0) == os.SCHED_IDLE\n"
    code += "os._exit(0)"  # an idle process would wait for the other tests to end as well
    subprocess.run([sys.executable, "-c", code], check=True, timeout=SECONDS)


def test_where_nothing_may_be_scheduled_nothing_changes(monkeypatch):
    def refused(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with batch_scheduling():
        assert os.sched_getscheduler(0) == os.SCHED_OTHER


def test_alone_nothing_is_sent_or_copied():
    x = torch.zeros(2, 3)
    assert ALONE.all_reduce_sum(x) is x and ALONE.all_gather_envs([x])[0] is x and ALONE.gather(x) == [x]
    assert ALONE.all_reduce_max(1.5, 2) == (1.5, 2) and ALONE.all_gather(x).shape == (1, 2, 3)


def test_a_world_of_one_is_alone(monkeypatch):
    with process_group() as here:
        assert here is ALONE
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    monkeypatch.setenv("WORLD_SIZE", "1")
    with process_group() as here:
        assert here is ALONE


# Faults ---------------------------------------------------------------------------------------


def test_a_gradient_that_is_not_finite_is_left_out_by_all(pair):
    first, second = (share["wrong_gradient"] for share in pair)
    assert first["skipped"] == second["skipped"] == 1
    assert largest(first["weights"], second["weights"]) == 0
    assert all(x.isfinite().all() for x in first["weights"].values())


def test_weights_that_differ_by_a_bit_stop_all(pair):
    for share in pair:
        assert "the weights of processes [1] of 2 differ from those of process 0" in share["unlike"]


def test_who_is_left_alone_ends(tmp_path):
    (code, text), (other, _) = asked(tmp_path, "gone")
    assert (code, other) == (1, 7)
    assert "process 0 of 2 lost the others: one ended, or did not answer" in text


@pytest.mark.thorough
def test_silence_is_not_waited_for(tmp_path):
    (code, text), (other, said) = asked(tmp_path, "silent")
    assert (code, other) == (1, 7) and "lost the others" in text, said


LOOPBACK, OUTER = "0100007F", "0200007F"  # as /proc writes 127.0.0.1, and 127.0.0.2 for another address
NAMED = 'hostname outer && mount --bind hosts /etc/hosts && exec "$@"'


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "-um", "true"], capture_output=True).returncode,
    reason="to give the machine another name needs root",
)
@pytest.mark.parametrize(("interface", "address"), [({}, LOOPBACK), ({"GLOO_SOCKET_IFNAME": ""}, OUTER)])
def test_processes_of_a_machine_meet_on_its_loopback(interface, address, tmp_path):
    """The control: what the user says of the interface counts, and without one Gloo takes the name's."""
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n127.0.0.2 outer\n")
    command = ["unshare", "-um", "sh", "-ec", NAMED, "sh", sys.executable, "-m", "tests.common.ranked"]
    world = {name: value for name, value in world_of(2).items() if name != "GLOO_SOCKET_IFNAME"} | interface
    done = subprocess.run(
        [*command, str(tmp_path), "2", "listening"], env=world, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0 and json.loads(done.stdout) == [0, 0], done.stderr
    for share in found(tmp_path):
        assert share["listening"] - {"00000000"} == {address}


# Runs -----------------------------------------------------------------------------------------


def torchrun(folder: Path, *arguments: str, restarts: int = 0) -> subprocess.Popen[str]:
    """Two processes, as a user begins them."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += ["--max-restarts", str(restarts), "--monitor-interval", "0.2", "-m", "recollect", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(
        command, cwd=folder, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes
    )


TRAIN = ["train", "poc", "-m", "ppo_gru", "--rollouts", "30", "--save-interval", "1", "--seed", "2"]
TRAIN += ["--out", "runs", "--run-id", "a"]
RUN = Path("ppo_gru/poc/a")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Path:
    """A run of two processes."""
    folder = tmp_path_factory.mktemp("undisturbed")
    ended = together(2, folder, "recollect", *TRAIN)
    well(ended)
    (_, said), (_, silent) = ended
    assert "saved in runs" in said and not silent
    return folder / "runs" / RUN


def children(process: subprocess.Popen[str]) -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(pid) for pid in found.split()]


def when_saved(folder: Path, process: subprocess.Popen[str]) -> None:
    """Wait for a checkpoint that is not the first."""
    end = time.monotonic() + SECONDS
    while not list((folder / RUN / "checkpoints").glob("iteration-0000000[3-9]*")):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.thorough
def test_a_process_that_dies_is_begun_again(undisturbed, tmp_path):
    process = torchrun(tmp_path, *TRAIN, restarts=1)
    when_saved(tmp_path / "runs", process)
    os.kill(children(process)[-1], signal.SIGKILL)
    said = process.communicate(timeout=SECONDS)[0]
    assert process.returncode == 0 and "resumed iteration-" in said, said
    assert_same_end(undisturbed, tmp_path / "runs" / RUN)


@pytest.mark.thorough
def test_a_signal_stops_all_and_the_run_goes_on(undisturbed, tmp_path):
    process = torchrun(tmp_path, *TRAIN)
    when_saved(tmp_path / "runs", process)
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=SECONDS) and process.returncode != 0
    folder = tmp_path / "runs" / RUN
    assert '"status": "SIGTERM"' in (folder / "summary.json").read_text()
    well(together(2, tmp_path, "recollect", "resume", str(folder)))
    assert_same_end(undisturbed, folder)


def unended(run: Path, folder: Path, last: int | None = None) -> Path:
    """A copy of a run as it was before its end, with no checkpoint after `last`."""
    copy = shutil.copytree(run, folder / "runs" / run.parent.parent.name / run.parent.name / run.name)
    set_status(copy)
    for path in checkpoint.existing(copy / "checkpoints"):
        if last is not None and path != checkpoint.path_of(copy / "checkpoints", last):
            path.unlink()
    return copy


@pytest.mark.thorough
def test_the_first_process_keeps_the_episodes_of_all(undisturbed):
    episodes = recollect.load(undisturbed).episodes()
    assert len(episodes) == metrics_of(undisturbed)[-1]["episodes"]
    config = recollect.load(undisturbed).config
    assert {episode.env for episode in episodes} == set(range(config.env.num_envs))


@pytest.mark.thorough
def test_environments_that_were_saved_apart_are_not_mixed(undisturbed, tmp_path):
    folder = unended(undisturbed, tmp_path)
    with pytest.raises(UsageError, match=r"was saved by 2 processes, here are 1.* --nproc-per-node 2"):
        recollect.resume(folder, quiet=True)


@pytest.mark.thorough
def test_environments_that_begin_anew_may_be_dealt_to_another_number(tmp_path, capsys):
    steps = ["--rollouts", "4", "--env.num-envs", "4", "--ppo.num-steps", "16", "--barrier", "1"]
    steps += ["--ppo.num-minibatches", "2"]
    run = ["train", "LunarLander-v3", "--env.backend", "gymnasium", "-m", "ppo_gru", *steps, "--keep", "9"]
    well(together(2, tmp_path, "recollect", *run, "--out", "runs", "--run-id", "a", "--seed", "2"))
    wanted = tmp_path / "runs/ppo_gru/LunarLander-v3/a"
    recollect.resume(folder := unended(wanted, tmp_path / "alone", last=3))
    assert "processes: 2 before, 1 now; results are equal up to rounding" in capsys.readouterr().out
    one, other = (checkpoint.read(run / "checkpoints/last.safetensors")[0] for run in (wanted, folder))
    assert 0 < largest(one, other) < 1e-5
    assert metrics_of(folder)[-1]["return"] == metrics_of(wanted)[-1]["return"]


# What cannot be shared ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_envs", "ppo", "algorithm", "said"),
    [
        (3, {"num_minibatches": 1}, "ppo", "2 processes cannot share 3 environments"),
        (4, {"num_minibatches": 4}, "ppo", "minibatches of 1 chunks equally"),
        (4, {}, "a2c", "algorithm a2c runs in one process, here are 2; use ppo"),
    ],
)
def test_what_cannot_be_shared_is_said(num_envs, ppo, algorithm, said, monkeypatch, tmp_path):
    monkeypatch.setattr(run, "process_group", lambda: nullcontext(Ranks(1, 2)))
    config = small_config("poc", "auto", algorithm=algorithm)
    env, sizes = replace(config.env, num_envs=num_envs), replace(config.ppo, bptt=16, **ppo)
    with pytest.raises(UsageError, match=said):
        run_quietly(replace(config, env=env, ppo=sizes), tmp_path)
    assert not list(tmp_path.rglob("config.yaml"))
