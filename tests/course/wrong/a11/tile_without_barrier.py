"""a11.6 in cuda_ops/ladders/attention.py: a tile is used before all have copied."""

RIGHT = """
        cuda.syncthreads()
        score"""
WRONG = """
        score"""
