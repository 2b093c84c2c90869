"""a3.2 in fast_ops/reduce_ladder.py: blocks share an element."""


@kernel(parallel=True)
def _blocks(x, partial):
    for task in prange(partial.size):
        first = np.int64(task) * BLOCK
        block = x[first : first + BLOCK + 1]
        total = np.float32(0)
        for e in range(block.size):
            total += block[e]
        partial[task] = total
