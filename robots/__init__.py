"""Facts of an embodiment: model, limits, home pose, kinematics. Knows nothing of simulators, drivers or learning."""
