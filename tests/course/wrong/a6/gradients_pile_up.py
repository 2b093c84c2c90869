"""a6.6 in mnist.py: gradients are never set to zero."""


def step(network, optimizer, images, labels):
    network.train()
    loss = F.cross_entropy(network(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()
