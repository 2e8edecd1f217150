"""What follows from an op that is named already is not named again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.difference.searching import search
from tests.dumps import call, tensor, write_dump

GOOD = tensor(shape=(5, 5), stats=(4.0, -4.0, 0.5, 10.0))
BAD = tensor(shape=(5, 5), stats=(16.0, -16.0, 2.0, 40.0))
NEAR = tensor(shape=(5, 5), stats=(4.2, -4.2, 0.5, 10.4))
FAULT = call([GOOD], [BAD])
RIGHT = call([GOOD], [GOOD])


def named(
    folder: Path, target: Mapping[str, Any], construct: Mapping[str, Any] | None = None, **header: Any
) -> list[list[str]]:
    golden = {name: {**record, "output": [GOOD]} for name, record in target.items()}
    golden = {
        name: {**record, **({"input": [GOOD]} if "input" in record else {"input_args": [GOOD]})}
        for name, record in golden.items()
    }
    paths = [write_dump(folder / side, data, **header) for side, data in (("target", target), ("golden", golden))]
    if construct is not None:
        paths[0].with_name("construct.json").write_text(json.dumps(construct))
    found = search(*paths, folder / "out")
    return [[node.name for node in nodes] for nodes in (found.nodes, found.independent)]


def test_modules_around_a_wrong_one(tmp_path: Path) -> None:
    inner, around, beside, top = (
        "Module.layers.0.mlp.Linear.forward.0", "Module.layers.0.Block.forward.0", "Module.layers.1.Block.forward.0",
        "Module.Net.forward.0",
    )  # fmt: skip
    assert named(tmp_path, dict.fromkeys((inner, around, beside, top), FAULT), level="L0") == [[inner], [beside]]


@pytest.mark.parametrize("nested", ["Module.mlp.Linear.forward.0", ["Module.mlp.Linear.forward.0", 3]])
def test_the_module_around_an_api(tmp_path: Path, nested: Any) -> None:
    api, module, other = "Functional.linear.0.forward", "Module.mlp.Linear.forward.0", "Module.head.Linear.forward.0"
    data = dict.fromkeys((api, module, other), FAULT)
    construct = {api: nested, module: None, other: None}
    assert named(tmp_path, data, construct, level="mix") == [[api], [other]]


def test_without_the_file_or_with_a_broken_one_the_answer_is_longer(tmp_path: Path) -> None:
    api, module = "Functional.linear.0.forward", "Module.mlp.Linear.forward.0"
    assert named(tmp_path / "none", dict.fromkeys((api, module), FAULT), level="mix") == [[api], [module]]
    broken: Any = ["no", "object"]
    assert named(tmp_path / "broken", dict.fromkeys((api, module), FAULT), broken, level="mix") == [[api], [module]]


@pytest.mark.parametrize(
    ("forward", "backward"),
    [("Torch.mul.0.forward", "Torch.mul.0.backward"), ("Module.fc.Linear.forward.0", "Module.fc.Linear.backward.0")],
)
def test_the_backward_of_a_wrong_forward(tmp_path: Path, forward: str, backward: str) -> None:
    gradient = {"input": [GOOD], "output": [BAD]}
    other = backward.replace("mul", "add").replace("fc", "out")
    assert named(tmp_path, {forward: FAULT, backward: gradient, other: gradient}, level="mix") == [[forward], [other]]


def test_the_backward_of_a_forward_that_is_off_a_little(tmp_path: Path) -> None:
    """Its own input is equal, but not the values of the forward that it uses."""
    data = {
        "Torch.exp.0.forward": FAULT,
        "Torch.mul.0.forward": call([NEAR], [NEAR]),
        "Torch.mul.0.backward": {"input": [GOOD], "output": [BAD]},
    }
    assert named(tmp_path, data) == [["Torch.exp.0.forward"], []]
    data["Torch.mul.0.forward"] = RIGHT
    assert named(tmp_path / "right", data) == [["Torch.exp.0.forward"], ["Torch.mul.0.backward"]]
