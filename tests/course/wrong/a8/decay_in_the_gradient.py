"""a8.4 in minitorch/simple_ops/optim.py: AdamW adds the decay to the gradient."""


def adam_step(
    params, grads, exp_avgs, exp_avg_sqs, step, lr, beta1, beta2, eps, weight_decay,
    decoupled, scale=None,
):  # fmt: skip
    factor = 1.0 if scale is None else read(scale)[0]
    fix1, fix2 = 1 - beta1**step, 1 - beta2**step
    for k in range(len(params)):
        ps, gs, ms, vs = map(read, (params[k], grads[k], exp_avgs[k], exp_avg_sqs[k]))
        for i in range(len(ps)):
            g = factor * gs[i] + weight_decay * ps[i]
            ms[i] = beta1 * ms[i] + (1 - beta1) * g
            vs[i] = beta2 * vs[i] + (1 - beta2) * g * g
            ps[i] -= lr * (ms[i] / fix1) / (math.sqrt(vs[i] / fix2) + eps)
        write(params[k], ps)
        write(exp_avgs[k], ms)
        write(exp_avg_sqs[k], vs)
