"""a1.4 in minitorch/autodiff.py: a leaf comes after its first use, not its last."""


def topological_sort(roots):
    nodes, seen, stack = [], set(), list(roots)
    while stack:
        item = stack.pop()
        if id(item) not in seen:
            seen.add(id(item))
            if item.edges:
                nodes.append(item)
            stack += [edge[0] for edge in item.edges if edge is not None]
    nodes.sort(key=lambda node: -node.number)
    order, placed = [], set()
    for node in nodes or roots:
        order.append(node)
        for edge in node.edges:
            if edge is not None and not edge[0].edges and id(edge[0]) not in placed:
                placed.add(id(edge[0]))
                order.append(edge[0])
    return order
