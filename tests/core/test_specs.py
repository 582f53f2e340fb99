"""Interfaces that do not fit, and what is said then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from robolearn.core import ArraySpec, BadInput, Interface, check_compatible

WORLD = Interface({"proprio": ArraySpec((2,))}, ArraySpec((2,)), 20.0, "panda", "tcp_delta")


def test_actions_of_which_nothing_is_said_are_refused_with_what_mends_it() -> None:
    mends = r"actions of kind native, this has tcp_delta\. `robolearn dataset import` writes a set that says"
    with pytest.raises(BadInput, match=mends):
        check_compatible(replace(WORLD, action_kind="native"), WORLD, what="policy")
    with pytest.raises(BadInput, match=r"actions of kind joint_position, this has tcp_delta$"):
        check_compatible(replace(WORLD, action_kind="joint_position"), WORLD, what="policy")


def test_a_control_rate_is_one_text_whatever_kind_of_number_it_is() -> None:
    assert str(replace(WORLD, control_hz=20).to_json()) == str(WORLD.to_json())


SIGHTED = Interface(
    {
        "proprio": ArraySpec((2,)),
        "objects": ArraySpec((3,)),
        "weight": ArraySpec((1,), privileged=True),
        "images.front": ArraySpec((4, 4, 3), "uint8"),
        "images.wrist": ArraySpec((4, 4, 3), "uint8"),
    },
    ArraySpec((2,)),
    20.0,
)


def test_beside_pictures_nothing_privileged_is_seen_unless_it_is_asked_for() -> None:
    assert SIGHTED.privileged == ("objects", "weight")
    assert list(SIGHTED.seeing((), what="set").observation) == ["proprio", "images.front", "images.wrist"]
    blind = replace(SIGHTED, observation={k: v for k, v in SIGHTED.observation.items() if not k.startswith("images")})
    assert list(blind.seeing((), what="set").observation) == ["proprio", "objects", "weight"]
    assert list(SIGHTED.seeing(("images.wrist", "objects"), what="set").observation) == ["objects", "images.wrist"]
    assert list(SIGHTED.seeing(("images", "proprio"), what="set").observation) == [
        "proprio", "images.front", "images.wrist"
    ]  # fmt: skip
    with pytest.raises(BadInput, match=r"observation of set: got no 'images.frnt'.*did you mean images.front"):
        SIGHTED.seeing(("images.frnt",), what="set")
    with pytest.raises(BadInput, match=r"observation of set: got no 'images'.*available: proprio, objects, weight"):
        blind.seeing(("images",), what="set")


def test_what_is_privileged_is_written_down_and_read_back() -> None:
    written = SIGHTED.to_json()
    assert [key for key, spec in written["observation"].items() if spec.get("privileged")] == ["objects", "weight"]
    assert Interface.from_json(written).privileged == ("objects", "weight")
    del written["observation"]["objects"]["privileged"]  # a set or policy from before the mark
    assert Interface.from_json(written).privileged == ("objects", "weight")
    written["observation"]["proprio"]["privileged"] = "yes"
    with pytest.raises(BadInput, match="privileged: got yes, expected true or false"):
        Interface.from_json(written)


def test_the_same_components_in_another_order_are_refused() -> None:
    named = replace(WORLD, action=ArraySpec((2,), names=("elbow.pos", "gripper.pos")))
    turned = replace(WORLD, action=ArraySpec((2,), names=("gripper.pos", "elbow.pos")))
    with pytest.raises(BadInput, match=r"order of the action's components: got gripper\.pos, elbow\.pos, expected elb"):
        check_compatible(named, turned, what="set")
    for other in (WORLD, named, replace(WORLD, action=ArraySpec((2,), names=("a", "b")))):
        check_compatible(named, other, what="set")
