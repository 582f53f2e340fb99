"""Policies on disk, and what computes one that was loaded: checkpoints, ONNX files, LeRobot's folders, backends."""
