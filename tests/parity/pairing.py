"""Which golden row belongs beside which target row under each way to match: by name, -fm, -dm, -cm, --consistent_check."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.parity.dump import Dump, DumpRow, direction, record_partners
from tests.parity.fuzzy import aligned_records, queued_partners
from tests.parity.train_infer import train_infer_pairs

WRAPPERS = frozenset(("_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module", "module"))


@dataclass(frozen=True)
class Matching:
    """What a command line says about pairing.

    Attributes
    ----------
    kind : str
        ``exact``, ``fuzzy``, ``data``, ``cell`` or ``train``.
    table : mapping of str to str
        Lines of the mapping file.
    backend : str
        ``fsdp`` or ``megatron``.
    """

    kind: str = "exact"
    table: Mapping[str, str] = field(default_factory=dict)
    backend: str = ""


@dataclass(frozen=True)
class Met:
    """A pair, or a row of one side.

    Attributes
    ----------
    target, golden : DumpRow or None
        The rows.
    group : hashable
        What the rows of one operator share.
    how : str
        ``name``, ``layouts pair``, ``wrappers``, ``aligned`` (-fm), ``train``, or ``train table`` for a name that only the tables of
        consistent_check.md 6 have.
    peer : str or None
        The golden name that the incumbent's own way finds, where it is worked out; ``""`` for none.
    """

    target: DumpRow | None
    golden: DumpRow | None
    group: Hashable
    how: str = "name"
    peer: str | None = None


def _value(argv: Sequence[str], *names: str) -> str | None:
    """What follows an option; ``""`` where nothing does, None where the option is not there."""
    for at, word in enumerate(argv):
        if word in names:
            following = argv[at + 1] if at + 1 < len(argv) else "-"
            return "" if following.startswith("-") else following
    return None


def _table(path: Path) -> dict[str, str]:
    """Lines of a mapping file, every scalar as the text that it was written with; {} for what is no such file."""
    import yaml

    try:
        content = yaml.load(path.read_text(encoding="utf-8"), yaml.BaseLoader)
    except (OSError, yaml.YAMLError):
        return {}
    return {str(k): str(v) for k, v in content.items()} if isinstance(content, dict) else {}


def read_matching(argv: Sequence[str], folder: Path) -> Matching:
    """What the options ask for; paths are below ``folder``."""
    if "--consistent_check" in argv:
        return Matching("train", backend=_value(argv, "--backend") or "")
    data, cell = _value(argv, "-dm", "--data_mapping"), _value(argv, "-cm", "--cell_mapping")
    if data is not None:
        return Matching("data", _table(folder / data))
    if cell is not None:
        return Matching("cell", _table(folder / cell) if cell else {})
    return Matching("fuzzy" if {"-fm", "--fuzzy_match"} & set(argv) else "exact")


def is_refused(argv: Sequence[str]) -> bool:
    """Whether the options exclude each other: a data mapping speaks of rows and leaves nothing to a second way to match."""
    others = {"-fm", "--fuzzy_match", "-cm", "--cell_mapping"}
    return bool({"-dm", "--data_mapping"} & set(argv)) and bool(others & set(argv))


def bare_name(record: str) -> str:
    """A module's name without what wrappers put into its path, and without the place in a list of models."""
    parts = record.split(".")
    if parts[0] not in ("Module", "Cell"):
        return record
    if len(parts) > 1 and parts[1].isdigit():
        del parts[1]
    return ".".join([parts[0], *(p for p in parts[1:-1] if p not in WRAPPERS), parts[-1]])


def wrapped_partners(target: Sequence[str], golden: Sequence[str]) -> dict[str, str]:
    """Records left alone on both sides whose bare names are equal, and are so once on each side."""
    sides = []
    for records in (target, golden):
        counts = Counter(bare_name(r) for r in records)
        sides.append({bare_name(r): r for r in records if counts[bare_name(r)] == 1})
    return {record: sides[1][bare] for bare, record in sides[0].items() if bare in sides[1]}


def cell_name(record: str, table: Mapping[str, str]) -> str:
    """A target record under the name that the golden side has for it (mapping.md 3.2); single-point saves keep theirs."""
    if not direction(record):
        return record
    parts = record.split(".")
    ways = ("forward", "backward", "parameters_grad")
    at = max(n for n in (len(parts) - 1, len(parts) - 2) if n > 0 and parts[n] in ways)
    middle = ".".join(parts[1:at])
    if middle in table:
        middle = table[middle]
    else:
        pieces: list[tuple[str, bool]] = [(middle, True)]
        for key in sorted((k for k in table if k), key=len, reverse=True):
            pieces = _replaced(pieces, key, table[key])
        middle = "".join(text for text, _ in pieces)
    return ".".join(["Module" if parts[0] == "Cell" else parts[0], *([middle] if at > 1 else []), *parts[at:]])


