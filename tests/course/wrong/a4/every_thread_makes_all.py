"""a4.1 in cuda_ops/elementwise.py: each thread does the work of all."""

RIGHT = """        vector(a, out, int64(cuda.grid(1)) * 4, vectors)"""
WRONG = """        for i in range(0, out.size, 4):
            vector(a, out, i, vectors)"""
