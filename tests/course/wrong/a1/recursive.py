"""a1.4 in minitorch/autodiff.py: right, but not for deep graphs."""


def topological_sort(roots):
    order, seen = [], set()

    def visit(item):
        if id(item) in seen:
            return
        seen.add(id(item))
        for edge in item.edges:
            if edge is not None:
                visit(edge[0])
        order.append(item)

    for root in roots:
        visit(root)
    order.reverse()
    return order
