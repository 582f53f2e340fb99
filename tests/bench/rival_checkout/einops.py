"""Nothing of einops: the tiny checkout only has to have it."""