def _replaced(pieces: list[tuple[str, bool]], key: str, value: str) -> list[tuple[str, bool]]:
    """The pieces of a name after one entry; a piece is (text, whether it is still the target's own)."""
    for n, (text, own) in enumerate(pieces):
        start = text.find(key) if own else -1
        if "." in key and own:
            ends = n == len(pieces) - 1 and re.search(rf"(?:^|\.){re.escape(key)}$", text)
            start = len(text) - len(key) if ends else -1
        if start >= 0:
            return [
                *pieces[:n],
                (text[:start], True),
                (value, False),
                (text[start + len(key) :], True),
                *pieces[n + 1 :],
            ]
    return pieces


def _by_records(target: Dump, golden: Dump, partners: Mapping[str, tuple[str, str]]) -> list[Met]:
    """Pair the rows of records that meet, the k-th of a slot with the k-th; golden rows that no target row met follow.

    Parameters
    ----------
    partners : mapping of str to (str, str)
        Target record -> golden record and how they met. A golden record may serve several.
    """
    waiting: dict[tuple[str, str], list[int]] = defaultdict(list)
    for at, row in enumerate(golden.rows):
        waiting[row.record, row.slot].append(at)
    seen: Counter[tuple[str, str]] = Counter()
    used: set[int | None] = set()
    rows = []
    for mine in target.rows:
        partner, how = partners.get(mine.record, ("", "name"))
        found = waiting.get((partner, mine.slot), [])
        nth = seen[mine.record, mine.slot]
        seen[mine.record, mine.slot] += 1
        place = found[nth] if partner and nth < len(found) else None
        used.add(place)
        rows.append(Met(mine, None if place is None else golden.rows[place], (False, mine.record), how))
    return rows + _golden_only(golden, used)


def _golden_only(golden: Dump, used: set[int | None]) -> list[Met]:
    return [Met(None, row, (True, row.record)) for at, row in enumerate(golden.rows) if at not in used]


def _named(target: Dump, golden: Dump, kind: str, table: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Target record -> golden record and how they met, by names, the table of cells, gradient layouts, call order, wrappers."""
    called = {record: cell_name(record, table) if kind == "cell" else record for record in target.records}
    partners = record_partners(list(called.values()), golden.records, by_appearance=kind == "exact")
    names = set(golden.records)
    found = {}
    for record, name in called.items():
        partner = partners.get(name, name)
        if partner in names:
            layout = partner != name and direction(record) == "parameters_grad"
            found[record] = (partner, "layouts pair" if layout else "name")
    taken = {partner for partner, _ in found.values()}
    alone = [record for record in target.records if record not in found]
    wrapped = wrapped_partners([called[r] for r in alone], [r for r in golden.records if r not in taken])
    found.update({record: (wrapped[called[record]], "wrappers") for record in alone if called[record] in wrapped})
    return found


def _fuzzy(target: Dump, golden: Dump, shown: Sequence[tuple[str, str]]) -> list[Met]:
    aligned = aligned_records(target, golden, shown)
    queued = queued_partners(target, golden)
    rows = _by_records(target, golden, {mine: (partner, "aligned") for mine, partner in aligned.items()})
    return [
        row
        if row.target is None
        else Met(row.target, row.golden, row.group, "aligned", queued.get(row.target.name, ""))
        for row in rows
    ]


def _data(target: Dump, golden: Dump, table: Mapping[str, str]) -> list[Met]:
    """Rows that the table names take the golden row named there; all others pair by their own names."""
    by_name: dict[str, int] = {}
    for names in ([row.name for row in golden.rows], [row.record + row.slot for row in golden.rows]):
        for place, name in enumerate(names):
            by_name.setdefault(name, place)
    places = {id(row): place for place, row in enumerate(golden.rows)}
    rows: list[Met] = []
    used: set[int | None] = set()
    for met in _by_records(target, golden, _named(target, golden, "data", {})):
        if met.target is None:
            continue
        wanted = table.get(met.target.name, table.get(met.target.record + met.target.slot))
        own = None if met.golden is None else places[id(met.golden)]
        at = own if wanted is None else by_name.get(wanted)
        used.add(at)
        row = None if at is None else golden.rows[at]
        rows.append(Met(met.target, row, met.group, met.how if wanted is None else "name"))
    return rows + _golden_only(golden, used)


def pair_by(matching: Matching, target: Dump, golden: Dump, shown: Sequence[tuple[str, str]] = ()) -> list[Met]:
    """Every row of the right report, in order.

    Parameters
    ----------
    matching : Matching
        How the sides meet.
    target, golden : Dump
        The two sides.
    shown : sequence of (str, str)
        Names that a report puts side by side; decides between alignments that are equally good (``fuzzy.aligned_records``).
    """
    if matching.kind == "train":
        return [
            Met(one, other, group, how)
            for one, other, group, how in train_infer_pairs(target, golden, matching.backend)
        ]
    if matching.kind == "fuzzy":
        return _fuzzy(target, golden, shown)
    if matching.kind == "data":
        return _data(target, golden, matching.table)
    return _by_records(target, golden, _named(target, golden, matching.kind, matching.table))
