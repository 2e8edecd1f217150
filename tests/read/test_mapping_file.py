"""Mapping files: names as written, lines kept, and one message that lists every problem of a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from opassay.pipeline.read import mapping_file
from opassay.pipeline.read.mapping_file import MappingFile, read_cell_mapping, read_data_mapping
from opassay.pipeline.watch.logs import LINE_LIMIT
from opassay.schemas.errors import UsageError

Reader = Callable[[Path], MappingFile]
BOTH = pytest.mark.parametrize("read", [read_data_mapping, read_cell_mapping])


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both builds of PyYAML, with and without libyaml."""
    if not hasattr(yaml, request.param):
        pytest.skip("PyYAML was built without libyaml")
    monkeypatch.setattr(mapping_file, "LOADER", getattr(yaml, request.param))
    return str(request.param)


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str | bytes], Path]:
    def file(content: str | bytes) -> Path:
        path = tmp_path / "m.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return file


def refusal(read: Reader, path: Path) -> str:
    with pytest.raises(UsageError) as error:
        read(path)
    text = str(error.value)
    assert "\n" not in text
    assert len(text) < LINE_LIMIT - 100
    assert str(path) in text
    return text


@BOTH
def test_entries_keep_order_and_lines(read: Reader, write: Any, loader: str) -> None:
    path = write(
        "# head\n"
        "NPU.npu_scale.0.forward.input.0: Torch.mul.0.forward.input.1\n\n"
        '"Module.a b.Linear.forward.0.output.0": Module.out.Linear.forward.0.output.0  # why\n'
        "Module.größe.Linear.forward.0: '模块'\n"
    )
    found = read(path)
    assert found.path == path
    assert list(found.entries.items()) == [
        ("NPU.npu_scale.0.forward.input.0", "Torch.mul.0.forward.input.1"),
        ("Module.a b.Linear.forward.0.output.0", "Module.out.Linear.forward.0.output.0"),
        ("Module.größe.Linear.forward.0", "模块"),
    ]
    assert list(found.lines.values()) == [2, 4, 5]
    assert list(found.lines) == list(found.entries)


@BOTH
def test_what_yaml_takes_for_numbers_or_truth_is_the_text_as_written(read: Reader, write: Any, loader: str) -> None:
    found = read(write("1: 2\nyes: no\n1.10: 0x1F\n2024-01-01: 1e3\n'null': '~'\n!!str 5: ! x\n"))
    assert found.entries == {
        "1": "2",
        "yes": "no",
        "1.10": "0x1F",
        "2024-01-01": "1e3",
        "null": "~",
        "5": "x",
    }


@BOTH
@pytest.mark.parametrize(
    "content",
    [b"\xef\xbb\xbfa: b\nc: d\n", b"a: b\r\nc: d\r\n", b"{a: b,\n c: d}", b"%YAML 1.1\n---\na: b\nc: d\n...\n"],
)
def test_byte_order_marks_line_ends_and_flow_style_are_read(read: Reader, write: Any, content: bytes) -> None:
    assert read(write(content)).entries == {"a": "b", "c": "d"}


@pytest.mark.parametrize("content", ["", "# nothing\n", "---\n", "{}\n", "~\n", "null"])
def test_a_file_without_entries_is_no_table_for_cells_and_an_error_for_data(
    write: Any, content: str, loader: str
) -> None:
    path = write(content)
    assert read_cell_mapping(path) == MappingFile(path, {}, {})
    assert "holds no entries" in refusal(read_data_mapping, path)


def test_an_empty_quoted_value_deletes_in_cells_only(write: Any) -> None:
    path = write("FusedLinear: Linear\nhead.FusedLinear: fc2.Linear\nTe: ''\n")
    assert read_cell_mapping(path).entries == {"FusedLinear": "Linear", "head.FusedLinear": "fc2.Linear", "Te": ""}
    assert "1 problem: line 3, key 'Te': the golden name is empty" in refusal(read_data_mapping, path)


