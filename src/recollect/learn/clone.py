"""Behaviour cloning: the actor learns the actions of another agent, and the critic the returns after them.

    gradient = mean of grad log pi(a[t]),  a[t] recorded, or what a teacher would do

This is the gradient of A2C with an advantage of 1, so the loss is that of A2C, and chunks, memory states,
resets and the comparison of acting and learning are those of every algorithm here. Actions are either those
of recorded episodes (`epochs`), or those of a teacher in the states that the student itself reaches
(`by_teacher`), as in DAgger: so the student learns what to do after its own mistakes.

Shapes.  T steps, N environments, L steps a chunk, K components of an action, P parameters of the policy.
"""

from collections.abc import Iterator

import torch

from ..agent.agent import Agent
from ..agent.policies import masked
from ..common.tree import Tree
from ..envs.spaces import ACTION_MASK
from . import a2c
from .learner import Learner
from .minibatches import Minibatches
from .ppo import Update, descend, estimates, value
from .rollout import Rollout, Row, slice_rows
from .settings import Draw, Plan


@torch.no_grad()
def replay(learner: Learner, rollout: Rollout, start: Tree, length: int) -> None:
    """Compute the actor over the rows of a rollout, as if it had taken their actions."""
    agent, steps = learner.agent, rollout.num_steps
    seen, state, outputs = rollout.normalized(agent), start, []
    span = length if agent.actor.initial_state(1) else steps
    rollout.starts = []
    for t in range(0, steps, span):
        rollout.starts += [state] * (span // length)
        params, state = agent.actor(slice_rows(seen, slice(t, t + span)), state)
        outputs.append(params)
    rollout.log_prob.copy_(agent.policy.evaluate(torch.cat(outputs), rollout.sent.action[:-1])[0])


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """One epoch over the chunks of a rollout; its metrics."""
    targets = estimates(learner, rollout, plan.ppo)
    targets = targets._replace(advantage=torch.ones_like(targets.advantage))
    draw = Draw("off", epochs=1, shuffle=plan.ppo.shuffle)
    return descend(learner, Minibatches(learner, rollout, plan, length, draw, targets), plan, a2c.loss)


def epochs(learner: Learner, rollout: Rollout, row: Row, plan: Plan) -> Iterator[dict[str, float]]:
    """Epochs over recorded rows, each from memory states that the present weights compute; their metrics.

    row  the first row, in which an episode begins everywhere
    """
    initial = learner.agent.initial_state(rollout.num_envs)
    length = plan.ppo.chunk_length(any(initial))
    # Once, before the first epoch: the statistics are those of all rows, and the inputs stay the same.
    learner.update_statistics(rollout)
    learner.iteration = 0
    assert plan.rollouts is not None, "as many as there are epochs"
    for _ in range(plan.rollouts):
        rollout.open(row)
        learner.state = initial
        replay(learner, rollout, initial.actor, length)
        value(learner, rollout, length)
        yield update(learner, rollout, plan, length)
        learner.iteration += 1


def by_teacher(teacher: Agent) -> Update:
    """An update towards the most likely actions of a teacher, for `ppo.train`: the student acts."""
    state: Tree | None = None

    def towards_teacher(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
        nonlocal state
        if state is None or plan.barrier_after(learner.iteration - 1):
            state = teacher.initial_state(rollout.num_envs).actor
        with torch.no_grad():
            # Pictures by their places in a gallery are for encoders that take them so.
            seen = rollout.sent.rows if teacher.takes_shown else rollout.rows.to(rollout.device)
            rows = seen._replace(obs=teacher.normalizer(seen.obs))
            steps = slice(0, rollout.num_steps)
            params, state = teacher.actor(slice_rows(rows, steps), state)
            if learner.agent.actor.masked:  # the teacher may know of no mask
                params = masked(params, rows.obs[ACTION_MASK][steps])
        rollout.relabel(teacher.policy.mode(params))
        replay(learner, rollout, rollout.starts[0], length)
        return update(learner, rollout, plan, length)

    return towards_teacher
