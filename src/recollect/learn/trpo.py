"""Trust region policy optimisation (Schulman et al., 2015): the best step near the old policy.

    maximise    mean of ratio A                  ratio = pi(a) / pi_old(a)
    such that   mean of KL(pi_old, pi) <= d      d is ppo.target_kl, by default 0.01

The step direction is F^-1 g: g is the gradient of the surrogate objective, F the Hessian of the KL.
Conjugate gradients solve for it with products F v only. F = J' H J, where J is the Jacobian of the policy
parameters by the weights and H the Hessian of the KL by the policy parameters. J v is the difference of
two forward passes and J' u is one backward pass, so no memory needs a second derivative. The step is then
halved until objective and bound hold. The critic is trained by Adam, as in PPO, from its own loss alone. The
options of PPO for the actor (clip, ent_coef) have no effect here, nor has vf_coef; learning_rate and
lr_decay are those of the critic.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from .chunks import Batch
from .learner import Learner
from .maths import Losses, mean
from .minibatches import Minibatches
from .ppo import estimates
from .rollout import Rollout
from .settings import Coefficients, Plan

TARGET_KL = 0.01
CONJUGATE_STEPS = 10
DAMPING = 0.1  # added to the diagonal of F, which is estimated from a sample
HALVINGS = 10
PERTURBATION = 1e-2  # norm of the change of weights by which J v is measured


def update(learner: Learner, rollout: Rollout, plan: Plan, length: int) -> dict[str, float]:
    """One step of the actor within the trust region, and epochs of gradient steps of the critic."""
    cfg, targets = plan.ppo, estimates(learner, rollout, plan.ppo)
    # The minibatches are those of the critic, and target_kl bounds the one step of the actor.
    draw = cfg.draw._replace(normalize=cfg.normalize_whole, target_kl=None)
    minibatches = Minibatches(learner, rollout, plan, length, draw, targets)
    actor = Actor(learner, minibatches.batch)
    minibatches.compare(actor.ratio(), actor.values(), minibatches.batch)
    # Whatever the learning rate is: it is that of the critic, and it may be annealed to 0.
    if plan.trains_actor(learner.iteration):
        loss, kl = actor.step(TARGET_KL if cfg.target_kl is None else cfg.target_kl)
        minibatches.stale = True  # the actor has moved before the first epoch
    else:
        loss, kl = -actor.objective(actor.before), torch.zeros_like(actor.entropy)
    _, rate = learner.coefficients(plan).rates
    history = [fit(learner, batch, rate, cfg.clip_value) for epoch in minibatches for batch in epoch]
    losses = Losses(loss, torch.stack(history).mean(), actor.entropy, kl, torch.zeros_like(kl))
    still = Coefficients(clip=0.0, entropy=0.0, rates=(0.0, rate))
    return minibatches.errors | learner.update_metrics(losses, minibatches.explained_variance, still)


def fit(learner: Learner, batch: Batch, rate: float, clip_value: float | None) -> Tensor:
    """One gradient step of the critic; its loss."""
    # A critic that is not shared takes no features of the actor.
    critic, _ = learner.agent.critic.values(batch.rows, batch.state, torch.empty(0))
    loss = mean(batch.weight, critic.loss(batch.value, batch.target, clip_value))
    learner.optimizer.zero_grad()
    loss.backward()
    # Rate 0 for the actor: with weight decay, Adam moves it even where its gradient is 0.
    learner.optimizer.step((0.0, rate))
    return loss.detach()


class Actor:
    """The actor at its weights before the step, on one batch."""

    def __init__(self, learner: Learner, batch: Batch) -> None:
        self.agent, self.batch = learner.agent, batch
        self.policy, self.weight = learner.agent.policy, batch.weight
        self.weights = [p for p in self.agent.actor.parameters() if p.requires_grad]
        # The same weights as one vector: writing to it moves the network.
        self.flat = learner.optimizer.flats[0]
        self.old = self.flat.clone()
        # The graph of this pass serves every product J' u, so weights must be the old ones then.
        self.params = self._forward()
        self.before = self.params.detach()
        log_prob, entropy = self.policy.evaluate(self.before, batch.action)
        self.acted, self.entropy = log_prob, mean(self.weight, entropy)

    def step(self, bound: float) -> tuple[Tensor, Tensor]:
        """Move to the best weights within the bound; the loss before the step, and the KL of the step."""
        start = self.objective(self.params)
        # Without a gradient the direction is 0; the clamp then makes the step 0 rather than NaN.
        direction = conjugate_gradient(self.curvature, self.gradient(start))
        curve = (direction @ self.curvature(direction)).clamp(min=1e-12)
        longest = (2 * bound / curve).sqrt() * direction
        with torch.no_grad():
            for halvings in range(HALVINGS):
                self.flat.copy_(self.old + 0.5**halvings * longest)
                now = self._forward()
                kl = mean(self.weight, self.policy.kl(self.before, now))
                # NaN fulfils neither condition, so a step that is not finite is halved.
                if kl <= bound and self.objective(now) > start:
                    return -start.detach(), kl
            self.flat.copy_(self.old)
        return -start.detach(), torch.zeros_like(start)

    def objective(self, params: Tensor) -> Tensor:
        """The surrogate objective: the mean of ratio A for policy parameters (L, C, P)."""
        log_prob = self.policy.evaluate(params, self.batch.action)[0]
        ratio = (log_prob - self.acted).masked_fill(~self.batch.valid, 0.0).exp()
        return mean(self.weight, ratio * self.batch.advantage)

    def gradient(self, x: Tensor) -> Tensor:
        """The gradient of a scalar by all weights, as one vector."""
        parts = torch.autograd.grad(x, self.weights, retain_graph=True, materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def curvature(self, v: Tensor) -> Tensor:
        """(F + damping) v."""
        params = self.before.clone().requires_grad_()
        kl = mean(self.weight, self.policy.kl(self.before, params))
        (slope,) = torch.autograd.grad(kl, params, create_graph=True)
        (curve,) = torch.autograd.grad((slope * self._jacobian_product(v)).sum(), params)
        return self.gradient((self.params * curve).sum()) + DAMPING * v

    def ratio(self) -> Tensor:
        """New to old probabilities (L, C) before the step; 1 where acting and learning agree."""
        return (self.acted - self.batch.log_prob).masked_fill(~self.batch.valid, 0.0).exp()

    @torch.no_grad()
    def values(self) -> Tensor:
        """V (L, C), without gradient."""
        return self.agent.value(self.batch.rows, self.batch.state)[0]

    def _forward(self) -> Tensor:
        return self.agent.actor(self.batch.rows, self.batch.state.actor)[0]

    @torch.no_grad()
    def _jacobian_product(self, v: Tensor) -> Tensor:
        """J v: the change of the policy parameters (L, C, P) as the weights move along v."""
        size = v.norm().clamp(min=1e-12)
        ends = []
        # A central difference: the error is of second order in the perturbation.
        for sign in (1, -1):
            self.flat.copy_(self.old + sign * PERTURBATION / size * v)
            ends.append(self._forward())
        # Copied, not moved back by subtraction: a backward pass through self.params follows, and it needs
        # every bit.
        self.flat.copy_(self.old)
        return (ends[0] - ends[1]) * (size / (2 * PERTURBATION))


def conjugate_gradient(product: Callable[[Tensor], Tensor], b: Tensor) -> Tensor:
    """Solve A x = b by products A v with a positive definite A."""
    x, rest = torch.zeros_like(b), b.clone()
    direction, error = b.clone(), b @ b
    for _ in range(CONJUGATE_STEPS):
        # If b is 0, the first condition is 0 < 0, and without the second one 0 / 0 follows.
        if error < 1e-10 * (b @ b) or error == 0:
            break
        image = product(direction)
        share = error / (direction @ image)
        x, rest = x + share * direction, rest - share * image
        error, before = rest @ rest, error
        direction = rest + (error / before) * direction
    return x
