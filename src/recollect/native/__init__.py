"""Native kernels: the loss of PPO and its gradients in C, for agents of the usual layers on a CPU."""
