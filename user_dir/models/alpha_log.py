"""The α log: every head's α over training, as JSON lines."""

from __future__ import annotations

import errno
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from ..bounded import bounded_lines
from ..errors import UserError
from ..io import parse_json, write_text

logger = logging.getLogger(__name__)


class AlphaLog:
    """Appends a line ``{"update": u, "encoder_self": [[α of layer 0, head 0, …], …], …}`` at an interval.

    The file is opened when the first line is due. A new training run renames an earlier file; a run that
    resumes from update u removes the lines beyond u, which it will write again.
    """

    def __init__(self, path: str, interval: int):
        self.path = Path(path)
        self.interval = interval
        self.last: int | None = None  # update of the last line; None before the file is opened

    def __deepcopy__(self, memo) -> None:
        """Copies of the model, such as fairseq's moving average, have no log."""

    def record(self, update: int, alphas: dict[str, list[list[float]]]) -> None:
        """Write the line of ``update`` if it is due and not yet written.

        ``alphas``: for each attention type, α by layer and head.
        """
        if self.last is None:
            self.last = self._open(update, _shapes(alphas))
        if update % self.interval or update <= self.last:
            return
        line = {"update": update}
        for attention_type, layers in alphas.items():
            line[attention_type] = [[round(alpha, 6) for alpha in layer] for layer in layers]
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"cannot write --alpha-log {self.path}: {error.strerror}") from None
        self.last = update

    def _open(self, update: int, shapes: dict) -> int:
        """Prepare the file for training that continues from ``update``; returns the last update in it."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not self.path.exists() or not self.path.stat().st_size:
                return -1
            lines = self._lines_until(update)
            if update == 0 or any(each != shapes for _, _, each in lines):
                logger.info("--alpha-log %s is of an earlier run; kept as %s", self.path, self._set_aside())
                return -1
            write_text(self.path, "".join(line + "\n" for _, line, _ in lines))
        except OSError as error:
            raise UserError(f"cannot write --alpha-log {self.path}: {error.strerror}") from None
        return lines[-1][0] if lines else -1

    def _set_aside(self) -> Path:
        number = 1
        while (kept := self.path.with_name(f"{self.path.name}.{number}")).exists():
            number += 1
        os.replace(self.path, kept)
        return kept

    def _kept_lines(self) -> Iterator[str]:
        with self.path.open("rb") as file:
            for line in bounded_lines(file, self.path):
                yield line.decode("utf-8", errors="replace")

    def _lines_until(self, update: int) -> list[tuple[int, str, dict]]:
        lines = []
        for line in self._kept_lines():
            try:
                alphas = parse_json(line)
                line_update = int(alphas.pop("update"))
                shapes = _shapes(alphas)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
                continue  # truncated when the run was killed
            if line_update <= update:
                lines.append((line_update, line, shapes))
        return lines


def _shapes(alphas: dict[str, list[list[float]]]) -> dict[str, list[int]]:
    """The number of heads of every layer, by attention type."""
    return {attention_type: [len(layer) for layer in layers] for attention_type, layers in alphas.items()}
