"""The base class of the nodes of a station: the contract comes as a parameter, or from the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from rclpy.context import Context

from hardware.ros2.runtime import Node, Value
from robots.stations import Contract, load_contract


class StationOptions(TypedDict, total=False):
    """What a program that makes a node may set: the station, the rclpy context, parameter values."""

    contract: Contract | None
    context: Context | None
    overrides: dict[str, Value] | None


class StationNode(Node):
    """A `Node` with the parameter `contract`.

    Args:
      name: node name.
      defaults: its other parameters, see `Node`.
      contract: the station, in place of the parameter.
      context, overrides: see `Node`.
    """

    def __init__(
        self,
        name: str,
        defaults: Mapping[str, Value],
        *,
        contract: Contract | None = None,
        context: Context | None = None,
        overrides: dict[str, Value] | None = None,
    ) -> None:
        super().__init__(name, {"contract": "sim", **defaults}, context=context, overrides=overrides)
        self._given = contract

    def station(self) -> Contract:
        """The contract.

        Raises:
          BadInput: there is none of that name, or it breaks the schema.
        """
        return self._given or load_contract(self.value("contract"))
