"""A case becomes its rows whatever the framework does; tested with a framework of paper."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.check.cases import CannotRun, Case
from opassay.pipeline.check.error_data import safe_name
from opassay.pipeline.check.framework import Sides
from opassay.pipeline.check.runner import judged, run_case
from opassay.pipeline.read.tensor_layout import TensorUnreadable
from opassay.schemas.check_rows import DetailRow, Status


def rows(name: str, direction: str, *statuses: Status, message: str = "") -> list[DetailRow]:
    """Rows of one direction."""
    return [
        DetailRow(f"{name}.{direction}.output.{place}", status=status, message=message)
        for place, status in enumerate(statuses)
    ]


class Paper:
    """A framework that does what the name of the call says."""

    name = "paper"

    def build(self, case: Case) -> list[str]:
        if case.api == "unread":
            try:
                raise TensorUnreadable("a.pt is no tensor file")
            except TensorUnreadable as error:
                raise CannotRun(f"argument 0: {error}") from None
        if case.api == "silent":
            raise RuntimeError
        return ["x", "y"]

    def call(self, case: Case, inputs: list[str]) -> Sides:
        if case.api == "refused":
            raise CannotRun("no such operator")
        return Sides("b", "d", (["g"], ["h"]) if case.has_backward else None, seconds=0.0)

    def compare(self, case: Case, sides: Sides) -> tuple[list[DetailRow], list[DetailRow]]:
        status = Status.ERROR if case.api == "wrong" else Status.PASS
        back = rows(case.name, "backward", Status.WARNING) if sides.grads else []
        return rows(case.name, "forward", status), back

    def leaves(self, case: Case, inputs: list[str], sides: Sides) -> Iterator[tuple[str, Any]]:
        for place, leaf in enumerate(inputs):
            yield f"forward.input.{place}", leaf
        yield "forward.output.bench.0", sides.bench
        yield "backward.input.0", "grad"

    def save(self, path: Path, tensor: str) -> Path:
        target = path.with_name(f"{path.name}.txt")
        target.write_text(tensor)
        return target


def case(api: str, **more: Any) -> Case:
    """A call of an operator."""
    return Case(f"Torch.{api}.0", "Torch", api, "0", **more)


def test_a_call_that_is_in_order() -> None:
    outcome = run_case(Paper(), case("add"))
    assert outcome.ran
    assert (outcome.result.forward, outcome.result.backward, outcome.result.message) == (Status.PASS, None, "")
    assert [row.name for row in outcome.result.details] == ["Torch.add.0.forward.output.0"]
    assert 0 <= outcome.overhead_s < 1


@pytest.mark.parametrize(
    ("told", "message", "unread"),
    [
        (case("refused"), "no such operator", False),
        (case("silent"), "RuntimeError: no message", False),
        (case("unread"), "argument 0: a.pt is no tensor file", True),
        (case("add", skip="API Torch.add.0 not support for run ut. SKIP."), "API Torch.add.0 not support for run ut. SKIP.", False),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_a_skip_with_its_reason(told: Case, message: str, unread: bool) -> None:
    outcome = run_case(Paper(), told)
    result = outcome.result
    assert (result.forward, result.backward, result.message) == (Status.SKIP, Status.SKIP, message)
    (row,) = result.details
    assert (row.name, row.status, row.message) == (f"{told.name}.forward.output.0", Status.SKIP, message)
    assert (outcome.ran, outcome.unread) == (False, unread)


def test_verdicts_of_a_direction() -> None:
    add = case("add")
    forward = rows(add.name, "forward", Status.PASS, Status.ERROR, Status.WARNING, Status.SKIP)
    result = judged(add, forward, rows(add.name, "backward", Status.SKIP, Status.PASS), "")
    assert (result.forward, result.backward, result.message) == (Status.ERROR, Status.PASS, "")
    nothing = rows(add.name, "forward", Status.SKIP, message="random output")
    assert judged(add, nothing, [], "").forward is Status.SKIP
    assert judged(add, nothing, [], "").message == "random output"


def test_a_backward_pass_that_was_not_run_keeps_the_forward_verdict() -> None:
    told = case("add", has_backward=True, kwargs={"out": None})
    result = judged(told, rows(told.name, "forward", Status.PASS), [], "")
    assert (result.forward, result.backward) == (Status.PASS, Status.SKIP)
    assert result.message.startswith("function with out=... arguments")
    assert result.details[-1].name == "Torch.add.0.backward.output.0"
    other = case("add", has_backward=True)
    assert judged(other, rows(other.name, "forward", Status.PASS), [], "no gradient").message == "no gradient"
    assert judged(other, rows(other.name, "forward", Status.PASS), [], "").backward is None


def test_error_data_is_kept_for_what_is_wrong_only(tmp_path: Path) -> None:
    run_case(Paper(), case("add"), tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    tensor = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
    told = case("wrong", args=[tensor], kwargs={"other": tensor}, gradient=[tensor], has_backward=True)
    outcome = run_case(Paper(), told, tmp_path / "kept")
    assert not outcome.note
    kept = sorted(path.name for path in (tmp_path / "kept").iterdir() if path.is_file())
    assert kept == [
        "Torch.wrong.0.backward.input.0.txt",
        "Torch.wrong.0.forward.input.0.txt",
        "Torch.wrong.0.forward.input.1.txt",  # a keyword argument does not write over the first
        "Torch.wrong.0.forward.output.bench.0.txt",
        "Torch.wrong.0.json",
    ]
    dump = json.loads((tmp_path / "kept" / "Torch.wrong.0.json").read_text())
    assert (dump["task"], dump["framework"]) == ("tensor", "paper")
    forward, backward = dump["data"]["Torch.wrong.0.forward"], dump["data"]["Torch.wrong.0.backward"]
    assert forward["input_args"][0]["data_name"] == "Torch.wrong.0.forward.input.0.txt"
    assert forward["input_kwargs"]["other"]["data_name"] == "Torch.wrong.0.forward.input.1.txt"
    assert backward["input"][0]["data_name"] == "Torch.wrong.0.backward.input.0.txt"
    linked = tmp_path / "kept" / "dump_tensor_data" / "Torch.wrong.0.forward.input.1.txt"
    assert linked.read_text() == "y"


def test_error_data_that_cannot_be_kept_costs_a_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    outcome = run_case(Paper(), case("wrong"), tmp_path / "file")
    assert outcome.ran
    assert outcome.note.startswith("Torch.wrong.0: its tensors cannot be saved in ")


def test_names_become_file_names() -> None:
    assert safe_name("Torch.add.0") == "Torch.add.0"
    odd = [safe_name(name) for name in ("a/b.0", "a_b.0", "a\nb.0", "x" * 300, "x" * 301)]
    assert len(set(odd)) == 5
    assert all("/" not in name and len(name) < 200 and name.isprintable() for name in odd)
