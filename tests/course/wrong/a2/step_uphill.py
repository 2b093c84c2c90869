"""a2.6 in xor.py: makes the loss larger."""


def step(network, points, labels, lr):
    for parameter in network.parameters():
        parameter.grad = None
    loss = mean_loss(network, points, labels)
    loss.backward()
    with no_grad():
        for parameter in network.parameters():
            parameter += lr * parameter.grad
    return loss.item()
