"""The symbols of a vocabulary by number, as fairseq numbers them; without fairseq."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

BOS, PAD, EOS, UNKNOWN = "<s>", "<pad>", "</s>", "<unk>"
_OVERWRITE = "#fairseq:overwrite"


class Dictionary:
    """Symbols by number, and numbers by symbol.

    Attributes:
        symbols: in the order of their numbers; the first four are fairseq's own.
        indices: the number of each symbol, of equal ones the last.
    """

    def __init__(self, symbols: Iterable[str] = ()):
        self.symbols = [BOS, PAD, EOS, UNKNOWN, *symbols]
        self.indices = {symbol: number for number, symbol in enumerate(self.symbols)}

    @classmethod
    def load(cls, path: Path) -> Dictionary:
        """Read a file with ``SYMBOL COUNT`` on each line, as ``fairseq.data.Dictionary.load``.

        Raises:
            ValueError: a line is no such pair, or has a symbol a second time without fairseq's flag for it.
        """
        symbols, known = [], {BOS, PAD, EOS, UNKNOWN}
        with path.open(encoding="utf-8") as file:
            for line in file:
                symbol, separator, count = line.rstrip().rpartition(" ")
                again = count == _OVERWRITE
                if again:
                    symbol, separator, count = symbol.rpartition(" ")
                if not separator:
                    raise ValueError(f"expected a symbol and its count, not {line.strip()!r}")
                int(count)
                if symbol in known and not again:
                    raise ValueError(f"it has {symbol!r} twice")
                known.add(symbol)
                symbols.append(symbol)
        return cls(symbols)

    def __len__(self) -> int:
        return len(self.symbols)

    def __getitem__(self, number: int) -> str:
        return self.symbols[number] if number < len(self.symbols) else UNKNOWN

    def index(self, symbol: str) -> int:
        """The number of a symbol, or that of ``<unk>``."""
        return self.indices.get(symbol, self.unk())

    def bos(self) -> int:
        """The number of ``<s>``."""
        return 0

    def pad(self) -> int:
        """The number of ``<pad>``."""
        return 1

    def eos(self) -> int:
        """The number of ``</s>``."""
        return 2

    def unk(self) -> int:
        """The number of ``<unk>``."""
        return 3

    def encode(self, pieces: str) -> list[int]:
        """The numbers of pieces that white space parts, and that of ``</s>``."""
        return [*map(self.index, pieces.split()), self.eos()]

    def decode(self, numbers: Iterable[int]) -> str:
        """Symbols joined by spaces, without ``<s>`` and ``</s>``."""
        return " ".join(self[number] for number in numbers if number not in (self.bos(), self.eos()))
