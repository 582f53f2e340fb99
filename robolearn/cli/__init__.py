"""The `robolearn` program, the only place where rooms are put together. `registry` says how to add a command."""
