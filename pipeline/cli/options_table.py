"""One table of options: the parser, the help and the README's table are made from it.

Spellings with one dash and words are the incumbent's; additions of ours are long options only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a command.

    Attributes
    ----------
    flags : tuple of str
        Spellings.
    help : str
        One sentence.
    group : str
        Heading in the help.
    ours : bool
        Not an option of the incumbent.
    settings : dict
        For ``argparse``.
    """

    flags: tuple[str, ...]
    help: str
    group: str
    ours: bool = True
    settings: dict[str, Any] = field(default_factory=dict)


WHAT, MATCH, REPORT, VERDICTS, RUN, TALK = "what to compare", "matching", "reports", "verdicts", "running", "talking"

COMPARE: Final = (
    Option(("-tp", "--target_path"), "dump under test: a dump.json or debug.json, or a rank, step or dump-root folder", WHAT, ours=False,
           settings={"dest": "target", "required": True, "metavar": "PATH"}),
    Option(("-gp", "--golden_path"), "dump to compare with, of the same kind", WHAT, ours=False,
           settings={"dest": "golden", "required": True, "metavar": "PATH"}),
    Option(("-fm", "--fuzzy_match"), "where one side calls an op more often and later call numbers shift: pair ops of one name whatever their number, in order", MATCH,
           ours=False, settings={"action": "store_true", "dest": "fuzzy"}),
    Option(("-dm", "--data_mapping"), "yaml file of row names, target: golden", MATCH, ours=False, settings={"metavar": "FILE"}),
    Option(("-cm", "--cell_mapping"), "yaml file of module names, target: golden; without FILE only Cell is read as Module", MATCH, ours=False,
           settings={"nargs": "?", "const": True, "metavar": "FILE"}),
    Option(("--wrapper",), "leave parts of module paths that match this regular expression out where nothing else pairs; may be repeated", MATCH,
           settings={"action": "append", "default": [], "metavar": "REGEX"}),
    Option(("--no-wrappers",), "leave out no parts of module paths but those of --wrapper", MATCH,
           settings={"action": "store_false", "dest": "wrappers"}),
    Option(("--consistent_check",), "compare training (target) with inference (golden); needs --backend", MATCH, ours=False,
           settings={"action": "store_true"}),
    Option(("--backend",), "module names of the training side, for --consistent_check", MATCH, ours=False,
           settings={"choices": ("fsdp", "megatron")}),
    Option(("--shards",), "auto: where the target has a multiple of the golden side's ranks, join neighbours as tensor-parallel shards of one golden rank (default: off)", MATCH,
           settings={"choices": ("off", "auto"), "default": "off"}),
    Option(("-o", "--output_path"), "folder of the results, made if needed (default: ./output)", REPORT, ours=False,
           settings={"dest": "output", "nargs": "?", "const": "./output", "default": "./output", "metavar": "DIR"}),
    Option(("--xlsx",), "write xlsx (coloured, filterable) in place of csv", REPORT, ours=False, settings={"action": "store_true"}),
    Option(("--parquet",), "write typed rows to parquet as well, for notebooks", REPORT, settings={"action": "store_true"}),
    Option(("--csv-safe",), "put an apostrophe before csv cells that a spreadsheet would run as a formula", REPORT,
           settings={"action": "store_true", "dest": "csv_safe"}),
    Option(("-da", "--diff_analyze"), "write the first op that differs, over all ranks, as json (tensor dumps: on their statistics)", REPORT,
           ours=False, settings={"action": "store_true", "dest": "diff_analyze"}),
    Option(("--strict",), "an output that falls below 0.6 within a thousandth is an error even where rounding of its dtype explains it (default: warning)", VERDICTS,
           settings={"action": "store_true"}),
    Option(("--document-rules",), "only the rules that msprobe documents, none of opassay's own", VERDICTS,
           settings={"action": "store_true", "dest": "document_rules"}),
    Option(("--fail-on",), "exit status 1 if a row is at least this", VERDICTS,
           settings={"choices": ("warning", "error"), "dest": "fail_on"}),
    Option(("--workers",), "processes that measure (default: one a core, as the memory allows)", RUN,
           settings={"type": int, "default": 0, "metavar": "N"}),
    Option(("--memory",), "memory budget of the whole run, such as 4G (default: most of what is free)", RUN,
           settings={"default": "0", "metavar": "SIZE"}),
    Option(("--device",), "where tensors are measured: cpu, cuda[:N] or npu[:N] (the latter two need opassay[torch])", RUN,
           settings={"default": "cpu", "metavar": "DEVICE"}),
    Option(("--io",), "how tensor files are read: map (local disks), read (network file systems), auto", RUN,
           settings={"choices": ("auto", "map", "read"), "default": "auto"}),
    Option(("-tensor_log", "--is_print_compare_log"), "log every tensor comparison", TALK, ours=False,
           settings={"action": "store_true", "dest": "tensor_log"}),
    Option(("--quiet",), "warnings, errors and results only", TALK, settings={"action": "store_true"}),
    Option(("--verbose",), "more about what happens, tracebacks of unexpected errors", TALK, settings={"action": "store_true"}),
)  # fmt: skip
"""Options of ``compare``."""


