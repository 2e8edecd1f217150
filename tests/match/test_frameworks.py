"""MindSpore against PyTorch: API names meet by the table, Cell is Module, and nothing meets that the table does not name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from opassay.kernels import api_names
from opassay.pipeline.match.pairing import Pairing, pair_dumps
from opassay.pipeline.match.preview import WAYS, preview
from opassay.schemas.options import BY_NAME, Matching
from opassay.schemas.vocab import MatchKind

from tests.match.tables import names_of, ops, table

Partners = dict[str, str | None]


def met(
    mindspore: Sequence[str], pytorch: Sequence[str], matching: Matching = BY_NAME, *, swapped: bool = False
) -> tuple[Partners, Pairing]:
    """Name of each MindSpore op -> the PyTorch op it meets."""
    sides = table(ops(*mindspore)), table(ops(*pytorch))
    sides[0].framework = "mindspore"
    found = pair_dumps(*(sides[::-1] if swapped else sides), matching)
    ours, theirs = ([name.removesuffix(".input.0") for name in names_of(side)] for side in sides)
    columns = ("golden_row", "target_row") if swapped else ("target_row", "golden_row")
    partners: Partners = {
        ours[mine]: None if other is None else theirs[other]
        for mine, other in found.rows.select(columns).rows()
        if mine is not None
    }
    return partners, found


@pytest.mark.parametrize(
    ("mindspore", "pytorch"),
    [
        ("Mint.add", "Torch.add"),
        ("Mint.linalg.inv", "Torch.linalg.inv"),
        ("MintFunctional.relu", "Functional.relu"),
        ("Primitive.relu.ReLU", "Functional.relu"),
        ("Primitive.ReLU", "Functional.relu"),
        ("Primitive.dense.Dense", "Functional.linear"),
        ("Primitive.net.block.matmul.MatMul", "Torch.matmul"),
        ("Functional.exp", "Torch.exp"),
        ("Mint.add", "Tensor.__add__"),
        ("Mint.concat", "Torch.cat"),
        ("Tensor.add", "Torch.add"),
        ("Mint.softmax", "Functional.softmax"),
        ("Tensor.reshape", "Tensor.reshape"),
        ("Distributed.all_reduce", "Distributed.all_reduce"),
        ("Distributed.all_to_all_single_with_output_shape", "Distributed.all_to_all_single"),
        ("Primitive.all_reduce.AllReduce", "Distributed.all_reduce"),
        ("Distributed.reduce_scatter_tensor", "Distributed._reduce_scatter_base"),
        ("Functional.transpose", "Torch.permute"),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("fuzzy", [False, True])
def test_one_api_under_two_names(mindspore: str, pytorch: str, swapped: bool, fuzzy: bool) -> None:
    calls = [f"{mindspore}.0.forward", f"{mindspore}.0.backward"]
    expected = [f"{pytorch}.0.forward", f"{pytorch}.0.backward"]
    partners, found = met(calls, expected, Matching(fuzzy=fuzzy), swapped=swapped)
    assert partners == dict(zip(calls, expected, strict=True))
    kind = MatchKind.EXACT if mindspore == pytorch else MatchKind.API_TABLE
    assert set(found.rows["match"]) == {int(kind)}
    assert any("2 ops pair by the table" in note for note in found.notes) == (mindspore != pytorch)


@pytest.mark.parametrize(
    ("mindspore", "pytorch"),
    [
        ("Mint.add", "Torch.sub"),
        ("Primitive.gather.Gather", "Functional.embedding"),  # arguments stand in another order
        ("Primitive.conv.Conv2D", "Functional.conv2d"),  # leaves the bias to BiasAdd
        ("Functional.gather", "Torch.gather"),  # takes rows, not elements
        ("Functional.transpose", "Torch.transpose"),  # takes all dimensions
        ("Mint.all_reduce", "Distributed.all_reduce"),
        ("Tensor.__radd__", "Tensor.__add__"),
        ("Tensor.__rsub__", "Torch.sub"),
        ("Tensor.add_", "Torch.add"),
        ("Distributed.sum", "Torch.sum"),
    ],
)
def test_what_the_table_does_not_name_meets_nothing(mindspore: str, pytorch: str) -> None:
    assert met([f"{mindspore}.0.forward"], [f"{pytorch}.0.forward"])[0] == {f"{mindspore}.0.forward": None}


def test_one_framework_on_both_sides_never_uses_the_table() -> None:
    for framework in ("pytorch", "mindspore", "mindtorch"):
        sides = table(ops("Mint.add.0.forward")), table(ops("Torch.add.0.forward"))
        sides[0].framework = sides[1].framework = framework
        assert pair_dumps(*sides).rows["golden_row"].to_list() == [None, 0]
    assert not api_names.frameworks_differ("mindtorch", "pytorch")  # MSAdapter has the names of PyTorch
    assert api_names.frameworks_differ("mindtorch", "mindspore")


def test_calls_meet_by_index_and_an_extra_call_stays_alone() -> None:
    partners, _ = met(
        ["Mint.add.0.forward", "Mint.add.1.forward", "Mint.add.2.forward"], ["Torch.add.1.forward", "Torch.add.0.forward"]
    )  # fmt: skip
    assert partners == {
        "Mint.add.0.forward": "Torch.add.0.forward",
        "Mint.add.1.forward": "Torch.add.1.forward",
        "Mint.add.2.forward": None,
    }


def test_several_apis_that_are_one_on_the_other_side_meet_in_order() -> None:
    """Each counts its own calls, so an index says nothing; a backward meets where its forward does."""
    partners, _ = met(
        ["Primitive.act.ReLU.0.forward", "MintFunctional.relu.0.forward", "MintFunctional.relu.0.backward"],
        ["Functional.relu.0.forward", "Functional.relu.1.forward", "Functional.relu.1.backward", "Functional.relu.0.backward"],
    )  # fmt: skip
    assert partners == {
        "Primitive.act.ReLU.0.forward": "Functional.relu.0.forward",
        "MintFunctional.relu.0.forward": "Functional.relu.1.forward",
        "MintFunctional.relu.0.backward": "Functional.relu.1.backward",
    }


def test_several_apis_with_an_extra_call_meet_only_by_alignment() -> None:
    mindspore = ["MintFunctional.relu.0.forward", "Mint.exp.0.forward", "Primitive.act.ReLU.0.forward"]
    pytorch = [
        "Functional.relu.0.forward",
        "Torch.exp.0.forward",
        "Functional.relu.1.forward",
        "Functional.relu.2.forward",
    ]
    assert met(mindspore, pytorch)[0] == dict(zip(mindspore, (None, "Torch.exp.0.forward", None), strict=True))
    aligned, found = met(mindspore, pytorch, Matching(fuzzy=True))
    assert aligned == dict(zip(mindspore, pytorch, strict=False))
    assert set(found.rows["match"].to_list()[:3]) == {int(MatchKind.API_TABLE)}


def test_an_equal_name_is_taken_before_the_table() -> None:
    partners, _ = met(["Mint.add.0.forward", "Tensor.add.0.forward"], ["Tensor.add.0.forward", "Torch.add.0.forward"])
    assert partners == {"Mint.add.0.forward": "Torch.add.0.forward", "Tensor.add.0.forward": "Tensor.add.0.forward"}


def test_cells_are_modules_where_a_cell_mapping_is_asked_for() -> None:
    cells = [
        "Cell.fc.Linear.forward.0",
        "Cell.fc.Linear.backward.0",
        "Cell.fc.Linear.parameters_grad.0",
        "Cell.out.Dense.forward.0",
    ]
    modules = [name.replace("Cell", "Module").replace("Dense", "Linear") for name in cells]
    alone, found = met(cells, modules)
    assert set(alone.values()) == {None}
    assert "-cm reads Cell as Module" in found.warnings[0]
    partners, found = met(cells, modules, Matching(cell_mapping={"Dense": "Linear"}))
    assert partners == dict(zip(cells, modules, strict=True))
    assert not found.warnings


@pytest.mark.parametrize("swapped", [False, True])
def test_the_dry_run_counts_them(swapped: bool) -> None:
    sides = table(ops("Mint.add.0.forward")), table(ops("Torch.add.0.forward"))
    sides[0].framework = "mindspore"
    assert preview(*(sides[::-1] if swapped else sides), BY_NAME).ways == {MatchKind.API_TABLE: 1}
    assert set(WAYS) == set(MatchKind) - {MatchKind.NONE}


def test_the_table_leads_to_names_that_pytorch_has() -> None:
    torch = pytest.importorskip("torch")
    homes = {"Torch": torch, "Functional": torch.nn.functional, "Distributed": torch.distributed}
    for name in api_names.PRIMITIVES.values():
        home, _, function = name.partition(".")
        assert hasattr(homes[home], function), name
    for shared in api_names.SPELLINGS.values():
        assert hasattr(torch, shared), shared
    for shared in api_names.COMMUNICATION.values():
        assert hasattr(torch.distributed, shared), shared
    bases = pl.DataFrame({"base": list(api_names.PRIMITIVES.values())})
    assert bases.select(api_names.torch_base(pl.col("base")))["base"].to_list() == bases["base"].to_list()


def test_the_page_documents_the_whole_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "mindspore.md").read_text(encoding="utf-8")
    for names in (api_names.PRIMITIVES, api_names.COMMUNICATION, {"Functional.transpose": "Torch.permute"}):
        for mindspore, pytorch in names.items():
            assert f"| `{mindspore}` | `{pytorch}` |" in page
    for other, shared in api_names.SPELLINGS.items():
        assert re.search(rf"\| `{shared}` \| [^|]*`{other}`", page), other
