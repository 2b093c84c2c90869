"""a1.4 in minitorch/autodiff.py: gradients of leaves wait for the end of the pass."""

RIGHT = """
            if isinstance(item, Variable):
                if wanted is None:
                    item.accumulate_grad(grads[0], create_graph)
"""
WRONG = """
            if isinstance(item, Variable):
                if wanted is None:
                    results[id(item), 0] = item, grads[0]
                    if item is order[-1]:
                        for leaf, grad in results.values():
                            leaf.accumulate_grad(grad, create_graph)
"""
