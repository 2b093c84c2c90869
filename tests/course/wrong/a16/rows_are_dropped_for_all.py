"""a16.5 in forecast.py: the rows that are left out are taken away from the caller."""

RIGHT = """\
    begun = rows["steps"] >= 1000
"""

WRONG = """\
    begun = rows["steps"] >= np.median(rows["steps"])
    for name in rows:
        rows[name] = rows[name][begun]
    begun = rows["steps"] > 0
"""
