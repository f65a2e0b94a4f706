"""The weights of the intent model, what they say about a text, and their file.

A text's n-grams point at rows of a table; their sum, squeezed, is a point in few dimensions, and a linear layer
tells from it which of some hundred fine labels the text is like. Fine labels (`source:label`) are told apart better
than tiers are (93 % of tiers right when trained on three, 97 % on four hundred), so they are what is learnt; what
is asked for are sums of their probabilities. The table in few dimensions is what makes it quick: a row of a weight
per label would be eight times as long.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Mapping
from itertools import groupby
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct

from extproc.model.names import Tier
from extproc.request.classify.features import MOST_CHARS, TOP, Hashing, rows

FORMAT = 1

MAX_FILE_BYTES = 64 << 20

MOST_ORDERS = 4
MOST_ROWS = (MOST_CHARS + 4) * MOST_ORDERS
"""Of one text."""

ARCHIVE = b"PK"
"""How such a file begins. What does not is never handed on: numpy takes it for a pickle."""

STAMP = (1980, 1, 1, 0, 0, 0)
"""Of every member of the file: equal weights are equal bytes."""


class Label(Struct, frozen=True):
    """A fine label and what it stands for. `scenario` "" = none: the tier alone is known."""

    name: str
    scenario: str
    tier: Tier


class Group(Struct, frozen=True):
    """The labels of one tier and scenario: they stand in a row, `first` is where."""

    tier: Tier
    scenario: str
    first: int


class Weights(Struct, frozen=True):
    """d dimensions, c labels. `table` (2^bits, d) int8, of which 1 is worth `scale`; `bias` (d,), `layer` (d, c)
    and `offset` (c,) float32. `temperatures`: what logits are divided by, Latin and Chinese; `leans`: what is then
    added to those of strict labels. `labels` are sorted by tier and scenario. `about` is where they come from:
    plain JSON. `digest` is the SHA-256 of the file in hex.
    """

    hashing: Hashing
    table: Any
    scale: float
    bias: Any
    layer: Any
    offset: Any
    temperatures: tuple[float, float]
    leans: tuple[float, float]
    labels: tuple[Label, ...]
    about: Mapping[str, Any]
    digest: str = ""


class Reader:
    """Weights ready to be asked, by one thread at a time: the memory to compute in is kept."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.groups = groups(weights.labels)
        self._firsts = np.array([group.first for group in self.groups])
        strict = np.array([label.tier is Tier.STRICT for label in weights.labels], np.float32)
        scales = [np.float32(1 / each) for each in weights.temperatures]
        self._layers = [weights.layer * scale for scale in scales]
        self._offsets = [
            weights.offset * scale + np.float32(lean) * strict
            for scale, lean in zip(scales, weights.leans, strict=True)
        ]
        self._ones = np.ones(MOST_ROWS, np.float32)
        self._gathered = np.empty((MOST_ROWS, weights.table.shape[1]), np.int8)
        self._widened = np.empty((MOST_ROWS, weights.table.shape[1]), np.float32)

    def logits(self, text: str) -> tuple[Any, bool] | None:
        """(c,) float32 after temperature and lean, and whether the text is Chinese; None for a text without
        letters."""
        weights = self.weights
        found, chinese = rows(text, weights.hashing)
        count = len(found)
        if not count:
            return None
        weights.table.take(found, axis=0, out=self._gathered[:count], mode="clip")
        # float32, so that the sum is one call of BLAS: added as int8, it takes twice the time.
        widened = self._widened[:count]
        widened[...] = self._gathered[:count]
        hidden = self._ones[:count] @ widened
        hidden *= np.float32(weights.scale / count**0.5)
        hidden += weights.bias
        np.tanh(hidden, hidden)
        logits = hidden @ self._layers[chinese]
        logits += self._offsets[chinese]
        return logits, chinese

    def probabilities(self, text: str) -> list[float] | None:
        """One per group, in their order; None for a text without letters."""
        found = self.logits(text)
        if found is None:
            return None
        powers, _ = found
        powers -= np.maximum.reduce(powers)
        np.exp(powers, powers)
        sums: list[float] = np.add.reduceat(powers, self._firsts).tolist()
        total = sum(sums)
        return [each / total for each in sums]


