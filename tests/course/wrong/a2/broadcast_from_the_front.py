"""a2.2 in minitorch/tensor_data.py: missing sizes are added at the end."""


@lru_cache(maxsize=4096)
def broadcast_shapes(*shapes):
    dims = max(len(shape) for shape in shapes)
    out = [1] * dims
    for shape in shapes:
        for i, size in enumerate(shape):
            if out[i] == 1:
                out[i] = size
            elif size not in (1, out[i]):
                raise ValueError(_cannot_broadcast(shapes, dims - i, out[i], size))
    return tuple(out)
