"""a18.4 in minitorch/serving/engine.py: who cannot come in keeps what it found."""

RIGHT = """\
                self._give_back(text)
                return"""
WRONG = "                return"
