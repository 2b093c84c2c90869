"""a5.8 in cuda_ops/matmul/kernels.py: b's tile is looked for where a's is."""

RIGHT = """
        b_mine = warp % warps_n * warp_cols * b_line + a_size
"""
WRONG = """
        b_mine = warp % warps_n * warp_cols * b_line
"""
