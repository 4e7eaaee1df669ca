"""The α log: every head's α over training, in JSON lines."""

from __future__ import annotations

import errno
import json
import logging
import os
from pathlib import Path

from torch import Tensor

from ..errors import UserError

logger = logging.getLogger(__name__)


class AlphaLog:
    """Appends a line ``{"update": u, "encoder_self": [[α of layer 0, head 0, …], …], …}`` every so often.

    The file is opened at the first line that is due. Training that begins anew sets an earlier file aside;
    training that resumes from update u drops the lines beyond u, which it is about to write again.
    """

    def __init__(self, path: str, interval: int):
        self.path = Path(path)
        self.interval = interval
        self.last: int | None = None  # update of the last line; None until the file was opened
        self.told: dict | None = (
            None  # the line of the update that the model was last told of, written or not
        )

    def record(self, update: int, alphas: dict[str, list[Tensor]]) -> None:
        """Write the line of ``update`` if it is due and not there yet."""
        if self.last is None:
            self.last = self._open(update)
        line = self.told = _line(update, alphas)
        if update % self.interval or update <= self.last:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise UserError(f"cannot write --alpha-log {self.path}: {error.strerror}") from None
        self.last = update

    def record_last(self, alphas: dict[str, list[Tensor]]) -> None:
        """Write the line of the update that was just made, of which fairseq tells only as the next begins.

        That it was made shows in the α's: they have moved.
        """
        if self.told is not None and _line(self.told["update"], alphas) != self.told:
            self.record(self.told["update"] + 1, alphas)

    def _open(self, update: int) -> int:
        """Make the file ready for training that goes on from ``update``; returns the last update it holds."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if not self.path.exists() or not self.path.stat().st_size:
                return -1
            if update == 0:
                logger.info("--alpha-log %s is of an earlier run; kept as %s", self.path, self._set_aside())
                return -1
            lines = self._lines_until(update)
            beside = self.path.with_name(self.path.name + ".tmp")
            beside.write_text("".join(line + "\n" for _, line in lines), encoding="utf-8")
            os.replace(beside, self.path)
        except OSError as error:
            raise UserError(f"cannot write --alpha-log {self.path}: {error.strerror}") from None
        return lines[-1][0] if lines else -1

    def _set_aside(self) -> Path:
        number = 1
        while (kept := self.path.with_name(f"{self.path.name}.{number}")).exists():
            number += 1
        os.replace(self.path, kept)
        return kept

    def _lines_until(self, update: int) -> list[tuple[int, str]]:
        lines = []
        for line in self.path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                line_update = json.loads(line)["update"]
            except (ValueError, TypeError, KeyError):
                continue  # cut short when the run was killed
            if line_update <= update:
                lines.append((line_update, line))
        return lines


def _line(update: int, alphas: dict[str, list[Tensor]]) -> dict:
    line = {"update": update}
    for attention_type, layers in alphas.items():
        line[attention_type] = [[round(alpha, 6) for alpha in layer.tolist()] for layer in layers]
    return line
