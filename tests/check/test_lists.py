"""config.yaml, config.json: what they may hold, and what every mistake is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from opassay.pipeline.check.lists import ALWAYS_SKIPPED, Settings, read_settings
from opassay.schemas.errors import UsageError

CASES = Path(__file__).parents[1] / "data" / "checker"


def _config(folder: Path, document: Any) -> Path:
    path = folder / "config.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def _package(folder: Path, text: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(text)
    return path


def test_the_package_runs_everything() -> None:
    settings = read_settings()
    assert settings == Settings(frozenset(), frozenset(), Path("./"), 14)
    assert settings.refuses("conv2d") == ""
    assert {api for api in ALWAYS_SKIPPED if settings.refuses(api)} == ALWAYS_SKIPPED


def test_white_minus_black() -> None:
    settings = read_settings(CASES / "pt_handmade" / "input" / "config.json")
    assert settings.refuses("conv2d") == settings.refuses("npu_swiglu") == ""
    assert settings.refuses("tanh") == "API tanh in black list or not in white list. SKIP."  # stands in both
    assert settings.refuses("linalg.inv") == "API linalg.inv in black list or not in white list. SKIP."


@pytest.mark.parametrize("section", ["run_ut", "acc_check"])
def test_sections_of_both_releases(tmp_path: Path, section: str) -> None:
    settings = read_settings(_config(tmp_path, {"task": "x", section: {"black_list": ["linalg.inv"]}}))
    assert settings.black == {"linalg.inv"}
    assert settings.white == frozenset()


def test_config_takes_the_place_of_the_package_but_for_the_precision(tmp_path: Path) -> None:
    (tmp_path / "errors").mkdir()
    package = _package(tmp_path, f"black_list: [exp]\nerror_data_path: {tmp_path / 'errors'}\nprecision: 3\n")
    own = read_settings(package=package)
    assert (own.black, own.error_data_path, own.precision) == ({"exp"}, tmp_path / "errors", 3)
    over = read_settings(_config(tmp_path, {}), package=package)
    assert (over.black, over.error_data_path, over.precision) == (frozenset(), Path("./"), 3)


def test_names_that_are_known(tmp_path: Path) -> None:
    names = [
        "conv2d",
        "__add__",
        "linalg.inv",
        "fft.rfft",
        "inv",
        "zeros",
        "npu_rms_norm",
        "fast_gelu",
        "_softmax",
        "lstm",
        "to",
    ]
    assert read_settings(_config(tmp_path, {"run_ut": {"white_list": names}})).white == set(names)


def test_every_unknown_name_is_told(tmp_path: Path) -> None:
    document = {"run_ut": {"white_list": ["conv2d", "conv22d", "Torch.add.0"], "black_list": ["qqqq"]}}
    with pytest.raises(UsageError) as caught:
        read_settings(_config(tmp_path, document))
    text = str(caught.value)
    assert "Invalid api in white_list: [conv22d (do you mean conv2d?), Torch.add.0 (do you mean add?)]" in text
    assert "Invalid api in black_list: [qqqq]" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"run_ut": {"white_list": "conv2d"}}, "white_list is not a list of names"),
        ({"run_ut": {"black_list": [1]}}, "black_list is not a list of names"),
        ({"run_ut": {"error_data_path": 3}}, "must be the path of a folder"),
        ({"run_ut": {"error_data_path": "/no/such/folder"}}, "/no/such/folder is no existing folder"),
        ({"run_ut": []}, "the section 'run_ut' is not an object"),
        ([1], "not a JSON object"),
        ("{'a': 1}", "is no JSON: line 1, column 2"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_mistakes_in_config_json(tmp_path: Path, document: Any, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings(_config(tmp_path, document))
    assert told in str(caught.value)
    assert str(tmp_path / "config.json") in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("colour: red\n", "unknown keys colour"),
        ("precision: 21\n", "precision is 21"),
        ("precision: true\n", "precision is True"),
        ("precision: 1.5\nblack_list: 3\n", "black_list is not a list"),
        ("- a\n", "no mapping"),
        ("a: [\n", "is no YAML: line 2"),
        ("error_data_path: /no/such\n", "/no/such is no existing folder"),
    ],
)
def test_mistakes_in_config_yaml(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_settings(package=_package(tmp_path, text))
    assert told in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_settings(tmp_path / "absent.json")
    with pytest.raises(UsageError, match="cannot be read"):
        read_settings(tmp_path)
    path = tmp_path / "latin.json"
    path.write_bytes(b'{"run_ut": "\xe9"}')
    with pytest.raises(UsageError, match="not UTF-8 at byte 12"):
        read_settings(path)
    path.write_text("{}", encoding="utf-16")
    with pytest.raises(UsageError, match="UTF-16"):
        read_settings(path)
    path.write_text("\ufeff{}", encoding="utf-8")
    assert read_settings(path).white == frozenset()


@pytest.mark.parametrize("api", ["data_ptr", "new", "empty_permuted", "empty.memory_format"])
def test_addresses_and_what_the_memory_held_are_never_compared(api: str) -> None:
    assert read_settings().refuses(api)


def test_keys_that_are_not_read_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    read_settings(_config(tmp_path, {"black_list": ["exp"], "run_ut": {"whitelist": ["exp"], "white_list": []}}))
    first, second = caplog.messages
    assert first.endswith("black_list stand outside of the section 'run_ut'; not read")
    assert "whitelist are no keys of the section 'run_ut'; there are white_list, black_list" in second
    caplog.clear()
    read_settings(_config(tmp_path, {"task": "x", "rank": [], "run_ut": {"white_list": ["exp"]}}))
    assert not caplog.messages
