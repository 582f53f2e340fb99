"""The embedded world: MuJoCo's batched engine behind `gymnasium.vector.VectorEnv`."""
