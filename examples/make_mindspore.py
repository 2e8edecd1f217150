"""Makes the MindSpore example: the same small network with the same weights, once in MindSpore and once in PyTorch.

    pip install mindspore "numpy<2" mindstudio-probe      # in one environment
    python examples/make_mindspore.py mindspore --out examples/mindspore
    pip install torch mindstudio-probe                     # in another
    python examples/make_mindspore.py pytorch --out examples/mindspore

The dumps are written by the hooks of mindstudio-probe's ``PrecisionDebugger`` around a real forward and backward pass on the CPU.
MindSpore's CPU backend has no kernel for some of the statistics that the hooks ask for, so they are computed with NumPy here. Only
paths inside the json files are shortened afterwards. opassay itself never runs this file.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from pathlib import Path

import numpy as np

TOKENS, HIDDEN, WIDE = 4, 8, 16
STACK_LINES = 3


def weights() -> dict[str, np.ndarray]:
    """Return the parameters and the input of both sides."""
    draw = np.random.default_rng(20)
    shapes = {"fc1.weight": (WIDE, HIDDEN), "fc1.bias": (WIDE,), "fc2.weight": (HIDDEN, WIDE), "fc2.bias": (HIDDEN,)}
    found = {name: (draw.standard_normal(shape) * 0.4).astype(np.float32) for name, shape in shapes.items()}
    return found | {"x": draw.standard_normal((TOKENS, HIDDEN)).astype(np.float32)}


def run_mindspore(config: Path) -> None:
    """One step in MindSpore."""
    import mindspore as ms
    from mindspore import Parameter, Tensor, mint, nn

    ms.set_context(mode=ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    _statistics_by_numpy(ms)
    from msprobe.mindspore import PrecisionDebugger

    given = weights()

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = mint.nn.Linear(HIDDEN, WIDE)
            self.fc2 = mint.nn.Linear(WIDE, HIDDEN)
            self.relu = ms.ops.ReLU()

        def construct(self, x):
            h = mint.nn.functional.relu(self.fc1(x))
            h = mint.add(self.fc2(h), x)
            scores = mint.matmul(h, mint.transpose(h, 0, 1))
            h = mint.matmul(mint.nn.functional.softmax(scores, dim=-1), h)
            larger = mint.gt(h, x)
            mint.sum(larger)
            half = h.to(ms.bfloat16)
            half.add(half)
            h = self.relu(mint.tanh(h) * 0.5)
            return mint.mean(mint.mul(h, h))

    net = Net()
    for name, parameter in net.parameters_and_names():
        parameter.set_data(Parameter(Tensor(given[name])))
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start(net)
    ms.value_and_grad(net, 0, net.trainable_params())(Tensor(given["x"]))
    debugger.stop()
    debugger.step()


def _statistics_by_numpy(ms) -> None:
    """Give the hooks max, min, mean and norm that run on the CPU for every dtype."""

    def norm(values):
        return np.float32(np.linalg.norm(values.ravel()))

    def replaced(real, compute):
        def statistic(tensor, *arguments, **keywords):
            if arguments or keywords or not hooks_ask():
                return real(tensor, *arguments, **keywords)
            values = tensor.asnumpy()
            return ms.Tensor(compute(values.astype(np.float32) if tensor.dtype == ms.bfloat16 else values))

        return statistic

    def hooks_ask() -> bool:
        import inspect

        return any("msprobe" in frame.filename and "data_processor" in frame.filename for frame in inspect.stack()[2:4])

    for name, compute in (("max", np.max), ("min", np.min), ("mean", np.mean), ("norm", norm)):
        setattr(ms.mint, name, replaced(getattr(ms.mint, name), compute))


def run_pytorch(config: Path) -> None:
    """The same step in PyTorch."""
    import torch
    import torch.nn.functional as F
    from msprobe.pytorch import PrecisionDebugger
    from torch import nn

    torch.set_num_threads(1)
    given = {name: torch.from_numpy(values) for name, values in weights().items()}

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1, self.fc2 = nn.Linear(HIDDEN, WIDE), nn.Linear(WIDE, HIDDEN)

        def forward(self, x):
            h = F.relu(self.fc1(x))
            h = torch.add(self.fc2(h), x)
            scores = torch.matmul(h, torch.transpose(h, 0, 1))
            h = torch.matmul(F.softmax(scores, dim=-1), h)
            larger = torch.gt(h, x)
            torch.sum(larger)
            half = h.to(torch.bfloat16)
            half.add(half)
            h = F.relu(torch.tanh(h) * 0.5)
            return torch.mean(torch.mul(h, h))

    net = Net()
    net.load_state_dict({name: values for name, values in given.items() if name != "x"})
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start(model=net)
    net(given["x"].requires_grad_()).backward()
    debugger.stop()
    debugger.step()


def lay(dumped: Path, folder: Path) -> None:
    """Put the one rank of a dump where the example has it, without the paths of the machine that made it."""
    shutil.rmtree(folder, ignore_errors=True)
    (source,) = (dumped / "step0").iterdir()
    shutil.copytree(source, folder / "step0" / "rank0")
    for path in (folder / "step0" / "rank0").glob("*.json"):
        text = json.loads(path.read_text())
        if "dump_data_dir" in text:
            text["dump_data_dir"] = "./dump_tensor_data"
        if path.name == "stack.json":
            text = {number: [names, stack[:STACK_LINES]] for number, (names, stack) in text.items()}
        lines = json.dumps(text, indent=1)
        path.write_text(re.sub(r"File [^,\"]*/([^/,\"]+),", r"File \1,", lines) + "\n")


def main() -> None:
    """Run one side and lay its dump."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("framework", choices=("mindspore", "pytorch"))
    parser.add_argument("--out", type=Path, default=Path("examples/mindspore"))
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        config = Path(place) / "config.json"
        config.write_text(
            json.dumps(
                {
                    "task": "tensor",
                    "dump_path": f"{place}/dump",
                    "rank": [],
                    "step": [],
                    "level": "mix",
                    "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
                }
            )
        )
        (run_mindspore if chosen.framework == "mindspore" else run_pytorch)(config)
        lay(Path(place) / "dump", chosen.out / chosen.framework)


if __name__ == "__main__":
    main()
