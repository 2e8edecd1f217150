"""MindSpore's dump.json -> cases: what is checkable, where it stands, what its header must say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opassay.pipeline.check.cases import read_cases
from opassay.pipeline.check.inputs import InputError, build_inputs, recorded_values
from opassay.schemas.errors import DumpMalformed

from tests.check.on_mindspore.helpers import described, saved, statistics_dump, tensor_dump
from tests.dumps import call, scalar, write_dump


def test_calls_stand_where_their_first_record_does(tmp_path: Path) -> None:
    data = {
        "Mint.sin.0.backward": {"input": [described()], "output": []},
        "Mint.add.0.forward": call([described()], []),
        "Cell.net.Net.forward.0": call([described()], []),
        "Cell.net.Net.parameters_grad": {"weight": [described()]},
        "Mint.add.0.backward": {"input": [described()], "output": [described(), None]},
    }
    cases = read_cases(statistics_dump(tmp_path, data), "mindspore")
    assert cases.names == ["Mint.sin.0", "Mint.add.0"]
    assert cases.modules == 2
    first, second = cases
    assert first.skip == "the dump has a backward record of the call and no forward record"
    assert (second.skip, second.framework, second.has_backward) == ("", "mindspore", True)
    assert second.gradients == data["Mint.add.0.backward"]["output"]
    assert read_cases(statistics_dump(tmp_path, data)).names == [
        "Mint.add.0"
    ]  # PyTorch's order is that of the forwards


@pytest.mark.parametrize(
    ("framework", "name", "skip"),
    [
        ("mindspore", "Mint.linalg.inv.0", ""),
        ("mindspore", "MintFunctional.relu.0", ""),
        ("mindspore", "Primitive.relu.ReLU.0", "Primitive calls are not supported by the pre-check"),
        ("mindspore", "Distributed.all_reduce.0", "Distributed calls are not supported by the pre-check"),
        ("mindspore", "Torch.add.0", "Torch calls are not supported by the pre-check"),
        ("mindtorch", "Torch.add.0", ""),
        ("mindtorch", "Mint.add.0", "Mint calls are not supported by the pre-check"),
        ("mindtorch", "NPU.npu_rms_norm.0", "NPU calls are not supported by the pre-check"),
    ],
)
def test_what_is_checkable_depends_on_the_framework(tmp_path: Path, framework: str, name: str, skip: str) -> None:
    path = statistics_dump(tmp_path, {f"{name}.forward": call([described()], [])}, framework)
    (case,) = read_cases(path, "mindspore")
    assert (case.skip, case.framework) == (skip, framework)


def test_the_header_must_be_one_of_mindspore(tmp_path: Path) -> None:
    data = {"Mint.add.0.forward": call([described()], [])}
    with pytest.raises(DumpMalformed, match="is a dump of pytorch; run it without -f mindspore"):
        read_cases(write_dump(tmp_path, data), "mindspore")
    for task in (None, "debug"):
        with pytest.raises(DumpMalformed, match=r"its key 'task' is .*, and it must be 'statistics' or 'tensor'"):
            read_cases(write_dump(tmp_path, data, framework="mindspore", task=task), "mindspore")
    for framework, told in ((None, "names no framework"), ("jax", "names the framework 'jax'")):
        cases = read_cases(write_dump(tmp_path, data, framework=framework), "mindspore")
        assert cases.framework == "mindspore"
        assert cases.problems == [f"the dump {told}; it is read as one of mindspore"]


def test_tensor_files_are_where_the_dump_says_or_beside_it(tmp_path: Path) -> None:
    data = {"Mint.add.0.forward": call([described()], [])}
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for told, folder in (
        (str(elsewhere), elsewhere),
        ("elsewhere", elsewhere),
        ("/no/such/folder", tmp_path / "dump_tensor_data"),
        (None, tmp_path / "dump_tensor_data"),
        ("a\0b", tmp_path / "dump_tensor_data"),
    ):
        cases = read_cases(tensor_dump(tmp_path, data, dump_data_dir=told), "mindspore")
        assert (cases.folder, cases[0].folder, cases.task) == (folder, folder, "tensor")
    assert read_cases(tensor_dump(tmp_path, data, framework="pytorch", dump_data_dir="elsewhere")).folder == (
        tmp_path / "dump_tensor_data"
    )


def test_values_of_mindspore_descriptors(tmp_path: Path) -> None:
    half = np.array([0.5, 1.5], dtype=np.float32)  # a .npy file has no bfloat16
    arguments: list[Any] = [
        saved(tmp_path, "half", half, "BFloat16"),
        {"type": "mindspore.dtype", "value": "Float16"},
        [scalar(2), scalar(3)],
        {"type": "slice", "value": [0, 2, None]},
        None,
    ]
    (case,) = read_cases(tensor_dump(tmp_path, {"Mint.add.0.forward": call(arguments, [])}), "mindspore")
    values, dtype, shape, part, nothing = build_inputs(case, wants_gradients=True).args
    assert values.dtype is torch.bfloat16
    assert values.float().tolist() == half.tolist()
    assert values.requires_grad  # MindSpore records no requires_grad: all floats are differentiated
    assert (dtype, shape, part, nothing) == (torch.float16, [2, 3], slice(0, 2, None), None)


@pytest.mark.parametrize("dtype", ["Int4", "Float99"])
def test_unknown_dtypes_are_told(tmp_path: Path, dtype: str) -> None:
    (case,) = read_cases(
        statistics_dump(tmp_path, {"Mint.add.0.forward": call([described(dtype=dtype)], [])}), "mindspore"
    )
    with pytest.raises(InputError, match=f"argument 0: tensors of dtype {dtype} are not supported"):
        build_inputs(case, wants_gradients=False)


def test_recorded_values_are_read_and_never_made(tmp_path: Path) -> None:
    outputs = [saved(tmp_path, "out", np.arange(3, dtype=np.float32)), scalar(2.5), None]
    (case,) = read_cases(tensor_dump(tmp_path, {"Mint.add.0.forward": call([described()], outputs)}), "mindspore")
    first, *rest = recorded_values(case, case.outputs, "outputs")
    assert (first.tolist(), rest) == ([0.0, 1.0, 2.0], [2.5, None])
    with pytest.raises(InputError, match="output 0: its tensor was not recorded"):
        recorded_values(case, [described()], "outputs")
    with pytest.raises(InputError, match=r"output 0: .*missing"):
        recorded_values(case, [{**described(), "data_name": "missing.npy"}], "outputs")


def test_inputs_of_a_tensor_dump_are_not_adjusted(tmp_path: Path) -> None:
    values = np.full((1, 1, 2, 2), 1.0001, dtype=np.float32)
    record = {"MintFunctional.conv2d.0.forward": call([saved(tmp_path, "x", values)] * 2, [])}
    (case,) = read_cases(tensor_dump(tmp_path, record), "mindspore")
    assert build_inputs(case, wants_gradients=False).args[0].flatten()[0].item() == values[0, 0, 0, 0]
