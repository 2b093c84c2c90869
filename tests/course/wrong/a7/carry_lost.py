"""a7.5 in cuda_ops/ladders/sparse.py: elements of a row that goes on get lost."""


@kernel(threads=THREADS)
def csr_balanced(crow, col, values, dense, out, n, share, carry_row, carry):
    g = cuda.blockIdx.x * WARPS + cuda.threadIdx.x // WARP
    rows, nnz = crow.size - 1, col.size
    if g < carry_row.size:
        i0 = merge_row(crow, g * share, nnz)
        i1 = merge_row(crow, min((g + 1) * share, rows + nnz), nnz)
        for j in range(cuda.threadIdx.x % WARP, n, WARP):
            p = g * share - i0
            for i in range(i0, i1):
                total = values.dtype.type(0)
                while p < crow[i + 1]:
                    total += values[p] * dense[col[p] * n + j]
                    p += 1
                out[i * n + j] = total
            carry[g * n + j] = 0
        if cuda.threadIdx.x % WARP == 0:
            carry_row[g] = i1