def groups(labels: tuple[Label, ...]) -> tuple[Group, ...]:
    """ValueError where labels of one group stand apart."""
    found = []
    first = 0
    for (tier, scenario), members in groupby(labels, lambda label: (label.tier, label.scenario)):
        found.append(Group(tier, scenario, first))
        first += len(list(members))
    if len({(group.tier, group.scenario) for group in found}) < len(found):
        raise ValueError("labels are not sorted by tier and scenario")
    return tuple(found)


def encode(weights: Weights) -> bytes:
    """The file's bytes: an `.npz` that any numpy reads, the same for the same weights."""
    head = {
        "format": FORMAT,
        "bits": weights.hashing.bits,
        "scale": weights.scale,
        "temperatures": weights.temperatures,
        "leans": weights.leans,
        "labels": weights.labels,
        "about": weights.about,
    }
    changed = np.flatnonzero(weights.hashing.fold != np.arange(TOP))
    members = {
        "head": np.frombuffer(msgspec.json.encode(head), np.uint8),
        "folded_from": changed.astype(np.uint16),
        "folded_to": weights.hashing.fold[changed].astype(np.uint16),
        "latin": weights.hashing.latin,
        "han": weights.hashing.han,
        "table": weights.table,
        "bias": weights.bias,
        "layer": weights.layer,
        "offset": weights.offset,
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, array in members.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", STAMP)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.getvalue(), compresslevel=9)
    return packed.getvalue()


class _Head(Struct, forbid_unknown_fields=True):
    format: int
    bits: int
    scale: float
    temperatures: tuple[float, float]
    leans: tuple[float, float]
    labels: tuple[Label, ...]
    about: dict[str, Any]


_HEAD = msgspec.json.Decoder(_Head)


def decode(data: bytes) -> Weights:
    """ValueError, in one line, for anything but the bytes of such a file."""
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
    if not data.startswith(ARCHIVE):
        raise ValueError("no intent model: not an .npz file")
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            members = {name: archive[name] for name in archive.files}
        head = _HEAD.decode(members["head"].tobytes())
    except KeyError as error:
        raise ValueError(f"no intent model: {error} is missing") from None
    except Exception as error:  # a damaged archive raises almost anything
        raise ValueError(f"no intent model: {' '.join(str(error).split())[:200]}") from None
    if head.format != FORMAT:
        raise ValueError(f"a model of format {head.format}; this version reads {FORMAT}")
    _check(members, head)
    fold = np.arange(TOP, dtype=np.uint64)
    fold[members["folded_from"]] = members["folded_to"]
    return Weights(
        hashing=Hashing(fold, members["latin"], members["han"], head.bits),
        table=members["table"],
        scale=head.scale,
        bias=members["bias"],
        layer=members["layer"],
        offset=members["offset"],
        temperatures=head.temperatures,
        leans=head.leans,
        labels=head.labels,
        about=head.about,
        digest=hashlib.sha256(data).hexdigest(),
    )


def _check(members: Mapping[str, Any], head: _Head) -> None:
    """A file of the wrong shapes must not be found out by a request."""
    count = len(head.labels)
    width, size = members["latin"].shape[0], members["table"].shape[-1]
    expected = {
        "table": ((1 << head.bits, size), np.int8),
        "bias": ((size,), np.float32),
        "layer": ((size, count), np.float32),
        "offset": ((count,), np.float32),
        "latin": ((width, members["latin"].shape[-1]), np.uint64),
        "han": ((width, members["han"].shape[-1]), np.uint64),
        "folded_from": (members["folded_to"].shape, np.uint16),
        "folded_to": (members["folded_to"].shape, np.uint16),
    }
    for name, (shape, kind) in expected.items():
        found = members[name]
        if found.shape != shape or found.dtype != kind:
            raise ValueError(f"{name} is {found.dtype} {found.shape}, expected {np.dtype(kind)} {shape}")
    if max(members[name].shape[-1] for name in ("latin", "han")) > MOST_ORDERS:
        raise ValueError(f"n-grams of more than {MOST_ORDERS} orders")
    if not count or not 0 < head.scale < np.inf or not all(0 < each < np.inf for each in head.temperatures):
        raise ValueError("no labels, or a scale that is no positive number")
    if not all(abs(each) < np.inf for each in head.leans):
        raise ValueError("a lean that is no number")
    for name in ("bias", "layer", "offset"):
        if not np.isfinite(members[name]).all():
            raise ValueError(f"{name} holds what is no number")
    groups(head.labels)
