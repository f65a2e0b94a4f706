"""`extproc train-intent`, `eval-intent` and `label`: the model that reads what rules do not tell."""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from extproc.cli import status
from extproc.cli.arguments import add_config, add_state_dir
from extproc.config_source import ConfigSource
from extproc.errors import CannotStart
from extproc.unsure import read as kept_texts

if TYPE_CHECKING:  # numbers are crunched in these commands alone
    from extproc.request.classify.weights import Weights
    from extproc.training.rows import LabelMap, Row

SHIPPED = "shipped"
TIMED = 2000
"""Texts of which the time is taken."""


def add_to(commands: argparse._SubParsersAction[Any]) -> None:
    train = commands.add_parser("train-intent", help="learn an intent model from labelled texts")
    train.add_argument("data", nargs="+", type=Path, metavar="DATA", help="TSV: text, and scenario or tier")
    train.add_argument("--out", type=Path, required=True, metavar="MODEL", help="the .npz that is written")
    train.add_argument("--start-from", metavar="MODEL", help="adapt this model to the rows; 'shipped' = ours")
    train.add_argument("--labels", type=Path, metavar="FILE", help="what labels stand for (ours)")
    train.add_argument("--open-only", action="store_true", help="leave out rows whose licence is not 'open'")
    train.add_argument("--no-utterances", action="store_true", help="without the texts written for the project")
    train.add_argument("--folds", type=int, default=3, choices=range(2, 11), metavar="2-10", help="(3)")
    train.add_argument("--leave-out", action="store_true", help="also: each source judged by a model of the others")
    train.add_argument("--seed", type=int, default=1, help="(1)")
    train.add_argument("--date", default="", metavar="YYYY-MM-DD", help="in the file (today)")
    train.add_argument("--picture", type=Path, metavar="FILE.svg", help="confusion and reliability")
    train.add_argument("--json", action="store_true", help="the report as JSON")
    add_config(train)
    train.set_defaults(run=_train)

    judge = commands.add_parser("eval-intent", help="how good a model is on labelled texts, rules before it")
    judge.add_argument("model", metavar="MODEL", help="an .npz, or 'shipped'")
    judge.add_argument("data", nargs="+", type=Path, metavar="DATA", help="TSV: text, and scenario or tier")
    judge.add_argument("--labels", type=Path, metavar="FILE", help="what labels stand for (what the row says)")
    judge.add_argument("--picture", type=Path, metavar="FILE.svg", help="confusion and reliability")
    judge.add_argument("--json", action="store_true", help="as JSON")
    add_config(judge)
    judge.set_defaults(run=_eval)

    label = commands.add_parser("label", help="collect texts the model is unsure about, to be labelled by you")
    label.add_argument("--out", type=Path, required=True, metavar="FILE.tsv", help="for train-intent --start-from")
    label.add_argument("--most", type=int, default=400, metavar="N", help="texts (400)")
    add_config(label)
    add_state_dir(label)
    label.set_defaults(run=_label)


# ── train ────────────────────────────────────────────────────────────────────────────────────────────


def _train(arguments: argparse.Namespace) -> int:
    from extproc.request.classify.weights import encode
    from extproc.training import utterances
    from extproc.training.rows import label_map

    _writable(arguments.out, arguments.picture)
    labels = label_map(ConfigSource(arguments.config).settings, arguments.labels)
    rows = _rows(arguments.data, labels)
    if arguments.open_only:
        rows = [row for row in rows if row.licence == "open"]
    if not rows:
        raise CannotStart("no rows to learn from")
    own = [] if arguments.no_utterances else utterances.rows(labels, seed=arguments.seed)
    with _progress() as tell:
        if arguments.start_from:
            weights, report = _adapted(arguments, rows, own, tell)
        else:
            weights, report = _learnt(arguments, [*rows, *own], tell)
    about = {**_provenance(arguments, rows, own), "report": report}
    data = encode(replace(weights, about=about))
    arguments.out.write_bytes(data)
    if arguments.json:
        print(json.dumps(report, indent=1, ensure_ascii=False))
    print(
        f"{arguments.out}: {len(data):,} bytes, sha256 {hashlib.sha256(data).hexdigest()}",
        file=sys.stderr if arguments.json else sys.stdout,
    )
    return 0


def _learnt(arguments: argparse.Namespace, rows: Sequence[Row], tell: Any) -> tuple[Weights, Any]:
    from extproc.training import learn, picture, report
    from extproc.training.network import Recipe

    recipe = Recipe()
    weights, held = learn.learn(rows, recipe, seed=arguments.seed, folds=arguments.folds, tell=tell)
    parts = learn.parts_of(rows, held)
    without = learn.without_each_source(rows, recipe, seed=arguments.seed, tell=tell) if arguments.leave_out else {}
    if not arguments.json:
        console = status.console_of()
        console.print(f"{arguments.folds} folds: rows judged by a model that has not seen them, without rules")
        console.print(report.told(parts, console.width))
        for part in parts:
            if not part.source:
                console.print(f"{part.language}: {report.how_sure(part.likely.accuracy, part.likely.rows)}")
        for table in report.confusions(parts):
            console.print(table)
        for source, accuracy in without.items():
            console.print(f"a model that has seen nothing of {source}: {report.how_sure(*accuracy)}")
        console.print(_speed(weights, [row.text for row in rows]))
    if arguments.picture:
        arguments.picture.write_text(picture.svg(parts))
    kept = [{"language": p.language, "source": p.source, "accuracy": p.likely.accuracy} for p in parts]
    return weights, {"folds": arguments.folds, "parts": kept, "without": {k: v[0] for k, v in without.items()}}