PLAN: Final = (
    *(option for option in COMPARE if option.group in (WHAT, MATCH)),
    Option(("--all",), "name every op without a partner, not only the first few", TALK, settings={"action": "store_true", "dest": "every"}),
)  # fmt: skip
"""Options of ``plan``: those of ``compare`` that decide what meets what, and how much is said."""


MERGE: Final = (
    Option(("-i", "--input_dir"), "folder of the reports: compare_result_rank<number>_<timestamp>.xlsx or .csv, two ranks or more", WHAT,
           ours=False, settings={"dest": "input", "required": True, "metavar": "DIR"}),
    Option(("-config", "--config-path"), "yaml file with the lists api (rows) and compare_index (metrics; none: all)", WHAT, ours=False,
           settings={"dest": "config", "required": True, "metavar": "FILE"}),
    Option(("-o", "--output_dir"), "folder of the workbook, made if needed", REPORT, ours=False,
           settings={"dest": "output", "required": True, "metavar": "DIR"}),
    Option(("--quiet",), "warnings, errors and the result only", TALK, settings={"action": "store_true"}),
    Option(("--verbose",), "more about what happens, tracebacks of unexpected errors", TALK, settings={"action": "store_true"}),
)  # fmt: skip
"""Options of ``merge_result``."""


COLLECTIVES: Final = (
    Option(("path",), "dump of several ranks: a step folder with rank0, rank1, ... or a dump root", WHAT, settings={"metavar": "PATH"}),
    *(option for option in COMPARE if option.flags[0] in ("-o", "--csv-safe", "--fail-on")),
    Option(("--workers",), "threads that read tensors (default: one a core)", RUN, settings={"type": int, "default": 0, "metavar": "N"}),
    *(option for option in COMPARE if option.flags[0] in ("--quiet", "--verbose")),
)  # fmt: skip
"""Options of ``collectives``."""


PRECISION: Final = (
    Option(("-npu", "--npu_csv_path"), "accuracy_checking_details csv of the NPU", WHAT, ours=False,
           settings={"dest": "npu", "required": True, "metavar": "FILE"}),
    Option(("-gpu", "--gpu_csv_path"), "accuracy_checking_details csv of the GPU, for the same dump", WHAT, ours=False,
           settings={"dest": "gpu", "required": True, "metavar": "FILE"}),
    Option(("-o", "--out_path"), "folder of the two result files, made if needed (default: ./)", REPORT, ours=False,
           settings={"dest": "output", "default": "./", "metavar": "DIR"}),
    *(option for option in COMPARE if option.flags[0] in ("--csv-safe", "--fail-on", "--quiet", "--verbose")),
)  # fmt: skip
"""Options of ``api_precision_compare``."""


EXPLAIN_API: Final = (
    Option(
        ("api",),
        "operator: matmul, Torch.matmul, Torch.matmul.0.forward, npu_rms_norm",
        WHAT,
        settings={"metavar": "NAME"},
    ),
)
"""Options of ``explain-api``."""


