"""Networks, losses, samplers and checkpoints: normalised tensors in and out.

Knows nothing of worlds or training loops.
"""
