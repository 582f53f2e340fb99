"""From action chunks to set-points as time goes on; without ROS, on an injected clock."""
