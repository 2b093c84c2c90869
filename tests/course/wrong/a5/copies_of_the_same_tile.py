"""a5.5 in cuda_ops/matmul/kernels.py: b's place in memory does not move on."""

RIGHT = """
                b_from += forward * b_strides[1]
            close()
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        thread, slice_, my_row, my_col = place()
"""
WRONG = """
            close()
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        thread, slice_, my_row, my_col = place()
"""
