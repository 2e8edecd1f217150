"""Which APIs are run, and the other settings of the check: config.yaml of the package, and config.json of -config over it."""

from __future__ import annotations

import difflib
import json
import logging
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Final

import yaml
from opassay.pipeline.read.json_text import is_utf16, open_regular
from opassay.pipeline.watch.logs import clip, one_line
from opassay.schemas.errors import UsageError

LOGGER: Final = logging.getLogger("opassay.check")

ALWAYS_SKIPPED: Final = frozenset(
    {
        "to", "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_with_format",
        "empty_permuted", "empty_quantized", "new", "data_ptr", "const_data_ptr",
    }
)  # fmt: skip
"""As if they stood in every black list: they copy, or give an address or whatever the memory held."""

_LISTS: Final = ("white_list", "black_list")
_KEYS: Final = (*_LISTS, "error_data_path", "precision")
_SECTIONS: Final = ("run_ut", "acc_check")
_PRECISION: Final = 14
_LARGEST: Final = 16 << 20
_MOST_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class Settings:
    """What the two files say.

    Attributes
    ----------
    white, black : frozenset of str
        Names of APIs without kind and number; an empty white list means all.
    error_data_path : Path
        Existing folder for -save_error_data.
    precision : int
        Digits behind the decimal point, 0 to 20.
    """

    white: frozenset[str] = frozenset()
    black: frozenset[str] = frozenset()
    error_data_path: Path = Path("./")
    precision: int = _PRECISION

    def refuses(self, api: str) -> str:
        """Why an API is not run, for its SKIP row; "" where it is."""
        is_skipped = api in ALWAYS_SKIPPED or api.partition(".")[0] in ALWAYS_SKIPPED  # Aten.empty.memory_format
        if is_skipped or api in self.black or (self.white and api not in self.white):
            return f"API {api} in black list or not in white list. SKIP."
        return ""


def read_settings(config: Path | None = None, *, package: Path | None = None) -> Settings:
    """Read the settings.

    Parameters
    ----------
    config : Path, optional
        The config.json of -config: the section ``run_ut`` (or ``acc_check``) with ``white_list``, ``black_list`` and
        ``error_data_path``. With it, only ``precision`` is taken from the package's file.
    package : Path, optional
        Another config.yaml than the package's own.

    Returns
    -------
    Settings
        All names are known APIs; the path exists.

    Raises
    ------
    UsageError
        A file cannot be read or is not as it should be; one line with every problem.
    """
    own = _Checked(str(package) if package else "config.yaml of the package")
    values = own.values(_yaml(package), _KEYS)
    precision = values.get("precision", _PRECISION)
    if isinstance(precision, bool) or not isinstance(precision, int) or not 0 <= precision <= 20:
        own.problems.append(f"precision is {clip(repr(precision))} and must be a whole number from 0 to 20")
        precision = _PRECISION
    if config is None:
        return own.settings(values, precision)
    own.refuse()
    return _from_config(config, precision)


def _from_config(path: Path, precision: int) -> Settings:
    checked = _Checked(f"-config {path}")
    document = _json(path)
    if not isinstance(document, dict):
        raise UsageError(f'-config {path}: not a JSON object; write {{"run_ut": {{"white_list": [...]}}}}')
    present = [name for name in _SECTIONS if name in document]
    section = document[present[0]] if present else {}
    if not isinstance(section, dict):
        raise UsageError(f"-config {path}: the section {present[0]!r} is not an object; write its lists in braces")
    _warn_unread(path, document, section, present[0] if present else _SECTIONS[0])
    return checked.settings({key: section[key] for key in _KEYS[:3] if key in section}, precision)


def _warn_unread(path: Path, document: dict[str, Any], section: dict[str, Any], name: str) -> None:
    """Name keys that would be taken for lists and are not read."""
    outside = [key for key in _KEYS[:3] if key in document]
    unknown = [key for key in section if key not in _KEYS[:3]]
    for keys, told in (
        (outside, f"stand outside of the section {name!r}"),
        (unknown, f"are no keys of the section {name!r}; there are {', '.join(_KEYS[:3])}"),
    ):
        if keys:
            LOGGER.warning("-config %s: %s %s; not read", path, ", ".join(clip(one_line(key)) for key in keys), told)


