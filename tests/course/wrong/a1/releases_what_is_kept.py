"""a1.4 in minitorch/autodiff.py: nodes are released where the graph is to be kept."""

RIGHT = "                if not retain_graph:\n                    item.release()"
WRONG = "                item.release()"
