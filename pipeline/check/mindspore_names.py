"""MindSpore's calls and torch's: which are checked, what computes the reference, and which arguments have another name or place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from opassay.kernels.fused import FUSED
from opassay.kernels.precision.tables import RANDOM_APIS
from opassay.pipeline.check.cases import CannotRun, Case
from opassay.pipeline.check.dump_header import MINDTORCH
from opassay.pipeline.check.lookup import find_api

ATTENTION: Final = "flash_attention_score"

TENSOR_METHODS: Final = frozenset({
    "add_", "add", "addmm_", "all", "allclose", "any", "bool", "byte", "ceil", "clamp", "contiguous", "copy_", "cos",
    "clone", "cumprod", "expand_as", "flatten", "float", "half", "int", "is_contiguous", "isnan", "item", "log",
    "log2", "long", "masked_fill", "max", "mean", "min", "numel", "numpy", "repeat", "repeat_interleave", "reshape",
    "round", "select", "sin", "size", "split", "sqrt", "square", "sub", "swapaxes", "to", "t", "tolist", "topk",
    "transpose", "trunc", "type", "unsqueeze", "view", "view_as", "fill_", "floor_", "clamp_", "type_as", "zero_",
})  # fmt: skip
"""Methods of ``mindspore.Tensor`` that are checked."""

UNINITIALISED: Final = frozenset({"empty", "empty_like", "new_empty"})
"""Functions whose results mean nothing."""

NOT_COMPARED: Final = frozenset({"numpy", "tolist", "size"})
"""Those of them whose results are no tensors, and differ between the two libraries by design."""

_KINDS: Final = {"Mint": "Torch", "MintFunctional": "Functional"}

_ELSEWHERE: Final = {
    ("Mint", "addr_"): ("Tensor", "addr_"),
    ("MintFunctional", "flatten"): ("Torch", "flatten"),
    ("MintFunctional", "sigmoid_"): ("Torch", "sigmoid_"),
}
"""Where torch keeps a function that has another home there."""

_KEYWORDS: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("Mint", "arcsin"): {"x": "input"},
    ("Mint", "dot"): {"other": "tensor"},
    ("Mint", "isnan"): {"tensor": "input"},
    ("Mint", "triangular_solve"): {"b": "input"},
    ("MintFunctional", "one_hot"): {"tensor": "input"},
    ("Tensor", "max"): {"axis": "dim", "keepdims": "keepdim"},
    ("Tensor", "min"): {"axis": "dim", "keepdims": "keepdim"},
    ("Tensor", "mean"): {"axis": "dim", "keep_dims": "keepdim"},
    ("Tensor", "all"): {"axis": "dim", "keep_dims": "keepdim"},
    ("Tensor", "any"): {"axis": "dim", "keep_dims": "keepdim"},
    ("Tensor", "split"): {"split_size_or_sections": "split_size", "axis": "dim"},
    ("Tensor", "repeat_interleave"): {"axis": "dim"},
    ("Tensor", "masked_fill"): {"input_mask": "mask"},
}
"""MindSpore's keyword -> torch's, where they differ."""

_LOSS: Final = ("input", "target", "weight", "reduction")
_PLACES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("MintFunctional", "binary_cross_entropy"): _LOSS,
    ("MintFunctional", "binary_cross_entropy_with_logits"): (*_LOSS, "pos_weight"),
    ("MintFunctional", "cosine_embedding_loss"): ("input1", "input2", "target", "margin", "reduction"),
    ("MintFunctional", "cross_entropy"): (*_LOSS[:3], "ignore_index", "reduction", "label_smoothing"),
    ("MintFunctional", "kl_div"): ("input", "target", "reduction", "log_target"),
    ("MintFunctional", "log_softmax"): ("input", "dim", "dtype"),
    ("MintFunctional", "mse_loss"): ("input", "target", "reduction"),
    ("MintFunctional", "nll_loss"): (*_LOSS[:3], "ignore_index", "reduction"),
    ("MintFunctional", "soft_margin_loss"): ("input", "target", "reduction"),
    ("MintFunctional", "softmax"): ("input", "dim", "dtype"),
    ("Mint", "cumprod"): ("input", "dim", "dtype"),
    ("Mint", "cumsum"): ("input", "dim", "dtype"),
    ("Mint", "std"): ("input", "dim", "correction", "keepdim"),
    ("Mint", "std_mean"): ("input", "dim", "correction", "keepdim"),
    ("Mint", "var"): ("input", "dim", "correction", "keepdim"),
    ("Mint", "var_mean"): ("input", "dim", "correction", "keepdim"),
    ("Tensor", "cumprod"): ("self", "dim", "dtype"),
}
"""MindSpore's order of arguments, where torch has others between them or takes some by keyword only."""

