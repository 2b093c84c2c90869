"""a6.4 in minitorch/simple_ops/softmax.py: forgets the gradient of the losses."""


def cross_entropy_backward(grad, logits, target, logsumexp, ignore_index):
    rows, classes = logits.shape
    labels, totals = read(target), read(logsumexp)
    out = []
    for n, row in enumerate(nested(logits)):
        for c in range(classes):
            slope = operators.exp(row[c] - totals[n]) - (c == labels[n])
            out.append(0.0 if labels[n] == ignore_index else slope)
    return tensor(out, (rows, classes), logits.dtype)
