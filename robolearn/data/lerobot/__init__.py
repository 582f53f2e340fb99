"""The format on disk, LeRobotDataset v3.0: where files lie, which tables and statistics they hold."""
