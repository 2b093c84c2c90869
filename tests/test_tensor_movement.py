from operations import check_backward, check_differences, check_forward, each


@each("movement")
def test_forward(op, device):
    check_forward(op, device)


@each("movement", differentiable=True)
def test_backward(op, device):
    check_backward(op, device)


@each("movement", differentiable=True)
def test_differences(op, device):
    check_differences(op, device)
