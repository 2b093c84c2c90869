"""a5.5 in cuda_ops/matmul/kernels.py: the last tiles stay among the newest groups."""

RIGHT = """
                b_from += forward * b_strides[1]
            close()
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        thread, slice_, my_row, my_col = place()
"""
WRONG = """
                b_from += forward * b_strides[1]
                close()
            free = slot
            slot = slot + stage if slot + stage < ring else 0
        thread, slice_, my_row, my_col = place()
"""
