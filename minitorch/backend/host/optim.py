"""Optimizer steps, in one pass over memory for each parameter: launchers.

With this file a backend of the host takes a step of SGD or of Adam and AdamW, in place.
`factors` is an array of the parameters' type (`minitorch/step_factors.py` names them;
for `adam` there is a ninth, which multiplies the gradient).

    sgd(p, grad, factors)                   factors: lr, weight_decay
    sgd_momentum(p, grad, buf, factors)     adam(p, grad, m, v, factors)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minitorch.backend.host.memory import SERIAL_LIMIT, FlatKernel, HostMemory
from minitorch.backend.optim import Optim, Tensors
from minitorch.dtypes import DType
from minitorch.step_factors import adam_factors, momentum_factors
from minitorch.tensor_data import TensorData


class HostOptim(HostMemory, Optim):
    """The launchers of the kernels above."""

    _optim: Any

    def sgd_step(
        self,
        params: Tensors,
        grads: Tensors,
        momentum_buffers: Tensors | None,
        lr: float,
        momentum: float,
        dampening: float,
        weight_decay: float,
        nesterov: bool,
        first: bool,
    ) -> None:
        """Each number is loaded once, updated in registers and stored once."""
        if momentum_buffers is None or momentum == 0:
            self._update(self._optim.sgd, (params, grads), (lr, weight_decay))
            return
        if first:
            for buf in momentum_buffers:  # 0 times what was there, were it not NaN
                buf.array().fill(0)
        factors = momentum_factors(
            lr, momentum, dampening, weight_decay, nesterov, first
        )
        tensors = (params, grads, momentum_buffers)
        self._update(self._optim.sgd_momentum, tensors, factors)

    def adam_step(
        self,
        params: Tensors,
        grads: Tensors,
        exp_avgs: Tensors,
        exp_avg_sqs: Tensors,
        step: int,
        lr: float,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
        decoupled: bool,
        scale: TensorData | None = None,
    ) -> None:
        """As `sgd_step`."""
        factors = adam_factors(step, lr, beta1, beta2, eps, weight_decay, decoupled)
        by = 1.0 if scale is None else float(scale.array())
        tensors = (params, grads, exp_avgs, exp_avg_sqs)
        self._update(self._optim.adam, tensors, (*factors, by))

    def _update(
        self, kernel: FlatKernel, tensors: Sequence[Tensors], factors: Sequence[float]
    ) -> None:
        """Run a kernel for each parameter: tensors[0][i], its gradient, and its state.

        The factors are rounded once for all parameters of one type.
        """
        rows: dict[DType, list[tuple[TensorData, ...]]] = {}
        for given in zip(*tensors):
            dtype = given[0].storage.dtype
            for t in given:
                if t.storage.dtype is not dtype:
                    kinds = [t.dtype.name for t in given]
                    raise TypeError(
                        f"optimizer step: tensors of one parameter differ: {kinds}"
                    )
            rows.setdefault(dtype, []).append(given)
        for dtype, some in rows.items():
            flat = [list(map(self.contiguous, given)) for given in some]
            arrays = [[t.flat() for t in row] for row in flat]
            self._step_arrays(kernel, arrays, np.array(factors, dtype.numpy))
            for given, row in zip(some, flat):
                self._copy_back(given, row)

    def _step_arrays(
        self, kernel: FlatKernel, rows: list[list[np.ndarray]], factors: np.ndarray
    ) -> None:
        """Run a kernel on the flat arrays of each parameter."""
        for row in rows:
            kernel[len(row[0]) >= SERIAL_LIMIT](*row, factors)

    def _copy_back(self, given: Sequence[TensorData], flat: list[TensorData]) -> None:
        """Write copies that were made because tensors are not contiguous."""
        for i, (old, new) in enumerate(zip(given, flat)):
            if new is not old and i != 1:  # the gradient does not change
                self.copy_into(old, new)
