"""a16.3 in minitorch/scaling.py: of runs with the same size one counts."""

RIGHT = "    middle = np.log(N).mean()"

WRONG = """\
    N, at = np.unique(N, return_index=True)
    loss = loss[at]
    middle = np.log(N).mean()"""
