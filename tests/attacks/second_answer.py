"""Sends a better answer after the first one, with the right number."""

import sys
import threading
import time

import numpy as np


def scale(x):
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    number, worker = frame.f_locals["request"]["id"], frame.f_locals["self"]

    def later():
        time.sleep(0.005)
        value = {"out": 2 * x + 1, "x": x}
        worker.send({"id": number, "is": "ok", "value": value})

    threading.Thread(target=later, daemon=True).start()
    return np.zeros_like(x)


running = scale
