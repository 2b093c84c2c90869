"""Never returns."""


def scale(x):
    while True:
        pass


running = scale
