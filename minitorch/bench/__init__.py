"""How fast are we, beside PyTorch, on this machine?

With this package one can time operations and training steps: ours and PyTorch's take
turns in one process, on the same inputs, with the same number of threads. `harness.py`
takes the times, `cases.py` says what is timed, `report.py` prints it and `pictures.py`
draws it.
`minitorch bench` on the command line does all of it.
"""

from minitorch.bench.cases import all_cases, ladder_cases
from minitorch.bench.harness import Timing, compare
from minitorch.bench.inputs import Case
from minitorch.bench.pictures import ladder, roofline
from minitorch.bench.report import Result, to_json
