"""The tokenizer and the general reader give the same table, whatever the dump and the size of the slices."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opassay.pipeline.read.dump_json import read_dump

from tests.read.dump_cases import DATA, assert_same, document, documents, outcome, tensor, write

pytestmark = pytest.mark.slow

LAYOUTS = ({"indent": 1}, {"separators": (",", ":")}, {"indent": 3, "ensure_ascii": False})


@pytest.mark.parametrize("path", sorted(DATA.rglob("d*.json")), ids=lambda p: p.parent.name)
@pytest.mark.parametrize("slice_bytes", [1, 3000, 2 << 20])
def test_real_dumps(path: Path, slice_bytes: int) -> None:
    if slice_bytes == 1 and path.stat().st_size > 12_000:
        slice_bytes = 61
    assert_same(path, slice_bytes)


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=documents, layout=st.sampled_from(LAYOUTS), slice_bytes=st.sampled_from([1, 7, 100, 1 << 21]))
def test_any_dump(content: object, layout: dict[str, object], slice_bytes: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        assert_same(write(Path(folder), json.dumps(content, **layout)), slice_bytes)  # type: ignore[arg-type]


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(content=documents, place=st.floats(0, 1), junk=st.binary(max_size=3), drop=st.integers(0, 5))
def test_any_damage(content: object, place: float, junk: bytes, drop: int) -> None:
    text = json.dumps(content, indent=1).encode()
    at = int(place * len(text))
    with tempfile.TemporaryDirectory() as folder:
        assert_same(write(Path(folder), text[:at] + junk + text[at + drop :]), 64)


def test_a_record_larger_than_every_array(tmp_path: Path) -> None:
    data = {
        "A.forward": {"output": [None]},
        "B.forward": {"output": [None] * 40_000},
        "C.forward": {"output": [tensor()]},
    }
    path = write(tmp_path, document(data))
    assert_same(path, 1 << 16)
    assert read_dump(path, reader="tokenizer").rows.height == 40_002


def test_more_texts_than_a_table_holds(tmp_path: Path) -> None:
    data = {
        f"A.{k}.forward": {"input_args": [{"type": "int", "value": k * 7 + j} for j in range(4)]} for k in range(20_000)
    }
    assert_same(write(tmp_path, json.dumps(document(data))))


def test_numbers_are_those_of_python(tmp_path: Path) -> None:
    draw = np.random.default_rng(5)
    bits = draw.integers(0, 2**63, 60_000, dtype=np.uint64)
    wide = bits.view(np.float64)[np.isfinite(bits.view(np.float64))].tolist()
    narrow = draw.standard_normal(60_000).astype(np.float32).astype(float).tolist()
    texts = [repr(x) for x in (*wide, *narrow)]
    texts += [f"{x:.16e}" for x in wide[:20_000]] + [f"{x:.19E}" for x in wide[:5_000]]
    odd = [
        "1e400",
        "-1e-400",
        "4.9e-324",
        "2.2250738585072011e-308",
        "0.0e5",
        "-0.0",
        "9007199254740993.0",
        "1E+2",
        "0.3",
    ]
    half = [f"{m}.0" for m in draw.integers(2**53, 2**54, 5_000).tolist()] + [
        f"{m}e-3" for m in draw.integers(2**53, 2**60, 5_000).tolist()
    ]
    texts += odd + half
    texts += ["0.0"] * (-len(texts) % 4)
    leaves = [
        '{"type":"torch.Tensor","dtype":"f","shape":[],"Max":%s,"Min":%s,"Mean":%s,"Norm":%s}' % tuple(texts[k : k + 4])  # noqa: UP031
        for k in range(0, len(texts), 4)
    ]
    records = ",".join(f'"A.{k}.forward":{{"output":[{leaf}]}}' for k, leaf in enumerate(leaves))
    found = outcome(write(tmp_path, f'{{"task":"statistics","data":{{{records}}}}}'), "tokenizer")
    got = found["rows"].select("max", "min", "mean", "norm").to_numpy().reshape(-1)
    want = np.array([float(text) for text in texts])
    assert got.view(np.uint64).tolist() == want.view(np.uint64).tolist()
    assert found["problems"] == []


def test_auto_takes_the_tokenizer_for_large_files_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from opassay.pipeline.read import json_slices

    runs: list[int] = []
    original = json_slices.SliceReader.run

    def counted(self: json_slices.SliceReader, offset: int, *, first: bool) -> json_slices.Stop:
        runs.append(offset)
        return original(self, offset, first=first)

    monkeypatch.setattr(json_slices.SliceReader, "run", counted)
    data = {f"A.{k}.forward": {"output": [tensor()]} for k in range(4)}
    read_dump(write(tmp_path, document(data)))
    assert runs == []
    read_dump(write(tmp_path, json.dumps(document(data, note=" " * (9 << 20)))))
    assert len(runs) == 1
