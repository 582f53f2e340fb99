"""The base class of the nodes of a station: the contract comes as a parameter, or from the program."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypedDict

import rclpy.node
from rclpy.context import Context

from hardware.node_parameters import NodeParameters
from hardware.ros2.runtime import Node, Value
from hardware.ros2.topics import NAMESPACE, namespace_of_nodes, namespace_of_station
from robolearn.core import BadInput
from robots.stations import Contract, load_contract


class StationOptions(TypedDict, total=False):
    """Settings of a program that makes a node: the station, the rclpy context, parameter values."""

    contract: Contract | None
    context: Context | None
    overrides: dict[str, Value] | None


class StationNode(Node):
    """A `Node` with the parameter `contract`.

    Args:
      name: node name.
      defaults: its parameters, see `Node`.
      contract: the station, in place of the parameter.
      context, overrides: see `Node`.
    """

    def __init__(
        self,
        name: str,
        defaults: NodeParameters,
        *,
        contract: Contract | None = None,
        context: Context | None = None,
        overrides: dict[str, Value] | None = None,
    ) -> None:
        with ExitStack() as until_made:
            if contract is not None:
                station = contract.namespace
            else:
                station = until_made.enter_context(_asked_for(name, {**vars(defaults), **(overrides or {})}, context))
            namespace = namespace_of_nodes(station)
            super().__init__(name, defaults, context=context, namespace=namespace, overrides=overrides)
        self._given = contract

    def station(self) -> Contract:
        """The contract. Raises `BadInput`: there is none of that name, it breaks the schema, or this node is in another
        namespace."""
        return self.placed(self._given or load_contract(self.value("contract"), self.station_namespace))

    @property
    def station_namespace(self) -> str:
        """Of the station, as far as the place of this node says it."""
        return namespace_of_station(self.get_namespace())

    def placed(self, contract: Contract) -> Contract:
        """`contract`, if this node is where its nodes are. Raises `BadInput`: it is elsewhere, where it is not
        received."""
        if contract.namespace != self.station_namespace:
            raise BadInput(
                f"namespace of node {self.get_name()}",
                got=self.get_namespace(),
                expected=f"{namespace_of_nodes(contract.namespace)}, as contract {contract.name} has it",
            )
        return contract


@contextmanager
def _asked_for(name: str, defaults: dict[str, Value], context: Context | None) -> Iterator[str]:
    """The namespace of the contract that the parameter `contract` of the node that is made inside names.

    The parameter is known once the node is there, and then the node cannot be moved any more: so one that does nothing
    is there before. It goes when the other has come: a process whose last node goes takes its DDS participant down,
    which then is made twice, and Fast DDS has crashed in that. A contract that cannot be read is refused later.
    """
    scout = rclpy.node.Node(
        name,
        namespace=NAMESPACE,
        context=context,
        start_parameter_services=False,
        enable_rosout=False,
        automatically_declare_parameters_from_overrides=True,
    )
    try:
        robot = scout.get_parameter("contract").value if scout.has_parameter("contract") else defaults["contract"]
        yield _namespace(str(robot))
    finally:
        scout.destroy_node()


def _namespace(robot: str) -> str:
    try:
        return load_contract(robot).namespace
    except BadInput:
        return ""
