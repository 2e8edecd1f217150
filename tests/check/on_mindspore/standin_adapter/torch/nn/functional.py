from mindspore import Tensor


def relu(input):
    return Tensor(input.values * (input.values > 0))