RUN_UT: Final = (
    Option(("-api_info", "--api_info_file"), "dump.json of level L1 whose calls are run again", WHAT, ours=False,
           settings={"dest": "api_info", "required": True, "metavar": "FILE"}),
    Option(("-f", "--filter_api"), "of calls that differ in the values of their tensors only, run the first", WHAT, ours=False,
           settings={"action": "store_true", "dest": "filter_api"}),
    Option(("-config", "--config_path"), "config.json with white_list, black_list and error_data_path", WHAT, ours=False,
           settings={"dest": "config", "metavar": "FILE"}),
    Option(("-o", "--out_path"), "folder of the csv files, made if needed (default: the current one)", REPORT, ours=False,
           settings={"dest": "output", "default": "./", "metavar": "DIR"}),
    Option(("-csv_path", "--result_csv_path"), "go on with this accuracy_checking_result_*.csv of an earlier run", REPORT, ours=False,
           settings={"dest": "csv_path", "metavar": "FILE"}),
    Option(("-save_error_data", "--save_error_data"), "keep the tensors of calls that are not in order, and a dump.json for each", REPORT, ours=False,
           settings={"action": "store_true", "dest": "save_error_data"}),
    Option(("--fail-on",), "exit status 1 if a verdict is at least this", VERDICTS,
           settings={"choices": ("warning", "error"), "dest": "fail_on"}),
    Option(("--device",), "device under test (default: an NPU, else a GPU, else the cpu)", RUN,
           settings={"choices": ("auto", "npu", "cuda", "cpu"), "default": "auto"}),
    Option(("-d", "--device_id"), "number of the device; multi_run_ut takes several", RUN, ours=False,
           settings={"dest": "device_ids", "nargs": "+", "type": int, "default": [0], "metavar": "ID"}),
    Option(("-j", "--jit_compile"), "on an NPU: compile just in time and allow internal formats", RUN, ours=False,
           settings={"action": "store_true", "dest": "jit"}),
    Option(("--threads",), "threads of torch on the cpu, in each process (default: 1)", RUN,
           settings={"type": int, "default": 1, "metavar": "N"}),
    Option(("--timeout",), "seconds that one call may take; 0 for any time (default: 1800)", RUN,
           settings={"type": float, "default": 1800.0, "metavar": "SECONDS"}),
    *(option for option in COMPARE if option.flags[0] in ("--quiet", "--verbose")),
)  # fmt: skip
"""Options of ``run_ut``."""


MULTI_RUN_UT: Final = (
    *RUN_UT[:-2],
    Option(("-n", "--num_splits"), "processes, 1 to 64, at most 8 a device (default: 8)", RUN, ours=False,
           settings={"dest": "splits", "type": int, "default": 8, "metavar": "N"}),
    *RUN_UT[-2:],
)  # fmt: skip
"""Options of ``multi_run_ut``."""


_MINDSPORE_NOT: Final = ("-f", "-config", "-j", "-d", "--device")

MINDSPORE_RUN_UT: Final = (
    *(option for option in RUN_UT[:-2] if option.flags[0] not in _MINDSPORE_NOT),
    Option(("--device-kind",), "device under test (default: the one that MindSpore was built for)", RUN,
           settings={"choices": ("auto", "npu", "cuda", "cpu"), "default": "auto", "dest": "device"}),
    *RUN_UT[-2:],
)  # fmt: skip
"""Options of ``-f mindspore run_ut``: there are no lists and no filter, and the device is the first one."""


MINDSPORE_MULTI_RUN_UT: Final = (
    *MINDSPORE_RUN_UT[:-2],
    Option(("-d", "--device", "--device_id"), "numbers of the devices, 0 to 4095, one process for each; on the cpu they count the processes (default: 0)",
           RUN, ours=False, settings={"dest": "device_ids", "nargs": "+", "type": int, "default": [0], "metavar": "ID"}),
    *MINDSPORE_RUN_UT[-2:],
)  # fmt: skip
"""Options of ``-f mindspore multi_run_ut``."""


def markdown(options: tuple[Option, ...]) -> str:
    """The table of options as the README shows it."""
    lines = ["| option | meaning |", "|---|---|"]
    for option in options:
        value = option.settings.get("metavar") or "\\|".join(option.settings.get("choices", ()))
        flags = ", ".join(f"`{flag}`" for flag in option.flags) + (f" `{value}`" if value else "")
        lines.append(f"| {flags} | {option.help}{'' if option.ours else ' ¹'} |")
    return "\n".join([*lines, "", "¹ as msprobe's"])
