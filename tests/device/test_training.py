"""Training on a device other than the CPU: the numbers of the CPU, exact resume, and few copies and waits.

The device is simulated (fake.py). It shows what would fail on a GPU, not how fast or how exact one is.
"""

import math
from dataclasses import replace

import pytest
import torch
from benchmarks.equality_cases import CASES

import recollect
from recollect import memory
from recollect.common import tree
from recollect.common.distributed import Ranks
from recollect.common.errors import DisagreementError, DivergedError
from recollect.config.assembly import configure
from recollect.config.data import settings_in
from recollect.learn import ppo
from recollect.learn.algorithms import UPDATES
from recollect.learn.optim import MAX_SKIPPED, FlatAdam
from recollect.learn.rollout import Rollout
from recollect.learn.settings import PPOConfig
from recollect.run.build import build, build_learner

from ..helpers import sampled, small_memory
from . import fake
from .runs import (
    FUNCTIONS,
    KINDS,
    assert_equal_numbers,
    assert_resumes_equally,
    available,
    die_after,
    metrics_of,
    options_of,
    run,
    weights_of,
)

D = fake.install()
FIRST = "gru", "gpt2", "Pendulum"


@pytest.mark.parametrize("name", sampled(KINDS, *FIRST))
def test_every_kind_of_run_gives_the_numbers_of_the_cpu_and_resumes_to_the_bit(name, tmp_path):
    case = available(name)
    here = run(tmp_path / "cpu", case, "cpu")
    with fake.measured(rounding=1e-6, float64=False):
        there = run(tmp_path / "fake", case, "fake", save_interval=1)
        assert_equal_numbers(there, here, "fake")
        if case.env not in FUNCTIONS:  # `resume` finds environments by their ids
            assert_resumes_equally(there, 1)


@pytest.mark.thorough
def test_predictions_are_those_of_the_cpu_and_late_copies_change_nothing(tmp_path):
    predict = {"actor.predict": ("obs", "reward", "hidden"), "critic.predict": ("obs",), "env.mask": (1, 3)}
    options = predict | {"env.hidden": True, "kernels": "torch"}
    here = run(tmp_path / "cpu", CASES["gru"], "cpu", **options)
    with fake.measured(late=True):
        late = run(tmp_path / "late", CASES["gru"], "fake", **options)
    with fake.measured(rounding=1e-6, float64=False):
        there = run(tmp_path / "fake", CASES["gru"], "fake", save_interval=1, **options)
        for ours, theirs in zip(metrics_of(there), metrics_of(here), strict=True):
            for name in ("predict_obs", "predict_reward", "predict_hidden"):
                assert ours[name] == pytest.approx(theirs[name], rel=5e-3) and ours[name] > 0
        assert_resumes_equally(there, 1)
    prompt = weights_of(run(tmp_path / "prompt", CASES["gru"], "fake", **options))
    for key, x in weights_of(late).items():
        assert torch.equal(x, prompt[key]), key


def test_intrinsic_rewards_are_those_of_the_cpu_and_late_copies_change_nothing(tmp_path):
    options = {"ppo.rnd_coef": 0.5, "kernels": "torch"}
    here = run(tmp_path / "cpu", CASES["mlp"], "cpu", **options)
    with fake.measured(late=True):
        late = run(tmp_path / "late", CASES["mlp"], "fake", **options)
    with fake.measured(rounding=1e-6, float64=False):
        there = run(tmp_path / "fake", CASES["mlp"], "fake", save_interval=1, **options)
        for ours, theirs in zip(metrics_of(there), metrics_of(here), strict=True):
            assert ours["intrinsic_reward"] == pytest.approx(theirs["intrinsic_reward"], rel=5e-3)
        assert metrics_of(there)[-1]["intrinsic_reward"] > 0
        assert_resumes_equally(there, 1)
    prompt = weights_of(run(tmp_path / "prompt", CASES["mlp"], "fake", **options))
    for key, x in weights_of(late).items():
        assert torch.equal(x, prompt[key]), key


