"""a1.4 in minitorch/autodiff.py: leaves wait for nodes that do not use them."""


def topological_sort(roots):
    order, seen, stack = [], set(), list(roots)
    while stack:
        item = stack.pop()
        if item is None:
            order.append(stack.pop())
        elif id(item) not in seen:
            seen.add(id(item))
            stack += [item, None]
            stack += [edge[0] for edge in item.edges if edge is not None]
    return order[::-1]
