"""a16.3 in minitorch/scaling.py: a parabola of N."""

RIGHT = "np.polyfit(np.log(N) - middle, loss, 2)"
WRONG = "np.polyfit(N - np.exp(middle), loss, 2)"