def test_past_selves_play_on_the_device_as_on_the_cpu_and_resume_to_the_bit(tmp_path):
    pytest.importorskip("pettingzoo")
    game = "pettingzoo:tests.envs.teams:Rounds"
    case, options = (
        replace(CASES["gru"], env=game),
        {"env.self_play": 1, "kernels": "torch", "ppo.num_steps": 8},
    )
    here = run(tmp_path / "cpu", case, "cpu", **options)
    with fake.measured(rounding=1e-6, float64=False):
        there = run(tmp_path / "fake", case, "fake", save_interval=1, **options)
        for ours, theirs in zip(metrics_of(there), metrics_of(here), strict=True):
            assert ours["policy_loss"] == pytest.approx(theirs["policy_loss"], rel=5e-3, abs=5e-4)
        before = weights_of(there)
        resumed = recollect.resume(die_after(there, 1), env=game, quiet=True)
    assert all(torch.equal(x, before[key]) for key, x in weights_of(resumed).items())


@pytest.mark.parametrize("kind", sampled(["hl-gauss", "popart"], "popart"))
def test_value_heads_are_those_of_the_cpu_and_resume_to_the_bit(kind, tmp_path):
    options = {"critic.value": kind, "env.reward_scale": 100.0, "env.normalize_reward": False}
    here = run(tmp_path / "cpu", CASES["gru"], "cpu", kernels="torch", **options)
    with fake.measured(rounding=1e-6, float64=False):
        there = run(tmp_path / "fake", CASES["gru"], "fake", save_interval=1, **options)
        for ours, theirs in zip(metrics_of(there), metrics_of(here), strict=True):
            assert ours["value_loss"] == pytest.approx(theirs["value_loss"], rel=5e-3)
        assert_resumes_equally(there, 1)


def test_ranks_send_tensors_of_the_cpu(tmp_path, monkeypatch):
    """Pickled, a tensor of a GPU would arrive on a GPU that may belong to another rank."""
    sent = []
    monkeypatch.setattr(Ranks, "gather", lambda ranks, x: sent.append(x) or [x])
    run(tmp_path, CASES["gru"], "fake", save_interval=1)
    tensors = [x for block, _ in sent for x in block.values()]
    assert tensors and all(x.is_cpu for x in tensors)


def test_a_run_with_barriers_resumes_to_the_bit(tmp_path):
    assert_resumes_equally(run(tmp_path, CASES["LunarLander"], "fake", rollouts=4), 2)


EXACT = ["gru", "lstm", "gpt2, dropout", "shared, gpt2", "trxl", "chunks, refresh", "validation", "target_kl"]


@pytest.mark.parametrize("name", sampled(EXACT, "chunks, refresh"))
def test_copies_that_arrive_late_change_nothing(name, tmp_path):
    with fake.measured(late=True):
        late = run(tmp_path / "late", CASES[name], "fake")
    prompt = run(tmp_path / "prompt", CASES[name], "fake")
    for key, x in weights_of(prompt).items():
        assert torch.equal(x, weights_of(late)[key]), key


def test_a_run_moves_to_another_device_and_says_that_bits_may_differ(tmp_path, capsys):
    trained = run(tmp_path, CASES["lstm"], "cpu", rollouts=2, save_interval=1)
    resumed = recollect.resume(die_after(trained, 1), device="fake")
    assert (
        "device: cpu before, fake now; results are equal up to rounding, and no longer to the bit"
        in capsys.readouterr().out
    )
    assert resumed.agent.device.type == "fake" and resumed.config.device == "cpu"
    loaded = recollect.load(trained.folder)
    assert loaded.agent.device.type == "cpu"
    moved = recollect.load(trained.folder, device="fake")
    assert loaded.evaluate(3).returns == moved.evaluate(3).returns
    assert loaded.evaluate(3, deterministic=False).returns == moved.evaluate(3, deterministic=False).returns


