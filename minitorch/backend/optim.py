"""Steps of optimizers, in place.

With this file a backend moves parameters against their gradients: `sgd_step` (with
momentum, Nesterov's too) and `adam_step` (Adam and AdamW), one elementwise operation
after the other; a kernel of its own reads and writes each number once. What gradients
are clipped by comes from `sum_of_squares`, and `copy_all` gathers gradients to be sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import minitorch.operators as operators
from minitorch.backend.primitives import Primitives
from minitorch.step_factors import adam_factors
from minitorch.tensor_data import TensorData

Tensors = Sequence[TensorData]


class Optim(Primitives):
    """Defaults for what is done to all parameters, or to all gradients."""

    def copy_all(self, outs: Tensors, tensors: Tensors) -> None:
        """outs[k][...] = tensors[k], of the same shape and dtype, for all k."""
        for out, a in zip(outs, tensors):
            self.copy_into(out, a)

    def sum_of_squares(self, tensors: Tensors) -> TensorData:
        """The sum [] of the squares of all numbers; one tensor or more, of one type."""
        total = self.number(0.0, tensors[0].dtype)
        for t in tensors:
            part = self._sum(self._mul(t, t), range(len(t.shape)))
            total = self.zip(operators.add, total, TensorData(part.storage, ()))
        return total

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
        """One step in place on all tensors; `first` sets the buffers to the gradient.

        g = grad + weight_decay * p; buf = momentum * buf + (1 - dampening) * g;
        p -= lr * (g + momentum * buf if nesterov else buf if momentum else g).

        Source: Sutskever, Martens, Dahl and Hinton, "On the importance of
        initialization and momentum in deep learning", 2013.
        """
        for k, p in enumerate(params):
            g = self._plus(grads[k], p, weight_decay)
            if momentum_buffers and momentum:
                buf = momentum_buffers[k]
                if first:
                    self.copy_into(buf, g)
                else:
                    self.copy_into(buf, self._mul(buf, momentum))
                    self._add_to(buf, g, 1 - dampening)
                g = self._plus(g, buf, momentum) if nesterov else buf
            self._add_to(p, g, -lr)

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
        """One Adam (or, `decoupled`, AdamW) step in place; `step` counts from 1.

        m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * g^2;
        p -= lr * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + eps).

        Weight decay adds weight_decay * p to g, or, decoupled, takes
        lr * weight_decay * p off p first. `scale` [] is a factor for all gradients.

        Source: Kingma and Ba, "Adam: a method for stochastic optimization", 2015;
        Loshchilov and Hutter, "Decoupled weight decay regularization", 2019.
        """
        size, new1, beta2, new2, eps, root, decay, shrink = adam_factors(
            step, lr, beta1, beta2, eps, weight_decay, decoupled
        )
        for p, grad, m, v in zip(params, grads, exp_avgs, exp_avg_sqs):
            g = grad if scale is None else self._mul(grad, scale)
            g = self._plus(g, p, decay)
            self._add_to(m, self.zip(operators.sub, g, m), new1)
            self.copy_into(v, self._mul(v, beta2))
            self._add_to(v, self._mul(g, g), new2)
            bottom = self._mul(self.map(operators.sqrt, v), root)
            bottom = self.zip(operators.add, bottom, self.number(eps, p.dtype))
            self.copy_into(p, self._mul(p, shrink))
            self._add_to(p, self.zip(operators.div, m, bottom), -size)

    def _plus(self, a: TensorData, b: TensorData, factor: float) -> TensorData:
        """a + factor * b"""
        return self.zip(operators.add, a, self._mul(b, factor)) if factor else a

    def _add_to(self, out: TensorData, a: TensorData, factor: float) -> None:
        """out += factor * a"""
        self.zip(operators.add, out, self._mul(a, factor), out=out)