def _adapted(
    arguments: argparse.Namespace, rows: Sequence[Row], own: Sequence[Row], tell: Any
) -> tuple[Weights, Any]:
    from extproc.training import learn, report
    from extproc.training.network import ADAPTING

    start = _model(arguments.start_from)
    before, after = learn.adapted_folds(
        start, rows, own, ADAPTING, folds=arguments.folds, seed=arguments.seed, tell=tell
    )
    weights = learn.adapt(start, rows, own, ADAPTING, seed=arguments.seed, tell=tell)
    if not arguments.json:
        console = status.console_of()
        console.print("without rules:")
        console.print(f"before: {report.how_sure(before, len(rows))}")
        console.print(f"after, on rows left out of {arguments.folds} folds: {report.how_sure(after, len(rows))}")
    return weights, {"folds": arguments.folds, "rows": len(rows), "before": before, "after": after}


def _provenance(arguments: argparse.Namespace, rows: Sequence[Row], own: Sequence[Row]) -> dict[str, Any]:
    """Names of files without their folders: where they lay is nobody's business."""
    return {
        "date": arguments.date or datetime.now(UTC).date().isoformat(),
        "seed": arguments.seed,
        "start_from": hashlib.sha256(_bytes(arguments.start_from)).hexdigest() if arguments.start_from else "",
        "data": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in arguments.data},
        "licences": sorted({row.licence for row in rows}),
        "sources": sorted({row.source for row in rows}),
        "rows": len(rows),
        "utterances": len(own),
    }


# ── eval ─────────────────────────────────────────────────────────────────────────────────────────────


def _eval(arguments: argparse.Namespace) -> int:
    from extproc.settings import Reading, classifiers
    from extproc.training import examine, picture, report
    from extproc.training.rows import label_map

    _writable(arguments.picture)
    settings = ConfigSource(arguments.config).settings
    weights = _model(arguments.model)
    rows = _rows(arguments.data, label_map(settings, arguments.labels, shipped=False))
    if not rows:
        raise CannotStart("no rows to judge")
    with _progress() as tell:
        told = examine.verdicts(
            [row.text for row in rows],
            classifiers(settings, Reading(weights)),
            settings,
            lambda done, total: tell("texts", done, total),
        )
    parts = examine.parts(rows, told, settings.classify.min_confidence)
    licensed, found = examine.of_open(rows, told, "open"), examine.scenarios(rows, told)
    if arguments.json:
        print(json.dumps(report.tree(parts, licensed, found), indent=1, ensure_ascii=False))
    else:
        console = status.console_of()
        console.print(report.told(parts, console.width))
        if licensed:
            console.print(report.by_licence(licensed))
        for table in report.confusions(parts):
            console.print(table)
        if found:
            console.print(report.of_scenarios(found))
        console.print(_speed(weights, [row.text for row in rows]))
    if arguments.picture:
        arguments.picture.write_text(picture.svg(parts))
    return 0


def _speed(weights: Weights, texts: Sequence[str]) -> str:
    from extproc.request.classify.weights import Reader

    reader, took = Reader(weights), []
    for text in texts[:TIMED]:
        begun = time.perf_counter()
        reader.probabilities(text)
        took.append((time.perf_counter() - begun) * 1e6)
    took.sort()
    return f"time of a text: p50 {took[len(took) // 2]:.0f} µs, p99 {took[len(took) * 99 // 100]:.0f} µs"


# ── label ────────────────────────────────────────────────────────────────────────────────────────────


def _label(arguments: argparse.Namespace) -> int:
    _writable(arguments.out)
    if arguments.out.exists():
        raise CannotStart(f"{arguments.out} is there already, perhaps with labels: name another file")
    settings = ConfigSource(arguments.config).settings
    texts = kept_texts(arguments.state_dir)
    if not texts:
        why = "" if settings.intent.keep_unsure else "; intent.keep_unsure is off, so none are kept"
        raise CannotStart(f"no texts below {arguments.state_dir}{why}")
    chosen = texts[: arguments.most]
    with arguments.out.open("w", encoding="utf-8", newline="", errors="replace") as file:
        out = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_NONE, escapechar=None, quotechar=None)
        out.writerow(("text", "scenario", "likely", "likely_tier", "confidence"))
        for each in chosen:
            out.writerow((" ".join(each.text.split()), "", each.scenario, each.tier, f"{each.confidence:.2f}"))
    print(
        f"{arguments.out}: {len(chosen)} of {len(texts)} texts. Fill the column 'scenario' (a scenario or a tier), "
        f"delete the lines you cannot tell, then: "
        f"extproc train-intent {arguments.out} --start-from shipped --out my-intent.npz"
    )
    return 0


# ── what both need ───────────────────────────────────────────────────────────────────────────────────


def _writable(*paths: Path | None) -> None:
    """Told before the work, not after it."""
    for path in paths:
        if path is not None and not path.parent.is_dir():
            raise CannotStart(f"no folder {path.parent} for {path.name}")


def _rows(paths: Sequence[Path], labels: LabelMap) -> list[Row]:
    from extproc.training import rows

    return [row for path in paths for row in rows.read(path, labels)]


def _bytes(name: str) -> bytes:
    from extproc import intent_model

    return intent_model.shipped() if name == SHIPPED else Path(name).read_bytes()


def _model(name: str) -> Weights:
    from extproc.request.classify.weights import decode

    try:
        return decode(_bytes(name))
    except ValueError as error:
        raise CannotStart(f"{name}: {error}") from None


@contextmanager
def _progress() -> Iterator[Any]:
    """Something to be told what is under way, on stderr."""
    console = status.console_of()
    console.stderr = True
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        tasks: dict[str, Any] = {}

        def tell(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        yield tell
