"""Networks, losses, samplers and checkpoints: normalised tensors in and out.

Depends on no world and no training loop.
"""