class _Checked:
    """Collects what is wrong with one file."""

    def __init__(self, what: str) -> None:
        self._what = what
        self.problems: list[str] = []

    def values(self, document: Any, keys: tuple[str, ...]) -> dict[str, Any]:
        """The document as a dictionary of known keys."""
        if document is None:
            return {}
        if not isinstance(document, dict):
            self.problems.append("it is no mapping of keys to values")
            return {}
        unknown = [clip(str(key)) for key in document if key not in keys]
        if unknown:
            self.problems.append(f"unknown keys {', '.join(unknown)}; there are {', '.join(keys)}")
        return {key: document[key] for key in keys if key in document}

    def settings(self, values: dict[str, Any], precision: int) -> Settings:
        """The settings, or the error with every problem."""
        white, black = (self._names(key, values.get(key)) for key in _LISTS)
        folder = self._folder(values.get("error_data_path", "./"))
        self.refuse()
        return Settings(white, black, folder, precision)

    def refuse(self) -> None:
        """Raise where there are problems."""
        if self.problems:
            told = "; ".join(self.problems[:_MOST_TOLD])
            more = len(self.problems) - _MOST_TOLD
            raise UsageError(f"{self._what} cannot be used: {told}{f'; and {more:,} more' if more > 0 else ''}")

    def _names(self, key: str, value: Any) -> frozenset[str]:
        if value is None:
            return frozenset()
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self.problems.append(f"{key} is not a list of names; write [conv2d, softmax]")
            return frozenset()
        if value:
            from opassay.pipeline.check.lookup import is_known  # imports torch

            unknown = list(dict.fromkeys(name for name in value if name not in ALWAYS_SKIPPED and not is_known(name)))
            if unknown:
                shown = [clip(name) + _nearest(name) for name in unknown[:_MOST_TOLD]]
                more = len(unknown) - len(shown)
                self.problems.append(
                    f"Invalid api in {key}: [{', '.join(shown)}{f' and {more:,} more' if more > 0 else ''}]; "
                    "names go without kind and number"
                )
        return frozenset(value)

    def _folder(self, value: Any) -> Path:
        if not isinstance(value, str) or not value:
            self.problems.append(f"error_data_path is {clip(repr(value))} and must be the path of a folder")
        elif not Path(value).is_dir():
            self.problems.append(f"error_data_path {clip(value)} is no existing folder; make it, or name another one")
        else:
            return Path(value)
        return Path("./")


def _nearest(name: str) -> str:
    """A hint for a name that nothing is called by."""
    import torch

    parts = [part for part in name.split(".") if part and not part.isdigit()]
    short = parts[-1] if parts else name
    words = {*dir(torch._C._VariableFunctions), *dir(torch.nn.functional), *dir(torch.Tensor)}
    if short != name and short in words:
        return f" (do you mean {short}?)"
    close = difflib.get_close_matches(short, [word for word in words if not word.startswith("_")], 1, 0.8)
    return f" (do you mean {close[0]}?)" if close else ""


def _text(path: Path, what: str) -> str:
    try:
        with open_regular(path) as file:
            if is_utf16(file):
                raise UsageError(f"{what} {path} is written in UTF-16; save it as UTF-8")
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise UsageError(f"{what} {path} cannot be read ({error.strerror}); check the path") from None
    if len(data) > _LARGEST:
        raise UsageError(f"{what} {path} has more than {_LARGEST >> 20} MB; it should hold a few lists of names")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} {path} is not UTF-8 at byte {error.start:,}; save it as UTF-8") from None


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path, "-config"))
    except json.JSONDecodeError as error:
        raise UsageError(
            f"-config {path} is no JSON: line {error.lineno:,}, column {error.colno:,}: {error.msg}; correct it there"
        ) from None
    except (RecursionError, ValueError) as error:
        raise UsageError(f"-config {path} cannot be read ({one_line(str(error))})") from None


def _yaml(path: Path | None) -> Any:
    what = "config.yaml"
    own = resources.files("opassay.pipeline.check").joinpath(what)
    text = own.read_text("utf-8") if path is None else _text(path, what)
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{what} {path or 'of the package'} is no YAML: line {line:,}: {error.problem}") from None
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{what} {path or 'of the package'} is no YAML ({one_line(str(error))})") from None
