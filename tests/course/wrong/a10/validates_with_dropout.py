"""a10.4 in characters.py: dropout is on while the loss is measured."""


def validation_loss(model, x, y):
    with no_grad():
        return model.loss(x, y).item()