_BY_PLACE: Final = 2  # arguments that both libraries take by place under every name of the table

_ATTENTION_PLACES: Final = (
    "query", "key", "value", "head_num", "pse", "drop_mask", "padding_mask", "atten_mask", "prefix", "actual_seq_qlen",
    "actual_seq_kvlen", "keep_prob", "scale", "pre_tockens", "next_tockens", "inner_precise", "input_layout", "sparse_mode",
)  # fmt: skip
_ATTENTION_KEYWORDS: Final = {
    "real_shift": "pse", "attn_mask": "atten_mask", "scalar_value": "scale", "pre_tokens": "pre_tockens",
    "next_tokens": "next_tockens",
}  # fmt: skip
_KEEPS_FIRST: Final = frozenset({"max", "min"})

Reference = Callable[..., Any]


def unsupported(case: Case) -> str:
    """Why a call is not checked; "" where it is."""
    if case.api in RANDOM_APIS:
        return f"{case.api} draws random numbers: two runs never agree"
    if case.api in UNINITIALISED:
        return f"the result of {case.api} holds nothing that could be compared"
    if case.framework == MINDTORCH:
        return ""
    if case.kind == "Functional" and case.api != ATTENTION:
        return f"of mindspore.ops only {ATTENTION} is supported by the pre-check"
    if case.kind == "Tensor" and case.api not in TENSOR_METHODS:
        return f"Tensor.{case.api} is not supported by the pre-check"
    if case.kind == "Tensor" and case.api in NOT_COMPARED:
        return f"the result of Tensor.{case.api} is no tensor and is not compared"
    return ""


def reference_of(case: Case) -> Reference:
    """The torch function that computes the reference; it takes the arguments as the dump has them.

    Raises
    ------
    CannotRun
        If torch has none.
    """
    key = case.kind, case.api
    if case.framework == MINDTORCH:
        return find_api(case.kind, case.api, "cpu")
    if key == ("Functional", ATTENTION):
        return _attention
    kind, api = _ELSEWHERE.get(key, (_KINDS.get(case.kind, case.kind), case.api))
    found = find_api(kind, api, "cpu")
    keywords, places = _KEYWORDS.get(key), _PLACES.get(key)
    if keywords is None and places is None:
        return found

    def call(*args: Any, **kwargs: Any) -> Any:
        if places is not None:
            if len(args) > len(places):
                raise CannotRun(f"{case.api} takes {len(places)} arguments and the dump has {len(args)}")
            kwargs = dict(zip(places[_BY_PLACE:], args[_BY_PLACE:], strict=False)) | kwargs
            args = args[:_BY_PLACE]
        renamed = {(keywords or {}).get(name, name): value for name, value in kwargs.items()}
        result = found(*args, **renamed)
        # MindSpore's older form, with axis, gives the values alone
        is_pair = "axis" in kwargs and case.api in _KEEPS_FIRST and isinstance(result, tuple)
        return result[0] if is_pair else result

    return call


def _attention(*args: Any, **kwargs: Any) -> Any:
    """``mindspore.ops.flash_attention_score`` by the reference of its twin, with its names and places of arguments."""
    if len(args) > len(_ATTENTION_PLACES):
        raise CannotRun(f"{ATTENTION} takes {len(_ATTENTION_PLACES)} arguments and the dump has {len(args)}")
    named = dict(zip(_ATTENTION_PLACES, args, strict=False))
    named |= {_ATTENTION_KEYWORDS.get(name, name): value for name, value in kwargs.items()}
    named.setdefault("input_layout", "BSH")
    if named.pop("drop_mask", None) is not None or named.get("keep_prob", 1.0) < 1.0:
        raise CannotRun("dropout inside the operator cannot be repeated by the reference")
    return FUSED["npu_fusion_attention"].call(**named)[0]
