"""The human in the loop: actors that play, a learner, and what joins them. See README.md."""
