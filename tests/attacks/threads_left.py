"""Leaves threads that work for ever."""

import threading


def spin():
    while True:
        pass


def scale(x):
    for _ in range(8):
        threading.Thread(target=spin, daemon=True).start()
    return x


running = scale