# Copies and waits -----------------------------------------------------------------------------


def learner_on(device, name="lstm", **options):
    """The parts of training, to be called one by one."""
    case = CASES[name]
    fields = {**options_of(case), "device": device, "env.id": case.env, "model": case.model, **options}
    envs, agent, config = build(configure(settings_in(fields, "test")), FUNCTIONS.get(case.env))
    learner, plan = build_learner(config, envs, agent), config.plan
    length = plan.ppo.chunk_length(any(agent.initial_state(1)))
    return envs, learner, plan, length, Rollout(agent, learner.row, plan.ppo.num_steps), config


RECURRENT = ["gru", "lstm", "mingru", "gpt2", "trxl", "stack", "residual", "previous inputs"]


SHOWN = [*RECURRENT, "MiniGrid, pictures", "a function, Dict"]


@pytest.mark.parametrize("name", sampled(SHOWN, "gru", "gpt2", "residual", "a function, Dict"))
def test_a_step_of_the_environment_is_one_copy_up_and_one_down(name):
    available(name)
    traffic = {}
    for steps in (8, 16):
        envs, learner, plan, length, rollout, _ = learner_on("fake", name, **{"ppo.num_steps": steps})
        ppo.collect(envs, learner, rollout, plan, length)
        ppo.value(learner, rollout, length)
        learner.update_statistics(rollout)
        with fake.measured() as counted:
            ppo.collect(envs, learner, rollout, plan, length)
            ppo.value(learner, rollout, length)
        traffic[steps] = counted
    few, many = traffic[8], traffic[16]
    assert many.up - few.up == many.down - few.down == many.waits - few.waits == 8
    assert few.up - 8 <= 8 and few.down - 8 <= 2 and few.waits - 8 <= 3


UPDATED = [*RECURRENT, "shared, gpt2", "a2c, gru", "reinforce, lstm"]


@pytest.mark.parametrize("name", sampled(UPDATED, "shared, gpt2"))
def test_waits_of_an_update_do_not_grow_with_its_minibatches(name):
    waits = {}
    for epochs, minibatches in ((1, 2), (2, 4)):
        options = {"ppo.update_epochs": epochs, "ppo.num_minibatches": minibatches, "ppo.num_steps": 8}
        envs, learner, plan, length, rollout, config = learner_on("fake", name, **options)
        for _ in range(2):
            ppo.collect(envs, learner, rollout, plan, length)
            ppo.value(learner, rollout, length)
            with fake.measured() as counted:
                UPDATES[config.algorithm](learner, rollout, plan, length)
            learner.update_statistics(rollout)
        waits[epochs] = counted.waits
    assert waits[1] == waits[2] <= 6


def test_a_bound_on_the_kl_waits_once_per_epoch():
    waits = []
    for epochs in (1, 3):
        options = {"ppo.update_epochs": epochs, "ppo.target_kl": 1e9, "ppo.num_steps": 8}
        envs, learner, plan, length, rollout, _ = learner_on("fake", "gru", **options)
        ppo.collect(envs, learner, rollout, plan, length)
        ppo.value(learner, rollout, length)
        with fake.measured() as counted:
            ppo.update(learner, rollout, plan, length)
        waits.append(counted.waits)
    assert waits[1] - waits[0] == 2


# Parts ----------------------------------------------------------------------------------------


@torch.no_grad()
def steps_of(net, x, state, first):
    """Outputs of calls of 1 and of 2 steps, as in acting, and the last state; arguments stay as they are."""
    given = tree.map_leaves(torch.clone, state)
    outputs, carried = [], state
    for t, steps in [(0, 1), (1, 2), *((t, 1) for t in range(3, len(x)))]:
        y, carried = net(x[t : t + steps], carried, first[t : t + steps])
        outputs.append(y)
    unchanged = zip(tree.leaves(given).values(), tree.leaves(state).values(), strict=True)
    assert all(torch.equal(one, other) for one, other in unchanged)
    new, _ = net(x[:1], net.initial_state(x.shape[1]), torch.ones_like(first[:1]))
    return [*outputs, new, *tree.leaves(carried).values()]


