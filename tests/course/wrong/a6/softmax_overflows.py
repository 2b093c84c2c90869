"""a6.4 in minitorch/simple_ops/softmax.py: exponentials of the scores themselves."""


def softmax(a, dim):
    values = read(a)
    for line in lines(a.shape, dim):
        total = sum(operators.exp(values[p]) for p in line)
        for p in line:
            values[p] = operators.exp(values[p]) / total
    return tensor(values, a.shape, a.dtype)
