"""The file of -config: what is taken, and one line with every problem."""

from __future__ import annotations

from pathlib import Path

import pytest
from opassay.pipeline.merge.config import MergeConfig, read_config
from opassay.schemas.errors import UsageError


def read(folder: Path, text: str | bytes) -> MergeConfig:
    """The config that a text is."""
    path = folder / "config.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_config(path)


@pytest.mark.parametrize(
    ("text", "entries", "metrics"),
    [
        ("api:\n- a.b\ncompare_index:\n- Max diff\n", ("a.b",), ("Max diff",)),
        ("api: [a, 'b', a]\ncompare_index:\n", ("a", "b"), ()),
        ("api:\n- a.b.\n- 1.10\n- yes\ncompare_index: []", ("a.b", "1.10", "yes"), ()),
        ("compare_index: null\napi:\n  - ' a '\n", ("a",), ()),
        (b"\xef\xbb\xbfapi: [a]", ("a",), ()),
    ],
)
def test_lists_are_taken_as_they_are_written(
    tmp_path: Path, text: str | bytes, entries: tuple[str, ...], metrics: tuple[str, ...]
) -> None:
    config = read(tmp_path, text)
    assert (config.entries, config.metrics, config.notes) == (entries, metrics, ())


def test_keys_without_an_effect_are_told(tmp_path: Path) -> None:
    config = read(tmp_path, "api: [a]\nindex: {x: [y]}\n")
    assert config.entries == ("a",)
    assert len(config.notes) == 1
    assert "line 2: key 'index' has no effect" in config.notes[0]


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["the file is empty"]),
        ("# nothing\n", ["there is no key 'api'"]),
        ("api:\n", ["line 1: nothing stands where the list of 'api' was expected"]),
        ("api: []\n", ["line 1: the list is empty"]),
        ("api: a.b\n", ["line 1: a single text stands where the list of 'api' was expected"]),
        ("api: {a: b}\n", ["line 1: an object stands where the list of 'api' was expected"]),
        ("- a\n", ["line 1: a list stands where 'api:' was expected"]),
        ("api\n", ["line 1: a single text stands where 'api:' was expected"]),
        ("api:\n- a\n- \n- [b]\n- ''\n", ["line 3: nothing stands", "line 4: a list stands", "line 5: an empty text stands"]),
        ("api: [a]\ncompare_index: Max diff\n", ["line 2: a single text", "'compare_index'"]),
        ("api: [a]\napi: [b]\n", ["line 2: key 'api' is given twice, first on line 1"]),
        ("api: [a]\n---\napi: [b]\n", ["line 2: a second document begins"]),
        ("api: [*x]\n", ["line 1: the alias *x"]),
        ("api: [!!int 1]\n", ["a value with the tag"]),
        ("api: [a\n", ["the file stops being YAML"]),
        ("api: [a, \x01]\n", ["'\\x01' is not allowed"]),
        ("[[" * 200, ["nest too deep"]),
        (b"api: [\xff]\n", ["not UTF-8"]),
        ("api: [a]".encode("utf-16"), ["UTF-16"]),
    ],
)  # fmt: skip
def test_every_problem_is_in_one_line(tmp_path: Path, text: str | bytes, problems: list[str]) -> None:
    with pytest.raises(UsageError) as told:
        read(tmp_path, text)
    message = str(told.value)
    assert "\n" not in message
    assert "config.yaml" in message
    for problem in problems:
        assert problem in message


def test_many_problems_are_counted(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"100 problems.*; and 80 more\. Write 'api:'"):
        read(tmp_path, "api:\n" + "- []\n" * 100)


def test_a_file_that_is_not_there_and_one_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.yaml does not exist; check -config"):
        read_config(tmp_path / "nowhere.yaml")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UsageError, match=r"config\.json is no \.yaml"):
        read_config(tmp_path / "config.json")
