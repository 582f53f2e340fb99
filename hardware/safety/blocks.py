"""Arrays that a compiled function takes as two: what it costs to call one goes by how many arrays it is given.

An `ArrayBlock` has its arrays of floats one after the other in one array, and those of whole numbers in another one, in
front of which stand where each begins, and its shape. `floats_1` to `floats_3`, `whole_1` and `whole_2` find the k-th.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.safety.checks import Array
from robots.compiled import compiled

_HEAD = 4  # numbers that say where an array begins, and its shape of up to three


class ArrayBlock:
    """Copies of `arrays` of floats or whole numbers, with up to three axes.

    Attributes:
      arrays: the copies, in the same order; they share the memory of the block.
      floats, whole: what a compiled function takes.
    """

    def __init__(self, *arrays: NDArray[Any]) -> None:
        head = np.zeros((len(arrays), _HEAD), np.int64)
        ends = {"f": 0, "i": head.size}
        for row, array in zip(head, arrays, strict=True):
            row[0], row[1 : 1 + array.ndim] = ends[array.dtype.kind], array.shape
            ends[array.dtype.kind] += array.size
        self.floats: Array = np.zeros(ends["f"])
        self.whole: NDArray[np.int64] = np.zeros(ends["i"], np.int64)
        self.whole[: head.size] = head.ravel()
        self.arrays: list[NDArray[Any]] = []
        for start, array in zip(head[:, 0].tolist(), arrays, strict=True):
            memory = self.floats if array.dtype.kind == "f" else self.whole
            self.arrays.append(memory[start : start + array.size].reshape(array.shape))
            self.arrays[-1][...] = array


@compiled()
def floats_1(floats, whole, k):
    start = whole[_HEAD * k]
    return floats[start : start + whole[_HEAD * k + 1]]


@compiled()
def floats_2(floats, whole, k):
    start, m, n = whole[_HEAD * k], whole[_HEAD * k + 1], whole[_HEAD * k + 2]
    return floats[start : start + m * n].reshape(m, n)


@compiled()
def floats_3(floats, whole, k):
    start, m, n, p = whole[_HEAD * k], whole[_HEAD * k + 1], whole[_HEAD * k + 2], whole[_HEAD * k + 3]
    return floats[start : start + m * n * p].reshape(m, n, p)


@compiled()
def whole_1(whole, k):
    return floats_1(whole, whole, k)


@compiled()
def whole_2(whole, k):
    return floats_2(whole, whole, k)
