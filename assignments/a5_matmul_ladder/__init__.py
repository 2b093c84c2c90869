"""a5, The matmul ladder: from three loops to the limit of a GPU's multipliers."""
