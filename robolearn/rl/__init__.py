"""Online RL of trained policies: likelihoods (`actors`), algorithms, advantages, losses, the buffer and the runner."""
