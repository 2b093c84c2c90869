"""a7.5 in fast_ops/sparse.py: as many rows for each task, whatever is in them."""


@device_function
def first_row(crow, task, tasks):
    return (crow.size - 1) * task // tasks
