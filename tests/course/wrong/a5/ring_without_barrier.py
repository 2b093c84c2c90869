"""a5.5 in cuda_ops/matmul/kernels.py: each thread waits for its own copies only."""

RIGHT = """
            cuda.syncthreads()  # for all others'; and all are done with tile t - 1
            acc = multiply(acc, shared, slot + a_mine, slot + b_mine)
            if t"""
WRONG = """
            acc = multiply(acc, shared, slot + a_mine, slot + b_mine)
            if t"""
