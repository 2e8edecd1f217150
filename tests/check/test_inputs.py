"""Descriptors -> values: every kind of argument, tensors of files, adjustments of single APIs, gradients, streams."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from opassay.pipeline.check.adjust import to_hf32
from opassay.pipeline.check.cases import Case, read_cases
from opassay.pipeline.check.inputs import InputError, Inputs, Stand, build_inputs, on_device, tensors_of

from tests.dumps import scalar, tensor

CASES = Path(__file__).parents[1] / "data" / "checker"


def case_of(*args: Any, api: str = "add", kind: str = "Torch", **more: Any) -> Case:
    """A case with these descriptors of positional arguments."""
    return Case(f"{kind}.{api}.0", kind, api, "0", args=list(args), **more)


def built(*args: Any, **more: Any) -> Inputs:
    """Its inputs, without gradients."""
    return build_inputs(case_of(*args, **more), wants_gradients=False)


@pytest.mark.parametrize(
    ("descriptor", "expected"),
    [
        (scalar(3), 3),
        (scalar(True), True),
        (scalar("ij,jk"), "ij,jk"),
        (scalar(2.5), 2.5),
        ({"type": "float", "value": 2}, 2.0),
        ({"type": "float", "value": "-inf"}, -math.inf),
        (None, None),
        ({"type": "slice", "value": [1, None, 2]}, slice(1, None, 2)),
        ({"type": "ellipsis", "value": "..."}, ...),
        ({"type": "torch.Size", "value": [2, 3]}, torch.Size([2, 3])),
        ({"type": "torch.dtype", "value": "torch.bfloat16"}, torch.bfloat16),
        ({"type": "torch.memory_format", "format": "channels_last"}, torch.channels_last),
        ({"type": "torch.layout", "value": "torch.strided"}, torch.strided),
        ({"type": "torch.device", "value": "npu:0"}, Stand.DEVICE),
        ({"type": "complex", "value": [1.0, -2.0]}, 1 - 2j),
        ({"type": "numpy.float32", "value": 0.1}, np.float32(0.1)),
        ({"type": "numpy.bool_", "value": True}, np.True_),
        ({"type": "numpy.int8", "value": 3}, np.int8(3)),
        ({"type": "numpy.complex64", "value": [1.0, 2.0]}, np.complex64(1 + 2j)),
        ({"type": "numpy.unicode_", "value": "a"}, np.str_("a")),
        ({"type": "numpy.string_", "value": "a"}, np.bytes_(b"a")),
        ({"type": "float64", "value": 1.5}, 1.5),
        ({"type": "torch.ProcessGroup", "group_ranks": [0]}, None),
        ([scalar(1), [scalar(2), None]], [1, [2, None]]),
        ({"a": scalar(1), "b": [scalar(2)]}, {"a": 1, "b": [2]}),
    ],
)
def test_values_that_are_no_tensors(descriptor: Any, expected: Any) -> None:
    for inputs in (built(descriptor), built(kwargs={"key": descriptor})):
        value = [*inputs.args, *inputs.kwargs.values()][0]
        assert type(value) is type(expected)
        assert value == expected


@pytest.mark.parametrize(
    ("descriptor", "told"),
    [
        ({}, "argument 0 was not recorded"),
        (5, "argument 0 is 5 and not a description of a value"),
        ("text", "not a description"),
        ({"type": "int"}, "argument 0: its value was not recorded"),
        ({"type": "numpy.ndarray", "shape": [3]}, "argument 0: numpy.ndarray is not supported now"),
        ({"type": "numpy.int8", "value": "x"}, "is no numpy.int8"),
        ({"type": "torch.dtype", "value": "torch.load"}, "torch.load is no torch.dtype"),
        ({"type": "torch.dtype", "value": None}, "None is no torch.dtype"),
        ({"type": "torch.layout", "value": "x"}, "x is no torch.layout"),
        ({"type": "complex", "value": [1]}, "is no complex number"),
        ({"type": "slice", "value": 3}, "is no slice"),
        ({"type": "float", "value": "x"}, "x is no float"),
        ({"type": "float", "value": 10**400}, "is no float"),
        ({"class_type": "torch.distributed.P2POp", "tensor": {}}, "P2POp, not supported"),
        ([scalar(1), {}], "argument 0.1 was not recorded"),
        (tensor(stats=(None, None, None, None)), "Data info Min: None , Max: None, info type must be int or float."),
        (tensor(stats=("1", 0.0, None, None)), "Data info Min: 0.0 , Max: 1, info type"),
        (
            tensor(dtype="torch.int64", stats=(math.nan, 0.0, None, None)),
            "Data info Min: 0.0 , Max: nan, nan is no bound",
        ),
        (tensor(dtype="torch.quint8"), "tensors of dtype torch.quint8 are not supported"),
        (tensor(dtype=None), "tensors of dtype None are not supported"),  # type: ignore[arg-type]
        (tensor(shape=(-1, 2)), "[-1, 2] is no shape"),
        (tensor(shape=(2.0,)), "[2.0] is no shape"),  # type: ignore[arg-type]
        (tensor(shape=(1 << 40, 1 << 20)), "a tensor of shape [1099511627776, 1048576] takes"),
        (tensor(stats=(10**400, 0, None, None)), "no tensor of shape [2, 3] can be made"),
    ],
)
def test_what_cannot_be_built_says_why(descriptor: Any, told: str) -> None:
    with pytest.raises(InputError) as caught:
        built(descriptor)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"^keyword argument key"):
        built(kwargs={"key": descriptor})


def test_limit_of_memory_is_kept() -> None:
    case = case_of(tensor(shape=(1000,)))
    assert build_inputs(case, wants_gradients=False, most_bytes=4000).args[0].numel() == 1000
    with pytest.raises(InputError, match=r"takes 0\.0 GB, and there are 0\.0 GB"):
        build_inputs(case, wants_gradients=False, most_bytes=3999)


def test_shape_with_a_zero_needs_no_statistics() -> None:
    (value,) = built(tensor(shape=(0, 4), stats=(None, None, None, None))).args
    assert value.shape == (0, 4)


@pytest.mark.parametrize("kind", ["torch.nn.parameter.Parameter", "torch.distributed.tensor.DTensor", "torch.Tensor"])
def test_all_kinds_of_tensors(kind: str) -> None:
    (value,) = built({**tensor(), "type": kind}).args
    assert value.shape == (2, 3)
    assert (float(value.min()), float(value.max())) == (-1.0, 1.0)


def test_device_is_filled_in_later() -> None:
    device = {"type": "torch.device", "value": "npu:0"}
    inputs = built([device, tensor()], kwargs={"device": device})
    assert on_device(inputs.kwargs, "cpu") == {"device": torch.device("cpu")}
    assert on_device(inputs.args, "cpu")[0][0] == torch.device("cpu")
    assert inputs.kwargs["device"] is Stand.DEVICE


def _saved(folder: Path, name: str, value: Any, **more: Any) -> dict[str, Any]:
    store = folder / "dump_tensor_data"
    store.mkdir(exist_ok=True)
    torch.save(value, store / name)
    return tensor(data_name=name, **more)


@pytest.mark.parametrize(
    "value",
    [
        torch.randn(3, 4),
        torch.randn(3, 4).to(torch.bfloat16),
        torch.randn(3, 4).half(),
        torch.randn(3, 4).to(torch.float8_e4m3fn),
        torch.randn(3, 4, dtype=torch.complex64),
        torch.tensor([2**63 - 1, -(2**63)]),
        torch.tensor([True, False, True]),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.randn(4, 6)[:, ::2],
        torch.randn(3, 4).t(),
        torch.tensor([math.nan, math.inf, -math.inf, -0.0]),
        torch.ones(3).expand(2, 3),
    ],
    ids=lambda value: f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}",
)
def test_tensors_come_from_their_files(tmp_path: Path, value: torch.Tensor) -> None:
    leaf = _saved(tmp_path, "a.pt", value, shape=(9, 9))  # dtype and shape come from the file
    (read,) = built(leaf, task="tensor", folder=tmp_path / "dump_tensor_data").args
    assert read.dtype is value.dtype
    assert read.shape == value.shape
    assert read.is_contiguous()
    expected = value.contiguous().reshape(-1).view(torch.uint8)
    assert torch.equal(read.reshape(-1).view(torch.uint8), expected)


def test_numpy_files_and_the_older_key(tmp_path: Path) -> None:
    (tmp_path / "dump_tensor_data").mkdir()
    np.save(tmp_path / "dump_tensor_data" / "a.npy", np.arange(6, dtype=np.int32).reshape(2, 3))
    (read,) = built(tensor(datapath="a.npy"), task="tensor", folder=tmp_path / "dump_tensor_data").args
    assert read.tolist() == [[0, 1, 2], [3, 4, 5]]
    read[0, 0] = 9  # not a view of the file
    assert int(np.load(tmp_path / "dump_tensor_data" / "a.npy")[0, 0]) == 0


def test_large_file_is_read_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opassay.pipeline.check.inputs._READ_BYTES", 4096)
    value = torch.randn(70_000, 3).t()
    leaf = _saved(tmp_path, "a.pt", value)
    assert torch.equal(built(leaf, task="tensor", folder=tmp_path / "dump_tensor_data").args[0], value)


def test_statistics_task_reads_no_file(tmp_path: Path) -> None:
    leaf = _saved(tmp_path, "a.pt", torch.full((2, 3), 7.0))
    assert float(built(leaf, folder=tmp_path / "dump_tensor_data").args[0].max()) == 1.0


def test_tensor_that_was_not_saved_is_made(tmp_path: Path) -> None:
    assert float(built(tensor(), task="tensor", folder=tmp_path).args[0].max()) == 1.0


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("absent.pt", "argument 0: absent.pt: no such file in"),
        ("../a.pt", "not a plain file name"),
        ("a.bin", "neither .pt nor .npy"),
        ("bad.pt", "not a file of torch.save"),
        ("list.pt", "list.pt"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, told: str) -> None:
    store = tmp_path / "dump_tensor_data"
    store.mkdir()
    (store / "bad.pt").write_bytes(b"x" * 5000)
    torch.save([torch.ones(2)], store / "list.pt")
    with pytest.raises(InputError) as caught:
        built(tensor(data_name=name), task="tensor", folder=store)
    assert told in str(caught.value)


# --- gradients


def test_requires_grad_is_set_where_it_is_recorded_and_wanted() -> None:
    wanted, plain = tensor(requires_grad=True), tensor()
    whole = tensor(dtype="torch.int64", requires_grad=True)
    case = case_of(wanted, plain, [wanted, whole], kwargs={"a": wanted, "b": [plain, wanted]}, gradient=[plain])
    marks = [
        value.requires_grad
        for value in tensors_of((lambda i: [i.args, i.kwargs])(build_inputs(case, wants_gradients=True)))
    ]
    assert marks == [True, False, True, False, True, False, True]
    assert not any(value.requires_grad for value in tensors_of(build_inputs(case, wants_gradients=False).args))


def test_gradients_are_built_like_arguments() -> None:
    leaf = tensor(shape=(4,), stats=(3.0, -3.0, 0.0, 5.0), requires_grad=True)
    inputs = build_inputs(case_of(tensor(), gradient=[leaf, None]), wants_gradients=True)
    first, second = inputs.grads
    assert first is not None
    assert (first.shape, float(first.max()), first.requires_grad) == ((4,), 3.0, False)
    assert second is None
    assert inputs.no_gradient == ""


@pytest.mark.parametrize(
    ("gradient", "told"),
    [
        ([], "no gradient recorded"),
        ([None], "no gradient recorded"),
        ([{}], "gradient 0 was not recorded"),
        ([tensor(stats=(None, None, None, None))], "gradient 0: Data info"),
    ],
)
def test_gradient_that_cannot_be_built_leaves_the_forward_pass(gradient: list[Any], told: str) -> None:
    inputs = build_inputs(case_of(tensor(), gradient=gradient), wants_gradients=True)
    assert told in inputs.no_gradient
    assert inputs.args[0].shape == (2, 3)


# --- streams


def _bytes(inputs: Inputs) -> list[bytes]:
    values = tensors_of([inputs.args, inputs.kwargs, inputs.grads])
    return [value.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for value in values]


def test_inputs_depend_on_name_place_and_seed_only() -> None:
    leaf = tensor(shape=(50,))
    case = case_of(leaf, [leaf, leaf], kwargs={"a": leaf}, gradient=[leaf])
    first = _bytes(build_inputs(case, wants_gradients=True))
    assert len(set(first)) == 5  # each has a stream of its own
    torch.manual_seed(9)
    np.random.seed(9)  # noqa: NPY002
    assert _bytes(build_inputs(case, wants_gradients=True)) == first
    assert _bytes(build_inputs(case, wants_gradients=True, seed=1)) != first
    assert _bytes(build_inputs(replace(case, name="Torch.add.1"), wants_gradients=True)) != first
    alone = replace(case, args=[scalar(1), [None, leaf]], kwargs={})
    assert _bytes(build_inputs(alone, wants_gradients=False)) == [first[2]]


def test_order_and_selection_of_cases_change_nothing() -> None:
    cases = read_cases(CASES / "pt_ops_statistics" / "input" / "dump.json")
    every = {}
    for case in cases:
        if case.api != "to":
            every[case.name] = _bytes(build_inputs(case, wants_gradients=case.has_backward))
    for place in range(len(cases) - 1, -1, -7):
        case = cases[place]
        if case.api != "to":
            assert _bytes(build_inputs(case, wants_gradients=case.has_backward)) == every[case.name]


def test_every_tensor_of_a_real_dump_has_its_extremes() -> None:
    seen = 0
    for case in read_cases(CASES / "pt_ops_statistics" / "input" / "dump.json"):
        if case.api in ("to", "conv1d", "conv2d", "histc"):
            continue
        inputs = build_inputs(case, wants_gradients=False)
        for descriptor, value in zip(case.args, inputs.args, strict=True):
            if isinstance(value, torch.Tensor) and value.numel() and not value.is_complex():
                most, least = float(value.double().max()), float(value.double().min())
                assert str(value.dtype) == descriptor["dtype"]
                assert list(value.shape) == descriptor["shape"]
                np.testing.assert_array_equal([most, least], [float(descriptor["Max"]), float(descriptor["Min"])])
                seen += 1
    assert seen > 150


def test_reasons_of_the_hand_made_dump() -> None:
    reasons = {}
    for case in read_cases(CASES / "pt_handmade" / "input" / "dump.json"):
        if not case.skip:
            try:
                reasons[case.name] = build_inputs(case, wants_gradients=case.has_backward).no_gradient
            except InputError as error:
                reasons[case.name] = str(error)
    assert {name: reason for name, reason in reasons.items() if reason} == {
        "Torch.mul.3": "argument 1 was not recorded",
        "Torch.mul.4": "argument 0: Data info Min: None , Max: None, info type must be int or float.",
        "Torch.sum.0": "no gradient recorded",
        "Torch.exp.0": "no gradient recorded",
    }


# --- adjustments


def _labels(low: int, high: int, mean: float | None = None, dtype: str = "torch.int64") -> dict[str, Any]:
    return tensor(dtype=dtype, shape=(400,), stats=(high, low, mean, None))


@pytest.mark.parametrize("api", ["cross_entropy", "nll_loss"])
@pytest.mark.parametrize("keyword", [False, True])
def test_ignored_labels_occur_and_all_others_are_classes(api: str, keyword: bool) -> None:
    scores = tensor(shape=(400, 6))
    labels = _labels(-100, 5, -18.5)  # a fifth of them ignored
    case = case_of(scores, api=api, kwargs={"target": labels}) if keyword else case_of(scores, labels, api=api)
    inputs = build_inputs(case, wants_gradients=False)
    target = inputs.kwargs["target"] if keyword else inputs.args[1]
    assert set(target.tolist()) == {-100, 0, 1, 2, 3, 4, 5}
    assert 0.15 < float((target == -100).double().mean()) < 0.25
    function = getattr(torch.nn.functional, api)
    assert bool(torch.isfinite(function(*inputs.args, **inputs.kwargs)))


def test_ignore_index_of_the_call_counts() -> None:
    ignore = {"ignore_index": scalar(-1)}
    (_, target) = built(tensor(shape=(400, 6)), _labels(-1, 5), api="cross_entropy", kwargs=ignore).args
    assert set(target.tolist()) == {-1, 0, 1, 2, 3, 4, 5}
    (_, target) = built(tensor(shape=(400, 6)), _labels(-1, 5), api="cross_entropy").args
    assert set(target.tolist()) == {0, 1, 2, 3, 4, 5}  # -1 is no class, and is not ignored
    (_, target) = built(tensor(shape=(400, 6)), _labels(-100, -100), api="cross_entropy").args
    assert set(target.tolist()) == {-100}
    (_, target) = built(tensor(shape=(400, 6)), _labels(2, 5), api="cross_entropy").args
    assert set(target.tolist()) == {2, 3, 4, 5}


def test_labels_of_files_stay(tmp_path: Path) -> None:
    leaf = _saved(tmp_path, "a.pt", torch.tensor([-100, 3]), dtype="torch.int64", stats=(3, -100, None, None))
    (_, target) = built(tensor(), leaf, api="nll_loss", task="tensor", folder=tmp_path / "dump_tensor_data").args
    assert target.tolist() == [-100, 3]


def test_cross_entropy_takes_int64() -> None:
    (_, target) = built(tensor(shape=(400, 6)), _labels(0, 5, dtype="torch.int32"), api="cross_entropy").args
    assert target.dtype is torch.int64


@pytest.mark.parametrize("dtype", ["torch.int8", "torch.int32", "torch.int64"])
def test_histc_takes_floats(dtype: str) -> None:
    leaf = tensor(dtype=dtype, stats=(9, 0, None, None))
    (value,) = built(leaf, api="histc").args
    assert value.dtype is torch.float32
    assert float(value.max()) == 9.0
    assert built(kwargs={"input": leaf}, api="histc").kwargs["input"].dtype is torch.float32


@pytest.mark.parametrize("api", ["conv1d", "conv2d"])
def test_convolutions_get_values_of_hf32(api: str) -> None:
    inputs = built(tensor(shape=(500,)), tensor(dtype="torch.float16"), api=api, kwargs={"bias": tensor(shape=(500,))})
    for value in (inputs.args[0], inputs.kwargs["bias"]):
        assert not bool((value.view(torch.int32) & 0xFFF).any())
        assert int((value.view(torch.int32) & 0x1000 != 0).sum()) > 100
    assert bool((built(tensor(shape=(500,)), api="conv3d").args[0].view(torch.int32) & 0xFFF).any())


@pytest.mark.parametrize(
    ("bits", "expected"),
    [
        (0x3F800000, 0x3F800000),
        (0x3F8007FF, 0x3F800000),
        (0x3F800800, 0x3F801000),  # half goes up
        (0x3F801800, 0x3F802000),  # also from an odd one
        (0xBF800800, 0xBF801000),  # by magnitude
        (0x3FFFF800, 0x40000000),  # over a power of two
        (0x80000000, 0x80000000),
        (0x7F800000, 0x7F800000),
        (0x7F800001, 0x7F800001),  # a nan stays one
    ],
)
def test_rounding_to_hf32(bits: int, expected: int) -> None:
    value = torch.from_numpy(np.array([bits], np.uint32).view(np.float32))
    assert to_hf32(value).numpy().view(np.uint32)[0] == expected


def test_attention_gets_the_triangle_its_mode_expects() -> None:
    mask = tensor(dtype="torch.bool", shape=(4, 4), stats=(True, False, None, None))
    for mode, size in ((0, 4), (2, 2048), (3, 2048), (4, 2048), (5, 4)):
        kwargs = {"atten_mask": mask, "sparse_mode": scalar(mode)}
        made = built(tensor(), api="npu_fusion_attention", kind="NPU", kwargs=kwargs).kwargs["atten_mask"]
        assert made.dtype is torch.bool
        assert made.shape == (size, size)
        if size == 2048:
            assert torch.equal(made, torch.ones(size, size, dtype=torch.bool).triu(1))
    assert built(tensor(), api="npu_fusion_attention", kind="NPU", kwargs={"sparse_mode": scalar(2)}).kwargs == {
        "sparse_mode": 2
    }


@pytest.mark.parametrize("api", ["npu_apply_adam", "npu_apply_adam_w"])
def test_second_moment_of_adam_is_never_negative(api: str) -> None:
    kwargs = {"out": [tensor(), tensor(), tensor()]}
    first, second, third = built(api=api, kind="NPU", kwargs=kwargs).kwargs["out"]
    assert float(third.min()) == 0.0
    assert float(first.min()) == float(second.min()) == -1.0


def test_a_case_stays_as_it_is() -> None:
    case = case_of(tensor(shape=(400, 6)), _labels(-100, 5), api="cross_entropy")
    before = json.dumps([case.args, case.kwargs])
    build_inputs(case, wants_gradients=True)
    assert json.dumps([case.args, case.kwargs]) == before
