"""The stand-in for msprobe: what it lays, what it refuses, and to whom it hands a command line."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from opassay.pipeline.cli import shim
from opassay.schemas.errors import OutputError, UsageError


def run(script: Path, *words: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        [str(script), *words], capture_output=True, text=True, env=environment, timeout=60, check=False
    )


def fake_incumbent(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "msprobe"
    script.write_text('#!/bin/sh\necho "incumbent got: $*"\nexit 7\n')
    script.chmod(0o755)
    return script


def test_lay_makes_the_folder_and_an_executable(tmp_path: Path) -> None:
    script = shim.lay(tmp_path / "new" / "bin")
    assert script == tmp_path / "new" / "bin" / "msprobe"
    assert script.stat().st_mode & stat.S_IXUSR
    assert [path.name for path in script.parent.iterdir()] == ["msprobe"]


def test_lay_again_replaces_its_own(tmp_path: Path) -> None:
    first = shim.lay(tmp_path).read_text()
    assert shim.lay(tmp_path).read_text() == first


def test_lay_refuses_a_foreign_file_unless_forced(tmp_path: Path) -> None:
    foreign = fake_incumbent(tmp_path)
    before = foreign.read_text()
    with pytest.raises(UsageError, match="not ours"):
        shim.lay(tmp_path)
    assert foreign.read_text() == before
    assert shim.MARK in shim.lay(tmp_path, force=True).read_text()


def test_lay_refuses_a_dangling_link_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "msprobe").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError):
        shim.lay(tmp_path)
    (tmp_path / "other" / "msprobe").mkdir(parents=True)
    with pytest.raises(UsageError, match="folder"):
        shim.lay(tmp_path / "other", force=True)


def test_lay_into_a_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="writable folder"):
        shim.lay(tmp_path / "file")


def test_run_shim_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_incumbent(tmp_path)
    assert shim.run_shim(["--into", str(tmp_path)]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "--force" in printed.err
    assert shim.run_shim(["--into", str(tmp_path), "--force"]) == 0
    assert "PATH" in capsys.readouterr().out


@pytest.mark.parametrize("before", [[], ["-f", "pytorch"]])
def test_compare_goes_to_opassay(tmp_path: Path, before: list[str]) -> None:
    there = fake_incumbent(tmp_path / "there")
    done = run(shim.lay(tmp_path / "bin"), *before, "compare", "--help", path=str(there.parent))
    assert done.returncode == 0, done.stderr
    assert "-tp" in done.stdout
    assert "incumbent" not in done.stdout


def test_other_commands_go_to_the_incumbent_with_all_their_words(tmp_path: Path) -> None:
    there = fake_incumbent(tmp_path / "there")
    script = shim.lay(tmp_path / "bin")
    done = run(
        script, "-f", "pytorch", "graph_visualize", "-tp", "a b", path=f"{script.parent}:{there.parent}:/usr/bin:/bin"
    )
    assert done.returncode == 7
    assert done.stdout == "incumbent got: -f pytorch graph_visualize -tp a b\n"


def test_nobody_there_is_one_line_and_status_2(tmp_path: Path) -> None:
    script = shim.lay(tmp_path / "bin")
    done = run(script, "graph_visualize", path=f"{script.parent}:/usr/bin:/bin")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "graph_visualize" in done.stderr
    assert "compare" in done.stderr


def test_a_second_shim_is_not_taken_for_the_incumbent(tmp_path: Path) -> None:
    first, second = shim.lay(tmp_path / "one"), shim.lay(tmp_path / "two")
    done = run(first, "graph_visualize", path=f"{first.parent}:{second.parent}:/usr/bin:/bin")
    assert done.returncode == 2


def test_incumbent_beside_us_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "probe_of_others.py").write_text("import sys\ndef start():\n    print(sys.argv)\n    return 5\n")
    facts = tmp_path / "probe_of_others-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: probe-of-others\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[console_scripts]\nmsprobe = probe_of_others:start\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = run(shim.lay(tmp_path / "bin"), "config_check", "-x")
    assert done.returncode == 5, done.stderr
    assert done.stdout == "['msprobe', 'config_check', '-x']\n"


def test_only_commands_that_opassay_has_are_taken_over() -> None:
    from opassay.pipeline.cli.main import COMMANDS

    ours = shim._our_commands()
    assert "compare" in ours
    assert {shim.ALIASES.get(name, name) for name in ours} <= set(COMMANDS)
    assert "explain" not in ours


def test_a_strange_interpreter_path_survives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strange = tmp_path / 'a "b" $c' / "python"
    strange.parent.mkdir()
    strange.symlink_to(sys.executable)
    prefix = Path(sys.prefix) / "pyvenv.cfg"
    if prefix.exists():
        (strange.parent / "pyvenv.cfg").write_text(prefix.read_text())
    monkeypatch.setattr(sys, "executable", str(strange))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    done = run(shim.lay(tmp_path / "bin"), "compare", "--help")
    assert done.returncode == 0, done.stderr