def test_a_value_that_is_not_there_is_refused_and_cells_learn_how_to_delete(write: Any, loader: str) -> None:
    path = write("Te:\nb: c\n")
    said = "line 1, key 'Te': nothing stands where the golden name was expected"
    assert f"{said}; write '' to delete the text" in refusal(read_cell_mapping, path)
    assert f"{said}. Write" in refusal(read_data_mapping, path)


@BOTH
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: b\nc: d\na: e\n", "line 3, key 'a': given twice, first on line 1"),
        ("a: b\na: b\n", "line 2, key 'a': given twice, first on line 1"),
        ("a: [b]\n", "line 1, key 'a': a list stands where the golden name was expected"),
        ("x: y\na:\n  b: c\n", "key 'a': an object stands where the golden name was expected"),
        ("a: null\n", "line 1, key 'a': null (null; quote it if it is a name) stands"),
        ("a: ~\n", "null (~; quote it if it is a name)"),
        ("~: a\n", "line 1: null (~; quote it if it is a name) stands where the target name was expected"),
        ("?\n: a\n", "line 1: nothing stands where the target name was expected"),
        ("'': a\n", "line 1: the target name is empty"),
        ("? [a, b]\n: c\n", "line 1: a list stands where the target name was expected"),
        ("{a: b}: c\n", "line 1: an object stands where the target name was expected"),
        ("a: !!int 5\n", "line 1, key 'a': a value with the tag 'tag:yaml.org,2002:int'"),
        ("a: !!python/name:os.system x\n", "a value with the tag 'tag:yaml.org,2002:python/name:os.system'"),
        ("a: &x b\nc: *x\n", "line 2, key 'c': the alias *x (not followed; write the name out)"),
        ("a: &x b\n*x : c\n", "line 2: the alias *x (not followed; write the name out) stands where the target"),
        ("<<: {a: b}\nc: d\n", "line 1, key '<<': merge keys are not followed"),
        ("a: b\n---\nc: d\n", "line 2: a second document begins"),
        ("- a\n- b\n", "line 1: a list stands where the entries were expected"),
        ("a:b\n", "line 1: a single text stands where the entries were expected"),
        ("42\n", "line 1: a single text stands where the entries were expected"),
        ("a: [1\n", "line 2, column 1: the file stops being YAML while parsing a flow sequence that began on line 1"),
        ("a: b\nc: d: e\n", "line 2, column 5: the file stops being YAML: mapping values are not allowed"),
        ("a: b\nc:d\n", "the file stops being YAML while scanning a simple key that began on line 2"),
        ("*.Linear: b\n", "line 1, column 2: the file stops being YAML while scanning an alias"),
        ("a: 'b\n", "found unexpected end of stream"),
        ("a: b\nc: \x07\n", "line 2: the character U+0007 is not allowed in YAML"),
        ("a: b\nc: d\0\n", "line 2: the character U+0000 is not allowed in YAML"),
    ],
)
def test_each_problem_is_told_with_its_line_and_key(
    read: Reader, write: Any, content: str, said: str, loader: str
) -> None:
    text = refusal(read, write(content))
    assert said in text
    assert "1 problem: " in text
    assert text.endswith(
        "Write one 'target name: golden name' a line, with a blank behind the colon, names with other "
        "signs in quotes, each target once"
    )


@BOTH
def test_one_message_lists_all_problems_up_to_where_reading_ends(read: Reader, write: Any, loader: str) -> None:
    text = refusal(read, write("a: [b, {c: d}]\ne: f\ne: {}\n'': x\ng: h: i\nj: []\n"))
    assert "5 problems: " in text
    places = [text.index(said) for said in ("line 1, key 'a': a list", "line 3, key 'e': given twice, first on line 2")]
    places += [text.index(said) for said in ("line 3, key 'e': an object", "line 4: the target name is empty")]
    places.append(text.index("line 5, column"))
    assert places == sorted(places)
    assert "key 'j'" not in text