@pytest.mark.parametrize("name", memory.available())
def test_memories_give_the_outputs_and_gradients_of_the_cpu(name):
    """So they keep the contract that test_memory_contract.py checks on the CPU."""
    torch.manual_seed(0)
    ours = small_memory(name).build(5).double().eval()
    for p in ours.parameters():
        p.data.add_(0.05 * torch.randn_like(p))  # weights that start at zero would hide mistakes
    x, first = torch.randn(9, 3, 5, dtype=torch.float64), torch.rand(9, 3) < 0.3
    state = ours(torch.randn(40, 3, 5, dtype=torch.float64), ours.initial_state(3), torch.zeros(40, 3) > 0)[1]
    state = tree.map_leaves(lambda leaf: leaf.detach(), state)
    results = []
    for device in ("cpu", "fake"):
        net = small_memory(name).build(5).double().eval()
        net.load_state_dict(ours.state_dict())
        net.to(device)
        there = tree.map_leaves(lambda leaf, to=device: leaf.to(to), state)
        inputs = x.clone().to(device).requires_grad_()
        y, after = net(inputs, there, first.to(device))
        acted = steps_of(net, x.to(device), there, first.to(device))
        (y.square().sum() + sum(leaf.double().sum() for leaf in tree.leaves(after).values())).backward()
        assert all(leaf.device.type == device for leaf in tree.leaves(net.initial_state(2)).values())
        gradients = [p.grad for p in net.parameters() if p.grad is not None]
        tensors = [y, *acted, *tree.leaves(after).values(), inputs.grad, *gradients]
        results.append([tensor.detach().cpu() for tensor in tensors])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_bad_gradients_are_skipped_and_counted_without_waiting():
    nets = [torch.nn.Linear(3, 2).to(D) for _ in range(2)]
    flat = FlatAdam(nets, PPOConfig(max_grad_norm=0.5))

    def step(value):
        flat.zero_grad()
        nets[1].weight.grad[0, 0] = value
        flat.step((1e-2, 1e-2))

    with fake.measured() as traffic:
        for value in (1.0, math.nan, 1.0, math.inf, math.nan):
            before = [p.detach().clone() for net in nets for p in net.parameters()]
            step(value)
    assert traffic.waits == 0
    assert all(
        torch.equal(p, q) for p, q in zip(before, [p for n in nets for p in n.parameters()], strict=True)
    )
    assert flat.count_skips() == 3 and flat.skipped_in_a_row == 2
    for _ in range(MAX_SKIPPED - 2):
        step(math.nan)
    step(1.0)  # ten in a row have been by now
    with pytest.raises(DivergedError, match="10 consecutive"):
        flat.count_skips()


def test_processes_compare_weights_that_are_on_a_device(monkeypatch):
    ranks = Ranks(0, 2, 2)
    monkeypatch.setattr(ranks, "all_gather", lambda x: torch.stack([x, x]))
    ranks.check_equal([torch.ones(3).to(D)])
    monkeypatch.setattr(ranks, "all_gather", lambda x: torch.stack([x, x + 1]))
    with pytest.raises(DisagreementError):
        ranks.check_equal([torch.ones(3).to(D)])


def test_clipping_is_that_of_the_cpu():
    torch.manual_seed(0)
    gradients = [torch.randn(2, 3) * scale for scale in (0.01, 1.0, 30.0)]
    flats = []
    for device in ("cpu", "fake"):
        net = torch.nn.Linear(3, 2, bias=False)
        net.weight.data.fill_(0.5)
        flat = FlatAdam([net.to(device)], PPOConfig(max_grad_norm=0.5))
        for gradient in gradients:
            flat.zero_grad()
            net.weight.grad.copy_(gradient)
            flat.step((1e-2,))
        flats.append(flat.flats[0].detach().cpu())
    torch.testing.assert_close(*flats)
