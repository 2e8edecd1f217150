"""What the documents say is so: examples run, tables are those of the code, links lead somewhere."""

from __future__ import annotations

import doctest
import re
import shutil
from pathlib import Path

import pytest
from opassay.pipeline.cli import options_table
from opassay.pipeline.cli.explain import markdown
from opassay.pipeline.cli.main import build_parser, main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOP = [ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
PAGES = [
    *TOP,
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name / "README.md" for name in ("examples", "benchmarks")),
]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def beside_the_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a copy of the examples, as the documents assume."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("number", range(len(PYTHON)))
def test_every_python_block_of_the_readme_runs(number: int, beside_the_examples: Path) -> None:
    exec(compile(PYTHON[number], f"README.md, block {number + 1}", "exec"), {})  # our own page


def test_the_readme_has_a_python_example() -> None:
    assert PYTHON
    assert any("opassay.compare(" in block for block in PYTHON)


def test_every_command_line_of_the_documents_is_understood() -> None:
    """Options of the shown command lines parse; their paths need not exist."""
    shown = [line.split("#")[0] for block in SHELL for line in block.splitlines()]
    shown += [
        line for page in PAGES for line in re.findall(r"`((?:opassay|msprobe) [a-z][^`\n]*)`", page.read_text("utf-8"))
    ]
    lines = [
        line.split() for line in shown if line.startswith(("opassay compare", "msprobe compare", "opassay explain"))
    ]
    lines = [words for words in lines if words[2:] and "…" not in words and "NAME" not in words]
    assert len(lines) >= 5
    for words in lines:
        build_parser().parse_args(words[1:])


def test_the_first_command_of_the_readme_does_what_it_says(
    beside_the_examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = [
        line for block in SHELL for line in block.splitlines() if line.startswith("msprobe compare -tp examples")
    ]
    assert main(line.split()[1:]) == 0
    assert capsys.readouterr().out.count("msprobe compare ends successfully.") == 2
    assert len(list((beside_the_examples / "output" / "demo").glob("compare_result_rank*_*.csv"))) == 2


@pytest.mark.slow
def test_the_merge_and_the_collectives_of_the_readme_run(
    beside_the_examples: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (block,) = [block for block in SHELL if "opassay merge_result" in block]
    for line in block.splitlines():
        assert main(line.partition("#")[0].split()[1:]) == 0, line
    assert len(list((beside_the_examples / "output" / "merged").glob("*.xlsx"))) == 1
    assert "WARNING" not in capsys.readouterr().err


def test_the_arguments_that_the_page_on_matching_names_are_the_librarys() -> None:
    import inspect

    import opassay

    page = (ROOT / "docs" / "matching.md").read_text("utf-8")
    table = page[page.index("| option | argument |") :].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+)(?:=[^`]*)?`", "".join(line.split("|")[2] for line in table.splitlines()[2:])))
    assert {"fuzzy", "shards", "target"} <= named <= set(inspect.signature(opassay.compare).parameters)


def test_the_table_of_options_is_the_codes() -> None:
    assert options_table.markdown(options_table.COMPARE) in README


def test_the_table_of_rules_is_the_codes(capsys: pytest.CaptureFixture[str]) -> None:
    page = (ROOT / "docs" / "rules.md").read_text(encoding="utf-8")
    assert page == markdown(), "run: opassay explain --markdown > docs/rules.md"
    assert main(["explain", "--markdown"]) == 0
    assert capsys.readouterr().out == page


def test_rules_named_in_the_documents_exist() -> None:
    from opassay.kernels.rules import RULES

    named = set(re.findall(r"opassay explain ([a-z][a-z-]*[a-z])", "".join(page.read_text("utf-8") for page in PAGES)))
    assert named
    assert named <= {rule.name for rule in RULES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        if "://" not in link:
            assert (page.parent / link).exists(), f"{page.name} links to {link}"


@pytest.mark.parametrize("page", TOP, ids=lambda page: page.name)
def test_files_named_in_the_documents_exist(page: Path) -> None:
    rooms = ("schemas", "kernels", "pipeline", "tests", "docs", "examples", "benchmarks")
    for name in re.findall(rf"`((?:{'|'.join(rooms)})/[\w/.*-]+)`", page.read_text("utf-8")):
        places = [ROOT / name, ROOT / f"{name}.py"]
        assert any(place.exists() for place in places) or list(ROOT.glob(name)) or list(ROOT.glob(f"{name}.py")), name


def test_the_library_tells_where_the_first_op_was_called(beside_the_examples: Path) -> None:
    import opassay

    report = opassay.compare("examples/two_ranks/target/step0", "examples/two_ranks/golden/step0")
    assert report.first_difference()[0].source.startswith("make_example.py, line ")


def test_docstring_examples_of_the_library_run(beside_the_examples: Path) -> None:
    import opassay
    from opassay.pipeline import api

    found = [doctest.testmod(module) for module in (api, opassay)]
    assert all(result.failed == 0 for result in found)
    assert found[0].attempted >= 4
