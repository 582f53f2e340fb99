"""The part of a rival's run that lives in its own interpreter: with nothing of robolearn, and as old as Python 3.8."""
