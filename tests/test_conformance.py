"""Vectors of the specification through the whole pipeline: a dump is written, compared, and the cells are looked at."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import opassay
import polars as pl
import pytest
from numpy.typing import NDArray
from opassay.schemas.headers import TENSOR_METRICS

from benchmarks.pt_files import write_pt
from tests.dumps import call, tensor, tensor_call, write_dump

CASES = Path(__file__).with_name("conformance")


def vectors(name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads(CASES.joinpath(f"{name}.json").read_text(encoding="utf-8"))
    return cases


TENSORS, STATISTICS, SCALARS = vectors("tensors"), vectors("statistics"), vectors("scalars")
CHECKSUMS, RULES = vectors("checksums"), vectors("rules_statistics")


def whys(cases: list[dict[str, Any]]) -> list[str]:
    return [case["why"] for case in cases]


def array(case: dict[str, Any], side: str) -> tuple[NDArray[Any], str]:
    """One side of a tensor vector; bfloat16 as its bits."""
    dtype = case.get(f"{side}_dtype", case.get("dtype", "float32"))
    shape = case.get(f"{side}_shape", case.get("shape", [len(case[side])]))
    if dtype == "complex64":
        return np.array([complex(*pair) for pair in case[side]], np.complex64).reshape(shape), dtype
    if dtype == "bfloat16":
        bits = np.array(case[side], np.float32).view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16).reshape(shape), dtype
    if dtype in ("float16", "float32", "float64"):
        return np.array([float(value) for value in case[side]], dtype).reshape(shape), dtype
    return np.array(case[side], dtype).reshape(shape), dtype


def statistics_of(values: NDArray[Any], dtype: str) -> tuple[Any, Any, Any, Any]:
    """What the dump tool records of a tensor."""
    if not values.size:
        return None, None, None, None
    if dtype == "bool":
        return bool(values.any()), bool(values.all()), None, None
    if values.dtype.kind in "iu" and dtype != "bfloat16":
        return int(values.max()), int(values.min()), None, None
    if dtype == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    moduli = np.abs(values) if dtype == "complex64" else values
    wide = moduli.astype(np.float64)
    with np.errstate(all="ignore"):
        return float(wide.max()), float(wide.min()), float(wide.mean()), float(np.linalg.norm(wide.ravel()))


@pytest.fixture(scope="module")
def tensor_dumps(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Every tensor vector as the only output of an op of its own; npy and pt files take turns."""
    root = tmp_path_factory.mktemp("vectors")
    paths = []
    for side in ("target", "golden"):
        store = root / side / "dump_tensor_data"
        store.mkdir(parents=True)
        data = {}
        for number, case in enumerate(TENSORS):
            values, dtype = array(case, side)
            name = f"Torch.mul.{number}.forward.output.0"
            torch_file = dtype == "bfloat16" or (dtype in ("float32", "int64") and number % 2 == 0)
            file = f"{name}.{'pt' if torch_file else 'npy'}"
            if torch_file:
                write_pt(store / file, values, dtype, values.shape)
            else:
                np.save(store / file, values)
            leaf = tensor(
                dtype=f"torch.{dtype}", shape=values.shape, stats=statistics_of(values, dtype), data_name=file
            )
            data[f"Torch.mul.{number}.forward"] = call([], [leaf])
        paths.append(write_dump(root / side, data, task="tensor"))
    return paths[0], paths[1]


@pytest.fixture(scope="module", params=["map", "read"])
def tensor_rows(tensor_dumps: tuple[Path, Path], request: pytest.FixtureRequest) -> pl.DataFrame:
    return opassay.compare(*tensor_dumps, io=request.param).rows


def same(cell: str, wanted: float | str, near: float) -> bool:
    if isinstance(wanted, str):
        return cell == wanted
    return cell not in ("Nan", "inf", "-inf") and math.isclose(float(cell), wanted, rel_tol=near, abs_tol=0.0)


@pytest.mark.slow  # compiles a kernel for each pair of dtypes
@pytest.mark.parametrize("number", range(len(TENSORS)), ids=whys(TENSORS))
def test_tensor_vector(number: int, tensor_rows: pl.DataFrame) -> None:
    case, row = TENSORS[number], tensor_rows.row(number, named=True)
    assert row["target_name"] == row["golden_name"] == f"Torch.mul.{number}.forward.output.0"
    cells = [row[name] for name in TENSOR_METRICS]
    near = [1e-12] * len(cells)
    assert all(map(same, cells, case["metrics"], near)), cells
    assert row["result"] == case["result"], row["message"]
    assert case.get("says", "") in row["message"]


@pytest.mark.slow
def test_numbers_are_printed_so_that_they_read_back(tensor_rows: pl.DataFrame) -> None:
    for name in TENSOR_METRICS:
        for cell in tensor_rows[name]:
            if cell[0].isdigit() or cell[0] == "-":
                assert float(cell) == float(repr(float(cell)))
                assert len(cell) <= len(repr(float(cell))) + 4, cell  # the shortest text, however exponents are spelt