@BOTH
def test_many_problems_are_cut_and_counted(read: Reader, write: Any) -> None:
    text = refusal(read, write("".join(f"k{number}: []\n" for number in range(1000))))
    assert "1,000 problems: " in text
    assert text.count("a list stands") == 20
    assert "; and 980 more. " in text


@BOTH
def test_long_names_keep_the_message_short(read: Reader, write: Any) -> None:
    long = "\u0378" * 90_000  # no such letter: told by its number
    text = refusal(read, write("".join(f"? {long}{number}\n: []\n" for number in range(20))))
    assert "20 problems: " in text
    assert "; and " in text  # ``refusal`` holds the length


@BOTH
def test_paths_that_hold_no_file_are_told_apart(read: Reader, tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "m.json").write_text("a: b")
    (tmp_path / "m.yaml").write_text("a: b")
    os.mkfifo(tmp_path / "pipe.yaml")
    option = "-dm" if read is read_data_mapping else "-cm"
    for name, said in [
        ("none.yaml", f"does not exist; check {option}"),
        ("m.yaml/x.yaml", "does not exist"),
        ("folder.yaml", f"is a folder; give {option} the .yaml or .yml file in it"),
        ("m.json", "is no .yaml or .yml file"),
        ("pipe.yaml", "cannot be read (it is a pipe"),
    ]:
        assert said in refusal(read, tmp_path / name)


@BOTH
@pytest.mark.parametrize("name", ["m.yml", "M.YAML", "a.b.Yml"])
def test_either_ending_in_any_case_is_fine(read: Reader, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a: b")
    assert read(tmp_path / name).entries == {"a": "b"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_is_one_line(write: Any) -> None:
    path = write("a: b")
    path.chmod(0)
    assert "cannot be read (Permission denied)" in refusal(read_cell_mapping, path)


@BOTH
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("a: b\n".encode("utf-16"), "is written in UTF-16; save it as UTF-8"),
        (b"a: b\nc: \xff\n", "is not UTF-8 (line 2, byte 8)"),
    ],
)
def test_other_encodings_are_named(read: Reader, write: Any, content: bytes, said: str) -> None:
    assert said in refusal(read, write(content))


def test_a_huge_file_is_refused_before_it_is_parsed(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping_file, "_LARGEST", 2 << 20)
    assert "is larger than 2 MiB" in refusal(read_data_mapping, write(b"a: b\n" + b"#" * (2 << 20)))
    assert read_data_mapping(write(b"a: b\n" + b"#" * ((2 << 20) - 5))).entries == {"a": "b"}


@pytest.mark.parametrize("content", ["a: " + "[" * 100_000, "a: " + "{" * 100_000, "? " * 5_000])
def test_deep_nesting_ends_reading(write: Any, content: str, loader: str) -> None:
    text = refusal(read_cell_mapping, write(content))
    assert "more than 100 levels" in text or "maximum nesting depth" in text


def test_aliases_upon_aliases_are_never_expanded(write: Any) -> None:
    bomb = "a: &a [x, x]\n" + "".join(
        f"{name}: &{name} [*{last}, *{last}]\n" for last, name in zip("abcdefghij", "bcdefghijk", strict=True)
    )
    assert "11 problems: " in refusal(read_cell_mapping, write(bomb))


@given(
    st.dictionaries(
        st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8"), min_size=1)
    )
)
def test_what_a_yaml_writer_wrote_is_read_back(tmp_path_factory: pytest.TempPathFactory, entries: Any) -> None:
    path = tmp_path_factory.mktemp("written") / "m.yaml"
    path.write_text(yaml.safe_dump(entries, sort_keys=False), encoding="utf-8")
    found = read_cell_mapping(path)
    assert list(found.entries.items()) == list(entries.items())
    assert list(found.lines) == list(entries)
