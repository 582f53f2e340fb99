"""Online RL of trained policies: the flow's likelihood, advantages, PPO, noise, the ReinFlow trainer."""
