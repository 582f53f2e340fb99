"""Interfaces that do not fit, and what is said then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from robolearn.core import ArraySpec, BadInput, Interface, check_compatible

WORLD = Interface({"proprio": ArraySpec((2,))}, ArraySpec((2,)), 20.0, "panda", "tcp_delta")


def test_actions_of_which_nothing_is_said_are_refused_with_what_mends_it() -> None:
    mends = r"got tcp_delta, expected native\. `robolearn dataset import --action-kind` writes a set that says"
    with pytest.raises(BadInput, match=mends):
        check_compatible(replace(WORLD, action_kind="native"), WORLD, what="policy")
    with pytest.raises(BadInput, match=r"got tcp_delta, expected joint_position$"):
        check_compatible(replace(WORLD, action_kind="joint_position"), WORLD, what="policy")


def test_a_control_rate_is_one_text_whatever_kind_of_number_it_is() -> None:
    assert str(replace(WORLD, control_hz=20).to_json()) == str(WORLD.to_json())
