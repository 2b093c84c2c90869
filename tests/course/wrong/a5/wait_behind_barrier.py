"""a5.5 in cuda_ops/matmul/kernels.py: nobody knows whether the others have waited."""

RIGHT = """
            wait()  # for this thread's copies of tile t
            cuda.syncthreads()  # for all others'; and all are done with tile t - 1
            acc = multiply(acc, shared, slot + a_mine, slot + b_mine)
            if t"""
WRONG = """
            cuda.syncthreads()
            wait()
            acc = multiply(acc, shared, slot + a_mine, slot + b_mine)
            if t"""
