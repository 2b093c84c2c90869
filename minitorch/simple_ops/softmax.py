"""Turn scores into probabilities, and measure how wrong they are.

With this file one can compute `softmax` and `log_softmax` along a dimension, the loss
of a classifier (`cross_entropy`), and its gradient.

All of them rest on one number for each line of scores, log(sum(exp(scores))), whose
largest score is taken out of the sum first, so that `exp` cannot overflow.
"""

from __future__ import annotations

import minitorch.operators as operators
from minitorch.operators import inf
from minitorch.simple_ops.lists import lines, nested, read, tensor
from minitorch.tensor_data import TensorData


def softmax(a: TensorData, dim: int) -> TensorData:
    """out = exp(a - max) / sum(exp(a - max)) along `dim`; a [*] -> out [*]."""
    values = read(a)
    for line in lines(a.shape, dim):
        # BEGIN SOLUTION a6.4
        top = operators.reduce(operators.maximum, [values[p] for p in line], -inf)
        total = sum(operators.exp(values[p] - top) for p in line)
        for p in line:
            values[p] = operators.exp(values[p] - top) / total
        # END SOLUTION a6.4
    return tensor(values, a.shape, a.dtype)


def log_softmax(a: TensorData, dim: int) -> TensorData:
    """out = a - max - log(sum(exp(a - max))) along `dim`; a [*] -> out [*].

    In this order: the logarithm would be lost beside a large maximum.
    """
    values = read(a)
    for line in lines(a.shape, dim):
        # BEGIN SOLUTION a6.4
        top, rest = max_and_log_sum([values[p] for p in line])
        for p in line:
            values[p] = values[p] - top - rest
        # END SOLUTION a6.4
    return tensor(values, a.shape, a.dtype)


def cross_entropy(
    logits: TensorData, target: TensorData, ignore_index: int
) -> tuple[TensorData, TensorData]:
    """logits [N, C], target int64 [N] -> losses [N], logsumexp of each row [N].

    losses[n] = logsumexp(logits[n]) - logits[n, target[n]], or 0 where target[n] is
    `ignore_index`. Raises IndexError for another target outside [0, C).
    """
    rows, classes = logits.shape
    # BEGIN SOLUTION a6.4
    scores, losses = nested(logits), []
    parts = [max_and_log_sum(row) for row in scores]
    for n, label in enumerate(read(target)):
        if label == ignore_index:
            losses.append(0.0)
        elif 0 <= label < classes:
            top, rest = parts[n]
            losses.append(top - scores[n][label] + rest)
        else:
            raise IndexError(
                f"cross_entropy: target[{n}] is {label}; with {classes} classes it "
                f"must be from 0 to {classes - 1}, or ignore_index ({ignore_index})"
            )
    totals = [top + rest for top, rest in parts]
    return tensor(losses, (rows,), logits.dtype), tensor(totals, (rows,), logits.dtype)
    # END SOLUTION a6.4


def cross_entropy_backward(
    grad: TensorData,
    logits: TensorData,
    target: TensorData,
    logsumexp: TensorData,
    ignore_index: int,
) -> TensorData:
    """grad[n] * (softmax(logits[n]) - onehot(target[n])), rows ignored are 0.

    grad, target, logsumexp [N], logits [N, C] -> [N, C]
    """
    rows, classes = logits.shape
    # BEGIN SOLUTION a6.4
    g, labels, totals = read(grad), read(target), read(logsumexp)
    out = []
    for n, row in enumerate(nested(logits)):
        for c in range(classes):
            probability = operators.exp(row[c] - totals[n])
            slope = g[n] * (probability - operators.eq(c, labels[n]))
            out.append(0.0 if labels[n] == ignore_index else slope)
    return tensor(out, (rows, classes), logits.dtype)
    # END SOLUTION a6.4


def max_and_log_sum(line: list[float]) -> tuple[float, float]:
    """The two parts of log(sum(exp(x))) = max + log(sum(exp(x - max)))."""
    # BEGIN SOLUTION a6.4
    top = operators.reduce(operators.maximum, line, -inf)
    return top, operators.log(sum(operators.exp(x - top) for x in line))
    # END SOLUTION a6.4
