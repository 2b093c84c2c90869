"""a8.4 in minitorch/simple_ops/optim.py: the start of m and v at 0 is not undone."""


def adam_step(
    params, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, eps, weight_decay,
    decoupled, scale=None,
):  # fmt: skip
    factor = 1.0 if scale is None else read(scale)[0]
    for k in range(len(params)):
        ps, gs, ms, vs = map(read, (params[k], grads[k], exp_avgs[k], exp_avg_sqs[k]))
        for i in range(len(ps)):
            g = factor * gs[i]
            if decoupled:
                ps[i] -= lr * weight_decay * ps[i]
            else:
                g += weight_decay * ps[i]
            ms[i] = beta1 * ms[i] + (1 - beta1) * g
            vs[i] = beta2 * vs[i] + (1 - beta2) * g * g
            ps[i] -= lr * ms[i] / (math.sqrt(vs[i]) + eps)
        write(params[k], ps)
        write(exp_avgs[k], ms)
        write(exp_avg_sqs[k], vs)
