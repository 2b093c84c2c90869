from operations import check_backward, check_differences, check_forward, each


@each("reduce")
def test_forward(op, device):
    check_forward(op, device)


@each("reduce", differentiable=True)
def test_backward(op, device):
    check_backward(op, device)


@each("reduce", differentiable=True)
def test_differences(op, device):
    check_differences(op, device)
