from operations import check_backward, check_differences, check_forward, each


@each("index")
def test_forward(op, device):
    check_forward(op, device)


@each("index", differentiable=True)
def test_backward(op, device):
    check_backward(op, device)


@each("index", differentiable=True)
def test_differences(op, device):
    check_differences(op, device)
