"""Auxiliary losses: what prediction heads (agent/predictors.py) learn beside the policy and the values.

    obs     the observation of row t+1 as networks get it, from features and action of step t
    reward  the scaled reward of step t, from the same
    hidden  the hidden variables of step t, from its features

A number has a squared error, a category the cross-entropy; a loss is the mean over all of a head. It counts
where the loss of the policy counts, so never on tail rows, and nothing is predicted across the end of an
episode: the row after its last step is its final observation. Where a failure or a barrier truncated it,
there may be none, and that step does not count for obs and reward.

Shapes.  T steps, N environments, L steps a chunk, B chunks.
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from ..agent.predictors import REWARD, Predictor, Predictors
from ..common.devices import send
from ..envs.spaces import HIDDEN, Leaf
from .chunks import Batch
from .learner import Learner
from .maths import mean
from .rollout import Rollout, slice_rows

ACTION, FOLLOWED = "action", "followed"  # beside the leaves: of step t, and whether row t+1 follows from it
METRIC = "predict_"  # prefix of the metrics


def targets(learner: Learner, rollout: Rollout) -> dict[str, Tensor]:
    """What the heads of an agent get and predict at each step (T, N, ...); empty without heads."""
    agent, steps = learner.agent, rollout.num_steps
    heads = [*agent.actor.predictors.heads.values(), *agent.critic.predictors.heads.values()]
    if not heads:
        return {}
    rows, valid = rollout.normalized(agent), rollout.valid[:steps]
    present, ahead = (slice_rows(rows, slice(t, t + steps)) for t in (0, 1))
    # The reward of a tail row is of no action; NaN would pass a weight of 0.
    reward = learner.rewards.scaled(rollout.reward).masked_fill(~valid, 0.0)
    known = {**ahead.obs, REWARD: send(reward, rollout.device)}
    if HIDDEN in present.obs:
        known[HIDDEN] = present.obs[HIDDEN]
    chosen = {name: known[name] for head in heads for name in head.leaves}
    # The action of step t is the previous action of row t+1: as the environment takes it, and one-hot.
    chosen[ACTION] = agent.actor.inputs.action(ahead)
    chosen[FOLLOWED] = send(valid & ~rollout.cut_short, rollout.device)
    return chosen


def losses(heads: Iterable[tuple[Predictors, Tensor]], batch: Batch) -> dict[str, Tensor]:
    """The loss of each prediction by its metric, summed over the branches that make it.

    heads  of each branch, with its features (L, B, F)
    """
    terms: dict[str, Tensor] = {}
    for predictors, features in heads:
        for name, head in predictors.heads.items():
            weight = batch.weight * batch.targets[FOLLOWED] if head.is_next else batch.weight
            loss = mean(weight, error(head, features, batch.targets))
            key = METRIC + name
            terms[key] = terms[key] + loss if key in terms else loss
    return terms


def error(head: Predictor, features: Tensor, targets: Mapping[str, Tensor]) -> Tensor:
    """The mean error (L, B) over the numbers and categories of all leaves of a head."""
    predicted = head(features, targets[ACTION])
    parts = [_errors(leaf, predicted[name], targets[name]) for name, leaf in head.leaves.items()]
    return torch.cat(parts, -1).mean(-1)


def _errors(leaf: Leaf, predicted: Tensor, target: Tensor) -> Tensor:
    """(L, B, width) and the leaf (L, B, ...) -> the error of each number or category (L, B, K)."""
    if leaf.kind != "discrete":
        return (predicted - target.reshape(predicted.shape)).square()
    log_probs = [logits.log_softmax(-1) for logits in predicted.split(leaf.sizes, -1)]
    chosen = target.reshape(*target.shape[:2], -1, 1).long().unbind(2)
    return -torch.cat([x.gather(-1, index) for x, index in zip(log_probs, chosen, strict=True)], -1)
