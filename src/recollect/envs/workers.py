"""Gymnasium environments in worker processes, one each.

A worker that raises, dies or hangs is replaced by a new process. Its episode is truncated after the last
observation that it gave.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from multiprocessing.util import Finalize
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import (
    CloudpickleWrapper,
    batch_space,
    create_shared_memory,
    iterate,
    read_from_shared_memory,
    write_to_shared_memory,
)

from ..common.errors import EnvDataError, UsageError
from .failures import ABORTED, FAILURES, Failure, Restarts, close_quietly, describe, join_info
from .local import check_shapes
from .returned import fits, read_reset, read_step
from .spaces import Array

# To close an environment, before its process is killed. Less than a run has after a signal
# (common/signals.py, LAST_GRACE), and of the rest it closes its files.
CLOSE_SECONDS = 1.0
# For the construction, where calls have a limit: simulators start more slowly than they step.
BUILD_SECONDS = 120.0
PR_SET_PDEATHSIG = 1  # of Linux


class WorkerEnvs(VectorEnv):  # type: ignore[misc] # its base is Any to mypy
    """N environments in N processes, with next-step autoreset; observations are in shared memory.

    timeout  seconds for a step or a reset, after which a worker is replaced; None: no limit. Before the first
             of them, its construction has BUILD_SECONDS
    """

    def __init__(
        self,
        factory: Callable[[], gym.Env[Any, Any]],
        num_envs: int,
        restarts: Restarts,
        timeout: float | None,
    ) -> None:
        self.num_envs = num_envs
        self._factory, self._restarts, self._timeout = factory, restarts, timeout
        env = factory()
        self.metadata = dict(env.metadata)
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.example = env  # closed, but its wrappers can be inspected
        close_quietly(env)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._context = multiprocessing.get_context()
        self._memory = create_shared_memory(self.single_observation_space, n=num_envs, ctx=self._context)
        # Views of the shared memory, which the workers overwrite in every step.
        self._observations = read_from_shared_memory(self.single_observation_space, self._memory, n=num_envs)
        self._ended = np.zeros(num_envs, dtype=bool)
        self._lost = np.zeros(num_envs, dtype=bool)  # failed in the last step: the next one restarts them
        self._built = np.zeros(num_envs, dtype=bool)  # whether a worker has its environment
        self._steps = 0
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []
        # Where nobody closes them, as after a signal: multiprocessing would send SIGTERM, and wait.
        Finalize(self, _kill_all, args=(self._processes,), exitpriority=0)
        for i in range(num_envs):
            pipe, process = self._start(i)
            self._pipes.append(pipe)
            self._processes.append(process)

    def _start(self, i: int) -> tuple[Connection, Any]:
        pipe, child = self._context.Pipe()
        arguments = i, CloudpickleWrapper(self._factory), child, self._memory, os.getpid()
        process = self._context.Process(target=work, args=arguments, name=f"environment {i}", daemon=True)
        process.start()
        child.close()
        return pipe, process

    def reset(self, *, seed: list[int], options: Any = None) -> tuple[Any, dict[str, Any]]:
        self._restarts.begin(seed)
        self._ended[:] = self._lost[:] = False
        for i, one in enumerate(seed):
            self._send(i, "reset", one)
        infos: dict[str, Any] = {}
        end = self._deadline()
        for i in range(self.num_envs):
            infos = join_info(self, infos, self._reset_info(i, end), i, self._restarts.name)
        return self._observations, infos

    def _reset_info(self, i: int, end: float | None) -> Any:
        """The info of a reset that was sent; restarts the environment as long as that fails."""
        answer = self._receive(i, end, "reset")
        while isinstance(answer, Failure):
            self._restarts.add(i, answer)
            self._restart(i)
            answer = self._receive(i, self._deadline(), "reset")
        self._restarts.note_reset(i)
        return answer

    def _restart(self, i: int) -> None:
        """Replace a process, and send it a reset."""
        self._kill(i)
        self._pipes[i], self._processes[i] = self._start(i)
        self._built[i] = False
        self._send(i, "reset", self._restarts.next_seed(i))

    def step(self, actions: Array) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        self._steps += 1
        each = list(iterate(self.action_space, actions))
        for i, action in enumerate(each):
            if self._lost[i]:
                self._restart(i)
            elif self._ended[i]:
                self._send(i, "reset", None)
            else:
                self._send(i, "step", action)
        rewards = np.zeros(self.num_envs)
        terminated, truncated = (np.zeros(self.num_envs, dtype=bool) for _ in range(2))
        infos: dict[str, Any] = {}
        end = self._deadline()
        lost = np.zeros(self.num_envs, dtype=bool)
        for i, action in enumerate(each):
            if self._ended[i]:
                info = self._reset_info(i, end)
            else:
                answer = self._receive(i, end, f"step {self._steps} with action {action}")
                if isinstance(answer, Failure):
                    self._restarts.add(i, answer)
                    self._kill(i)  # of a process that is late, the observation would come after this step
                    lost[i] = truncated[i] = True
                    info = {ABORTED: True}
                else:
                    rewards[i], terminated[i], truncated[i], info = answer
            infos = join_info(self, infos, info, i, self._restarts.name)
        self._ended, self._lost = terminated | truncated, lost
        self._restarts.note_ends(self._ended & ~lost)
        return self._observations, rewards, terminated, truncated, infos

    def _send(self, i: int, command: str, data: Any) -> None:
        with contextlib.suppress(OSError):  # a dead process: `_receive` reports it
            self._pipes[i].send((command, data))

    def _deadline(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _receive(self, i: int, end: float | None, call: str) -> Any:
        """The answer of a worker, or the failure of its environment."""
        try:
            kind, answer = self._message(i, end if end is None or self._built[i] else end + BUILD_SECONDS)
            if kind == "built":
                self._built[i] = True
                kind, answer = self._message(i, self._deadline())
        except (EOFError, OSError):
            return Failure(call, f"its process ended with {self._exit_of(i)}")
        if kind == "late":
            limit = f"no answer within {self._timeout:g} seconds (env.step_timeout)"
            return Failure(call, limit if self._built[i] else f"not built within {BUILD_SECONDS:g} seconds")
        if kind == "failed":
            return answer._replace(call=call)
        if kind == "refused":
            raise answer
        if kind == "misfit":
            check_shapes(self.single_observation_space, [answer], self._restarts.name, self._steps, i)
            raise EnvDataError(
                f"an observation of environment {i} does not fit its space {self.single_observation_space}"
            )
        return answer

    def _message(self, i: int, end: float | None) -> tuple[str, Any]:
        """The next message of a worker with its kind, which is "late" if none comes in time."""
        pipe = self._pipes[i]
        if end is not None and not pipe.poll(max(0.0, end - time.monotonic())):
            return "late", None
        message: tuple[str, Any] = pipe.recv()
        return message

    def _exit_of(self, i: int) -> str:
        process = self._processes[i]
        process.join(1.0)
        code = process.exitcode
        if code is not None and code < 0:
            return signal.Signals(-code).name
        return f"exit code {code}"

    def _kill(self, i: int) -> None:
        self._pipes[i].close()
        self._processes[i].kill()
        self._processes[i].join()

    def close_extras(self, **kwargs: Any) -> None:
        end = time.monotonic() + CLOSE_SECONDS
        for i in range(len(self._pipes)):
            self._send(i, "close", None)
        for process in self._processes:
            process.join(max(0.0, end - time.monotonic()))
        for i in range(len(self._pipes)):
            self._kill(i)


def _kill_all(processes: list[Any]) -> None:
    for process in processes:
        process.kill()


# In the worker --------------------------------------------------------------------------------


def work(index: int, factory: CloudpickleWrapper, pipe: Connection, memory: Any, parent: int) -> None:
    """Build an environment and serve calls until the pipe is closed."""
    leave_group(parent)
    env: gym.Env[Any, Any] | None = None
    try:
        while True:
            command, data = pipe.recv()
            if command == "close":
                break
            try:
                if env is None:
                    env = factory()
                    pipe.send(("built", None))
                pipe.send_bytes(_answer(env, command, data, index, memory))
            except (UsageError, EnvDataError) as error:
                pipe.send(("refused", error))
            except FAILURES as error:
                pipe.send(("failed", describe("", error)))
    except (EOFError, OSError):  # the parent has ended
        pass
    finally:
        if env is not None:
            close_quietly(env)


def _answer(env: gym.Env[Any, Any], command: str, data: Any, index: int, memory: Any) -> Any:
    """The result of one call, with its kind, pickled; observations are written to shared memory."""
    result: Any
    if command == "reset":
        obs, result = read_reset(env.reset(seed=data), index, env)
    else:
        obs, *result = read_step(env.step(data), index, env)
    # Before the observation is written: if it fails, the last row of the episode is the one before.
    answer = ForkingPickler.dumps(("result", result))
    try:
        if not fits(env.observation_space, obs):
            raise ValueError("another shape, type or range")
        write_to_shared_memory(env.observation_space, index, obs, memory)
    except Exception:
        return ForkingPickler.dumps(("misfit", obs))
    return answer


def leave_group(parent: int) -> None:
    """Take no signals that are for the parent, which stops its workers itself; end when it ends.

    A batch system sends SIGTERM to every process. The parent needs its workers to finish the iteration.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        # Not SIG_IGN, which the programs that an environment starts would inherit.
        signal.signal(number, lambda *_: None)
    if hasattr(os, "setsid"):
        os.setsid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)
