"""a11.1 in fast_ops/attention.py: takes scores that were never made."""


@device_function
def _online_softmax(scores, lines, keys, edge, top, total, decay, sums, less):
    for q in range(lines):
        best = top[q]
        for k in range(keys):
            best = maximum_float(best, scores[k * QUERIES + q])
        decay[q], top[q] = exp(top[q] - best), best
        total[q] *= decay[q]
        for k in range(keys):
            scores[k * QUERIES + q] = exp(scores[k * QUERIES + q] - best)
            total[q] += scores[k * QUERIES + q]
