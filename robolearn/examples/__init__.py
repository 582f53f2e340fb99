"""Examples to run, ``python -m robolearn.examples.<name>``, or to copy; the README beside this file shows each."""
