"""-f: which calls repeat an earlier one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.check.cases import read_cases
from opassay.pipeline.check.filter import keep_first

from tests.dumps import call, scalar, tensor, write_dump

CASES = Path(__file__).parents[1] / "data" / "checker"


def _kept(folder: Path, records: list[Any]) -> list[int]:
    data = {f"Torch.cat.{number}.forward": record for number, record in enumerate(records)}
    return keep_first(read_cases(write_dump(folder, data))).places


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (call([tensor()], []), call([tensor(stats=(5.0, 2.0, 3.0, 9.0))], [])),
        (call([[tensor()]], []), call([[tensor(stats=(5.0, 2.0, 3.0, 9.0))]], [])),
        (call([], [], x=tensor()), call([], [], x=tensor(md5="ab", data_name="b.pt"))),
        (call([tensor(Max_except_inf_nan=1.0)], []), call([tensor()], [])),
        (call([tensor()], [tensor()]), call([tensor()], [tensor(shape=(9,))])),
        (call([], [], a=scalar(1), b=scalar(2)), call([], [], b=scalar(2), a=scalar(1))),
    ],
)
def test_values_of_tensors_do_not_matter(tmp_path: Path, first: Any, second: Any) -> None:
    assert _kept(tmp_path, [first, second]) == [0]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (call([tensor()], []), call([tensor(shape=(3, 2))], [])),
        (call([[tensor()]], []), call([[tensor(), tensor()]], [])),
        (call([tensor()], []), call([tensor(dtype="torch.float16")], [])),
        (call([tensor()], []), call([tensor(requires_grad=True)], [])),
        (call([tensor(), scalar(1)], []), call([tensor(), scalar(2)], [])),
        (call([tensor(), scalar(1)], []), call([tensor(), scalar(1.0)], [])),
        (call([tensor()], [], dim=scalar(1)), call([tensor()], [], dim=scalar(2))),
        (call([{"Max": scalar(1)}], []), call([{"Max": scalar(2)}], [])),
        (call([tensor()], []), call([[tensor()]], [])),
    ],
)
def test_everything_else_matters(tmp_path: Path, first: Any, second: Any) -> None:
    assert _kept(tmp_path, [first, second]) == [0, 1]


def test_name_kind_and_backward_matter(tmp_path: Path) -> None:
    record = call([tensor()], [])
    data = {
        "Torch.exp.0.forward": record,
        "Torch.sin.0.forward": record,
        "Tensor.exp.0.forward": record,
        "Torch.exp.1.forward": record,
        "Torch.exp.1.backward": {"input": [tensor()]},
        "Torch.exp.2.forward": record,
        "Torch.exp.3.forward": record,
        "Torch.a.b.c.0.forward": record,
        "Torch.a.b.c.1.forward": record,
    }
    cases = read_cases(write_dump(tmp_path, data))
    filtered = keep_first(cases)
    assert [cases.names[place] for place in filtered.places] == [
        "Torch.exp.0", "Torch.sin.0", "Tensor.exp.0", "Torch.exp.1", "Torch.a.b.c.0", "Torch.a.b.c.1",
    ]  # fmt: skip
    assert filtered.merged == {"Torch.exp.0": 2}


def test_calls_of_the_hand_made_dump() -> None:
    cases = read_cases(CASES / "pt_handmade" / "input" / "dump.json")
    filtered = keep_first(cases)
    kept = [cases.names[place] for place in filtered.places]
    assert [name for name in kept if "tanh" in name] == ["Torch.tanh.0", "Torch.tanh.3"]  # 3 has another shape
    assert filtered.merged == {"Torch.mul.6": 1, "Torch.mul.9": 1, "Torch.add.0": 1, "Torch.tanh.0": 4}
    assert len(kept) + sum(filtered.merged.values()) == len(cases)
