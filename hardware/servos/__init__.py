"""An arm of bus servos without a ROS driver: what is read from them and written to them, without ROS."""

from hardware.servos.driver import Reading, ServoBus, ServoDriver, ServosLost

__all__ = ["Reading", "ServoBus", "ServoDriver", "ServosLost"]
