"""Takes all memory."""

kept = []


def scale(x):
    while True:
        try:
            kept.append(bytearray(b"x" * (64 << 20)))
        except MemoryError:
            kept.append(bytearray(1 << 16))


running = scale
