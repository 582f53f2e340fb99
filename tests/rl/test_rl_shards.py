"""Shares of a batch give the gradient of the whole batch, always the same bits, and nothing of a share is lost."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor, nn

from robolearn.rl.policy_step import Means, Shards

COUNTS = (1, 2, 3)


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 1)).double()


def batch(size: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(size)
    return (torch.randn(size, n, generator=generator, dtype=torch.float64) for n in (5, 1))  # type: ignore[return-value]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("size", [1, 2, 7, 12])
def test_the_gradient_is_that_of_the_whole_batch(net: nn.Sequential, count: int, size: int) -> None:
    x, y = batch(size)
    whole = (net(x) - y).square().mean()
    wanted = torch.autograd.grad(whole, list(net.parameters()))

    def loss(part: slice) -> tuple[Tensor, Means]:
        error = (net(x[part]) - y[part]).square().mean()
        return error, {"error": error.detach(), "x": x[part].mean()}

    means = Shards(count).backward(loss, size, list(net.parameters()))
    for parameter, gradient in zip(net.parameters(), wanted, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, gradient)
    assert means["error"].item() == pytest.approx(whole.item())
    assert means["x"].item() == pytest.approx(x.mean().item())


def test_the_same_bits_every_time() -> None:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 128), nn.SiLU(), nn.Linear(128, 8))
    x = torch.randn(333, 64)

    def gradient() -> list[Tensor]:
        Shards(2).backward(lambda part: (net(x[part]).square().mean(), {}), len(x), list(net.parameters()))
        return [p.grad.clone() for p in net.parameters() if p.grad is not None]

    first = gradient()
    assert len(first) == 4
    for _ in range(20):
        assert all(torch.equal(a, b) for a, b in zip(first, gradient(), strict=True))


@pytest.mark.parametrize("count", COUNTS)
def test_a_parameter_that_takes_no_part_has_no_gradient(net: nn.Sequential, count: int) -> None:
    idle = nn.Parameter(torch.ones(3))
    idle.grad = torch.ones(3)
    x, _ = batch(6)
    Shards(count).backward(lambda part: (net(x[part]).mean(), {}), 6, [*net.parameters(), idle])
    assert idle.grad is None


@pytest.mark.parametrize("count", COUNTS)
def test_rows_stand_in_order_and_have_no_gradient(net: nn.Sequential, count: int) -> None:
    x, _ = batch(7)
    rows = Shards(count).rows(lambda part: net(x[part]), 7)
    torch.testing.assert_close(rows, net(x))
    assert not rows.requires_grad


def test_shares_are_side_by_side_and_each_has_one_thread_of_torch() -> None:
    meeting = threading.Barrier(3)  # it breaks unless all three are there at once

    def share(part: slice) -> tuple[int, int]:
        meeting.wait(timeout=30)
        return part.start, torch.get_num_threads() if part.start else 1

    before = torch.get_num_threads()
    assert Shards(3).each(share, 9) == [(3, (0, 1)), (3, (3, 1)), (3, (6, 1))]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("bad", [0, 1])
def test_an_error_in_a_share_is_the_caller_s(bad: int) -> None:
    def share(part: slice) -> None:
        if part.start == 2 * bad:
            raise FloatingPointError(f"share {bad}")

    shards = Shards(2)
    with pytest.raises(FloatingPointError, match=f"share {bad}"):
        shards.each(share, 4)
    assert [rows for rows, _ in shards.each(lambda part: None, 4)] == [2, 2]
