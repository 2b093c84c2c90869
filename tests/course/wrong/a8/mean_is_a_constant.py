"""a8.3 in cuda_ops/norm.py: the gradient through the mean is left out."""


def row_slope(fit, scaled):
    held, zero, kind = fit.held, fit.kind(0), fit.kind
    read, total_of = row_reader(fit.width, fit.group, held), summed(fit.group)

    def slope(g, z, y, scale, weight, dw, db, n, t, cells, more_cells):
        if scaled:
            read(weight, 0, n, t, zero, y)
        product = zero
        for k in range(held):
            z[k] *= scale
            dw[k] += g[k] * z[k]
            db[k] += g[k]
            if scaled:
                g[k] *= y[k]
            product += g[k] * z[k]
        product = total_of(product, t, cells) / kind(n)
        for k in range(held):
            g[k] = scale * (g[k] - z[k] * product)

    return device(slope)
