"""a16.5 in forecast.py: runs that have hardly begun are believed."""

RIGHT = 'rows["steps"] >= 1000'
WRONG = 'rows["steps"] >= 0'
