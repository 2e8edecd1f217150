"""The float64 references that were written from the operators' documents, where they lie beside the repository."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from opassay.kernels.fused import FUSED
from opassay.kernels.fused.attention_mask import compressed_mask

CASES = Path(__file__).parents[3].parent / "shared" / "cases_checker" / "fused_ops" / "fused.pt"

pytestmark = pytest.mark.skipif(not CASES.is_file(), reason="needs ../shared/cases_checker")


def raised(value: Any) -> Any:
    """In float64; the word for the compressed mask becomes the mask."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(raised(item) for item in value)
    return compressed_mask(2) if value == "TRI2048" else value


def listed(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [item for item in value if item is not None]


def test_every_case_agrees_to_the_last_digits() -> None:
    cases = torch.load(CASES, weights_only=False)
    assert len(cases) == 95
    for number, case in cases.items() if isinstance(cases, dict) else enumerate(cases):
        op = FUSED[case["op"]]
        args, kwargs = raised(case["args"]), {key: raised(value) for key, value in case["kwargs"].items()}
        pairs = list(zip(listed(op.call(*args, **kwargs)), listed(case["reference"]), strict=True))
        if "grad_output" in case:
            assert op.backward is not None
            found = op.backward(raised(case["grad_output"]), *args, **kwargs)
            pairs += zip(listed(found), case["reference_grads"], strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(
                ours, theirs, rtol=1e-12, atol=1e-13, msg=lambda text, n=number, o=op: f"case {n}, {o.name}: {text}"
            )
