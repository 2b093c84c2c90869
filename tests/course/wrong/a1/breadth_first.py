"""a1.4 in minitorch/autodiff.py: by distance, not by dependence."""


def topological_sort(roots):
    order, seen, waiting = [], set(), list(roots)
    while waiting:
        item = waiting.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        order.append(item)
        waiting += [edge[0] for edge in item.edges if edge is not None]
    return order
