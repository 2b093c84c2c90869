"""a17.3 in minitorch/nn/sparse.py: values of any dtype become float32."""

RIGHT = "values = weight.flatten()[columns]"

WRONG = "values = tensor(weight.flatten()[columns].tolist())"
