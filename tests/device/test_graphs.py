"""Acting by replays of a captured graph gives the bits of acting itself, on a simulated device."""

import pytest
import torch

import recollect
from recollect import cli, memory
from recollect.agent.graphs import GraphedStep
from recollect.agent.speed import faster, full_precision
from recollect.common import tree
from recollect.learn import ppo

from ..helpers import sampled
from . import fake
from .runs import CASES, die_after, run, weights_of
from .test_training import learner_on

D = fake.install()


def rollouts(name, graphs, **options):
    """All that two rollouts with an update between them compute, and the operations of acting."""
    envs, learner, plan, length, rollout, _ = learner_on("fake", name, **options)
    tensors, counts = [], []
    with faster(learner.agent, False, False, graphs):
        for _ in range(2):
            with fake.measured() as traffic:
                ppo.collect(envs, learner, rollout, plan, length)
            counts.append(traffic)
            ppo.value(learner, rollout, length)
            states = *rollout.starts, learner.state.actor
            tensors += [x.cpu() for x in (rollout.log_prob, rollout.action, *tree.leaves(states).values())]
            ppo.update(learner, rollout, plan, length)
            learner.update_statistics(rollout)
        tensors += [x.detach().cpu() for x in learner.optimizer.flats]
    assert "forward" not in vars(learner.agent.actor)
    return [x.clone() for x in tensors], counts[-1]


ACTORS = [*memory.available(), "shared, gpt2", "residual", "previous inputs", "no resets", "Pendulum"]


@pytest.mark.parametrize("name", sampled(ACTORS, "gru", "shared, gpt2", "Pendulum"))
def test_replays_give_the_bits_of_acting(name):
    options = {"ppo.num_steps": 8, "ppo.bptt": 4, "ppo.update_epochs": 1}
    (plain, before), (graphed, after) = (rollouts(name, flag, **options) for flag in (False, True))
    assert len(plain) == len(graphed)
    for x, y in zip(plain, graphed, strict=True):
        assert torch.equal(x, y)
    assert (after.up, after.down, after.waits) == (before.up, before.down, before.waits)
    # Few memories have so many states that their copies outnumber the operations of a step.
    assert after.operations < before.operations


def test_a_run_with_graphs_equals_one_without(tmp_path):
    case = CASES["validation"]
    plain, graphed = (run(tmp_path / str(flag), case, "fake", cuda_graphs=flag) for flag in (False, True))
    assert graphed.config.cuda_graphs
    for key, x in weights_of(plain).items():
        assert torch.equal(x, weights_of(graphed)[key]), key


def test_calls_with_gradients_or_several_steps_are_not_captured():
    _, learner, *_, rollout, _ = learner_on("fake", "gru")
    agent, state = learner.agent, learner.state.actor
    step = GraphedStep(agent.actor.forward)
    rows = rollout.send_row(0)
    params, _ = step(rows, state)
    assert params.requires_grad and not step._graphs
    with torch.no_grad():
        step(rollout.sent.rows, state)
        assert not step._graphs
        first, _ = step(rows, state)
        kept = first.cpu()
        # The memory of a graph is overwritten by each replay; what a caller holds is not.
        second, _ = step(rows.map(torch.ones_like), state)
    assert len(step._graphs) == 1
    assert torch.equal(first.cpu(), kept) and not torch.equal(second.cpu(), kept)


def test_a_graph_is_of_one_precision():
    """A validation with as many environments as training has inputs of the same shapes."""
    _, learner, *_, rollout, _ = learner_on("fake", "gru")
    agent, rows, state = learner.agent, rollout.send_row(0), learner.state.actor

    def step(rows, state):
        return rows.first * (2.0 if agent.actor.bf16 else 1.0), state

    rows = rows._replace(first=torch.ones_like(rows.first))
    agent.actor.forward = step
    with torch.no_grad(), faster(agent, True, False, graphs=True):
        rounded = agent.actor(rows, state)[0].cpu()
        with full_precision(agent):
            exact = agent.actor(rows, state)[0].cpu()
        again = agent.actor(rows, state)[0].cpu()
    assert (rounded == 2).all() and (exact == 1).all() and (again == 2).all()


def test_a_branch_that_waits_for_the_device_cannot_be_captured():
    _, learner, *_, rollout, _ = learner_on("fake", "gru")

    def step(rows, state):
        return (rows.prev_reward * 2 if rows.first.any() else rows.prev_reward), state

    with torch.no_grad(), pytest.raises(RuntimeError, match="while a graph is captured"):
        GraphedStep(step)(rollout.send_row(0), learner.state.actor)


@pytest.mark.parametrize(
    "command", ["train CartPole-v1", "bench CartPole-v1", "compare -e CartPole-v1 -m ppo"]
)
def test_graphs_without_cuda_are_refused_in_one_line(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main([*command.split(), "--cuda-graphs"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("recollect: cuda_graphs needs a CUDA device, and the networks are on cpu; ")
    assert error.count("\n") == 1 and "add --device cuda, or leave it out" in error


def test_a_run_with_graphs_resumes_on_the_cpu(tmp_path):
    trained = run(tmp_path, CASES["gru"], "fake", save_interval=1, cuda_graphs=True)
    resumed = recollect.resume(die_after(trained, 1), device="cpu", quiet=True)
    assert resumed.agent.device.type == "cpu" and resumed.summary["iteration"] == 2
