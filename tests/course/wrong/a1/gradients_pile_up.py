"""a1.5 in xor.py: never sets the gradients back."""


def step(network, points, labels, lr):
    loss = mean_loss(network, points, labels)
    loss.backward()
    for parameter in network.parameters():
        if parameter.grad is not None:
            parameter.data -= lr * parameter.grad
    return loss.data
