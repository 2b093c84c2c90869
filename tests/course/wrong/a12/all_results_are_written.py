"""a12.6 in minitorch/compiler/recorder.py: the recorder holds what it notes."""

RIGHT = "        self.made.append(weakref.ref(out.storage))"
WRONG = "        self.made.append(lambda storage=out.storage: storage)"
