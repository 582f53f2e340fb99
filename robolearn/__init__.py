"""robolearn: from demonstrations to a robot policy that RL has made reliable."""

__version__ = "0.1.0"
