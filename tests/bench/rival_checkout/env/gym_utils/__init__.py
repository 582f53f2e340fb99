def make_async(*args: object, **options: object) -> None:
    raise ModuleNotFoundError("No module named 'd4rl'")
