"""Attention of one new token of each text to keys and values in blocks.

With this file the backend reads the blocks of many texts where they are (`attend`); the
default copies them side by side first, which writes and reads all keys and values once
more.
"""

from __future__ import annotations

import numpy as np
from numba import prange

from fast_ops.launch import SERIAL, both, device_function
from fast_ops.softmax import softmax_row
from minitorch.backend.host.workspace import workspace
from minitorch.tensor_data import TensorData


@device_function
def _score(query, q_step, group, keys, token, rows, E, scale, out, room):
    """out[g, j] = query[g] * key[j] * scale, for a block and a group of heads"""
    for j in range(rows):
        key = keys[j * token : j * token + E]
        for g in range(group):
            line = query[g * q_step : g * q_step + E]
            dot = out.dtype.type(0)
            for e in range(E):
                dot += line[e] * key[e]
            out[g * room + j] = dot * scale


@device_function
def _weigh(weights, room, group, values, token, rows, E, out, o_step):
    """out[g] += weights[g, j] * value[j], for a block and a group of heads"""
    for j in range(rows):
        value = values[j * token : j * token + E]
        for g in range(group):
            line, weight = out[g * o_step : g * o_step + E], weights[g * room + j]
            for e in range(E):
                line[e] += weight * value[e]


def _attend(
    query, q_at, q_steps, memory, start, tables, lengths, out, o_at, o_steps, sizes,
    scale, work,
):  # fmt: skip
    """One query of each text, through its block table.

    # query [R, H, E], memory [blocks, size, 2 K, E], tables [R, P], lengths [R]
    # -> out [R, H, E]

        parallel for texts, heads of keys:
            for blocks of the text:  weights = keys * queries of the group
            weights = softmax(weights)
            for blocks of the text:  out += weights * values

    A key is read once for all queries of its group. Of a text of 1024 tokens a head has
    4 KiB of weights for each of its queries, which stay in the first-level cache.
    """
    H, K, E, size, P = sizes
    token, group, room = 2 * K * E, H // K, P * size
    factor = memory.dtype.type(scale)
    for task in prange(lengths.size * K):
        r, k = divmod(np.int64(task), K)
        last, table = min(lengths[r], room), tables[r * P : r * P + P]
        weights = work[task * group * room : (task + 1) * group * room]
        keys, values = memory[start + k * E :], memory[start + (K + k) * E :]
        q = query[q_at + r * q_steps[0] + k * group * q_steps[1] :]
        o = out[o_at + r * o_steps[0] + k * group * o_steps[1] :]
        for i in range(0, last, size):
            block, rows = keys[table[i // size] * size * token :], min(size, last - i)
            _score(
                q, q_steps[1], group, block, token, rows, E, factor, weights[i:], room
            )
        for g in range(group):
            line = weights[g * room : g * room + last]
            softmax_row(line, line)
            o[g * o_steps[1] : g * o_steps[1] + E] = 0
        for i in range(0, last, size):
            block, rows = values[table[i // size] * size * token :], min(size, last - i)
            _weigh(weights[i:], room, group, block, token, rows, E, o, o_steps[1])


KERNELS = both(_attend)


def attend(
    out: TensorData, query: TensorData, memory: TensorData, tables: np.ndarray,
    lengths: np.ndarray, scale: float,
) -> None:  # fmt: skip
    """query and out [R, H, 1, E], whose rows have no gaps."""
    (R, H, _, E), (_, size, both_kinds, _) = query.shape, memory.shape
    sizes = H, both_kinds // 2, E, size, len(tables) // R
    work = workspace(len(tables) * size * H, out.dtype)
    KERNELS.attend[len(tables) * size * H * E > SERIAL](
        query.storage.array, query.offset, query.strides[:2], memory.storage.array,
        memory.offset, tables, lengths, out.storage.array, out.offset, out.strides[:2],
        sizes, scale, work,
    )  # fmt: skip
