"""a10.4 in characters.py: the model is in evaluation mode ever after."""

RIGHT = "    model.train(before)\n"
WRONG = ""