def number(value: Any) -> Any:
    return float(value.replace("Infinity", "inf")) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def statistic_rows(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """Every statistics vector as the max of an output, and every scalar vector as an argument."""
    root = tmp_path_factory.mktemp("statistics")
    paths = []
    for side in ("target", "golden"):
        data = {
            f"Torch.mul.{place}.forward": call([], [tensor(stats=(number(case[side]), -9.0, 0.0, 9.0))])
            for place, case in enumerate(STATISTICS)
        }
        data |= {f"Torch.add.{place}.forward": call([case[side]], []) for place, case in enumerate(SCALARS)}
        paths.append(write_dump(root / side, data))
    return opassay.compare(*paths).rows


@pytest.mark.parametrize("place", range(len(STATISTICS)), ids=whys(STATISTICS))
def test_statistics_vector(place: int, statistic_rows: pl.DataFrame) -> None:
    case = STATISTICS[place]
    row = statistic_rows.row(by_predicate=pl.col("op") == f"Torch.mul.{place}.forward", named=True)
    assert row["max_diff"] == case["diff"]
    if case["relative"].endswith("%"):
        assert row["max_relative"].endswith("%")
        assert float(row["max_relative"][:-1]) == pytest.approx(float(case["relative"][:-1]), rel=1e-4)
    else:
        assert row["max_relative"] == case["relative"]
    assert (row["min_diff"], row["norm_relative"]) == ("0", "0")


@pytest.mark.parametrize("place", range(len(SCALARS)), ids=whys(SCALARS))
def test_scalar_vector(place: int, statistic_rows: pl.DataFrame) -> None:
    case = SCALARS[place]
    row = statistic_rows.row(by_predicate=pl.col("op") == f"Torch.add.{place}.forward", named=True)
    for stat in ("max", "min", "mean", "norm"):
        assert row[f"target_{stat}"] == str(case["target"]["value"])
        assert (row[f"{stat}_diff"], row[f"{stat}_relative"]) == (case["diff"], case["relative"])
    assert row["result"] == case["result"], row["message"]


@pytest.fixture(scope="module")
def checksum_rows(tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    root = tmp_path_factory.mktemp("checksums")

    def leaf(value: dict[str, Any] | None) -> Any:
        return value if value is None or "type" in value else tensor(**value)

    paths = []
    for side in ("target", "golden"):
        data = {f"Torch.mul.{place}.forward": call([leaf(case[side])], []) for place, case in enumerate(CHECKSUMS)}
        paths.append(write_dump(root / side, data))
    report = opassay.compare(*paths)
    assert [rank.mode.value for rank in report.ranks] == ["md5"]
    return report.rows


@pytest.mark.parametrize("place", range(len(CHECKSUMS)), ids=whys(CHECKSUMS))
def test_checksum_vector(place: int, checksum_rows: pl.DataFrame) -> None:
    case, row = CHECKSUMS[place], checksum_rows.row(place, named=True)
    assert row["result"] == case["result"], row["message"]
    if "checksums" in case:
        assert [row["target_md5"], row["golden_md5"]] == case["checksums"]


# inputs and outputs as norms of target and golden -> Result of the output, and the words of the rules that fire
NORMS = [
    ("inputs equal, output 60 % off", (10.0, 10.0), (16.0, 10.0), "error", ("NormRelativeErr", "more than ten times")),
    ("inputs 4.8 % off, output 60 %", (10.48, 10.0), (16.0, 10.0), "error", ("NormRelativeErr", "more than ten times")),
    ("inputs 16.7 % off, output 60 %", (11.67, 10.0), (16.0, 10.0), "pass", ()),
    ("inputs equal, output 10.7 % off", (10.0, 10.0), (11.07, 10.0), "warning", ("more than ten times",)),
    ("inputs equal, output 4.8 % off", (10.0, 10.0), (10.48, 10.0), "pass", ()),
    ("inputs 23 % off, output 83 %", (12.3, 10.0), (18.3, 10.0), "pass", ()),
]


@pytest.mark.parametrize(("why", "inputs", "outputs", "result", "words"), NORMS, ids=[case[0] for case in NORMS])
def test_norm_rules(
    why: str, inputs: tuple[float, float], outputs: tuple[float, float], result: str, words: tuple[str, ...], tmp_path: Path
) -> None:  # fmt: skip
    paths = [
        write_dump(
            tmp_path / side,
            {
                "Torch.mul.0.forward": call(
                    [tensor(stats=(1, -1, 0, inputs[place]))], [tensor(stats=(1, -1, 0, outputs[place]))]
                )
            },
        )
        for place, side in enumerate(("target", "golden"))
    ]
    found = opassay.compare(*paths).rows.row(1, named=True)
    assert found["result"] == result, (why, found["message"])
    assert json.loads(found["message"]) == [] or words
    for word in words:
        assert word in found["message"]


def test_every_rule_vector_names_a_rule() -> None:
    from opassay.kernels.rules import RULES as TABLE

    names = {rule.name for rule in TABLE}
    assert {case["rule"] for case in RULES} <= names


def test_a_rule_about_sizes_says_nothing_of_nan(tmp_path: Path) -> None:
    """A nan on one side is told once, as what it is; no message holds it for a size."""
    op, base = "Torch.mul.0.forward", np.ones(4, np.float32)
    moved = base.copy()
    moved[1] = np.nan
    paths = [
        write_dump(tmp_path / side, {op: tensor_call(tmp_path / side, op, [base], [values])}, task="tensor")
        for side, values in (("target", moved), ("golden", base))
    ]
    told = json.loads(opassay.compare(*paths).rows["message"][1])
    assert [text.split(":")[0] for text in told] == ["error", "error", "note"]
    assert not [text for text in told if "largest error Nan" in text]
