"""a16.2 in minitorch/scaling.py: errors are measured in y, where large ones decide."""


def fit_power_law(x, y):
    x, y = _positive("fit_power_law", 2, x=x, y=y)
    found = []
    for exponent in np.linspace(-2.5, 2.5, 2001):
        u = x**exponent
        factor = (u @ y) / (u @ u)
        found.append((((y - factor * u) ** 2).sum(), factor, exponent))
    _, factor, exponent = min(found)
    return PowerLaw(float(factor), float(exponent))
