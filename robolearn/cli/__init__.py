"""The `robolearn` program: the only place where rooms are put together. See `robolearn.cli.registry` to add a command."""
