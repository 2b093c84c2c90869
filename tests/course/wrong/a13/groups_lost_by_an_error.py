"""a13.3 in minitorch/distributed/optim.py: what others own is gone after an error."""

RIGHT = "        finally:\n            for group, params in zip"
WRONG = (
    "        except KeyError:\n            raise\n        else:\n"
    "            for group, params in zip"
)
