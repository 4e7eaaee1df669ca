"""A corpus as seen by other packages: its languages, files and test sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import UserError
from ..files import DATA, SHARED, command_words
from .description import Description, read_description

if TYPE_CHECKING:
    from fairseq.data import Dictionary

TOKENIZER, VOCABULARY = "tokenizer.json", "vocab.txt"  # of a BERT


def _place(*parts: str) -> property:
    """A file or folder of a corpus."""
    return property(lambda corpus: corpus.folder.joinpath(*parts))


@dataclass(frozen=True)
class Corpus:
    """The description and paths of a corpus; its files need not exist yet (see ``require_prepared``)."""

    name: str
    folder: Path
    description: Description

    tokenizers = _place("text")  # the files of a BERT's tokenizer are here
    raw = _place("raw")  # files as downloaded
    segmented = _place("text", "spm")  # the text in pieces, one file SUBSET.LANGUAGE per file of ``text``
    written = property(lambda corpus: [corpus.folder / name for name in ("text", "bin", "pretraining")])
    bin = _place("bin")  # fairseq's binarised data: the ``data`` of its commands, for both directions
    pretraining = _place("pretraining")  # binarised text for masked language modelling, if there is such text
    spm_model = _place("spm.model")  # the sentencepiece model of both languages

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language code."""
        return self.description.languages

    @property
    def subsets(self) -> dict[str, str]:
        """Public name of every split → its fairseq subset: train, valid and the test sets."""
        return self.description.subsets

    @property
    def test_sets(self) -> dict[str, str]:
        """Public name of each test set → its fairseq subset, in the order of ``corpus.yaml``."""
        return {name: subset for name, subset in self.subsets.items() if name not in ("train", "valid")}

    @property
    def pieces(self) -> Path:
        """The file that segments text into pieces: the sentencepiece model, or the tokenizer of a BERT.

        The tokenizer is a mere ``vocab.txt`` if no other file of the BERT said how it normalises text.
        """
        if not self.description.wordpiece:
            return self.spm_model
        tokenizer = self.tokenizers / TOKENIZER
        return tokenizer if tokenizer.is_file() else tokenizer.with_name(VOCABULARY)

    def subset(self, name: str) -> str:
        """The fairseq subset of a split, by its public or fairseq name; raises UserError if unknown."""
        subset = self.subsets.get(name, name)
        if subset not in self.subsets.values():
            known = ", ".join(self.subsets.values())
            raise UserError(f"the corpus {self.name} has no subset {subset!r}; it has {known}")
        return subset

    def split(self, subset: str) -> str:
        """The public name of a fairseq subset: train, valid or that of a test set."""
        subset = self.subset(subset)
        return next(name for name, other in self.subsets.items() if other == subset)

    def text(self, subset: str, language: str) -> Path:
        """The text as released, one sentence per line; ``subset`` is a fairseq subset or a public name."""
        return self.folder / "text" / self._file(subset, language)

    def reference(self, subset: str, language: str) -> Path:
        """The original text to score translations against: ``text``, or a separate reference."""
        other = self.folder / "text" / "reference" / self._file(subset, language)
        return other if other.is_file() else self.text(subset, language)

    def uncorrected(self, subset: str) -> Path:
        """The machine translations to be corrected; only in a triplet corpus."""
        return self.folder / "text" / "mt" / self._file(subset, self.languages[1])

    def normalised(self, subset: str, language: str) -> Path:
        """The text before segmentation: ``text``, or the result of the ``normalise`` steps."""
        steps = self.description.steps(self.split(subset))
        return self.folder / "text" / ("normalised" if steps else "") / self._file(subset, language)

    def pretraining_text(self) -> list[Path]:
        """The text for masked language modelling, to train on and to validate; none for most corpora."""
        folder = self.folder / "text" / "pretraining"
        return [folder / "train.txt", folder / "valid.txt"] if self.description.pretraining else []

    def _file(self, subset: str, language: str) -> str:
        if language not in self.languages:
            known = " and ".join(self.languages)
            raise UserError(f"the corpus {self.name} has no language {language!r}; it has {known}")
        return f"{self.subset(subset)}.{language}"

    def require_prepared(self) -> Corpus:
        """Return the corpus itself, or raise a UserError that says how to prepare it."""
        if not (self.bin / "stamp.json").is_file():
            command = " ".join([*command_words("prepare"), self.name])
            raise UserError(f"the corpus {self.name} is not prepared in {self.folder}; run: {command}")
        return self


def known_corpora(data_dir: Path | str | None = None) -> list[str]:
    """Names of all corpora with a ``corpus.yaml`` in ``data_dir``, in ``data`` or of the package."""
    folders = {DATA, SHARED / "data", Path(data_dir or DATA)}
    return sorted({path.parent.name for folder in folders for path in folder.glob("*/corpus.yaml")})


def load_corpus(name: str, data_dir: Path | str | None = None) -> Corpus:
    """Find a corpus by name.

    Its files are in ``data_dir/name`` (default: the repository's ``data``). Its ``corpus.yaml`` is read from
    there, from ``data`` or else from the package. Raises UserError for an unknown name, listing those known.
    """
    folder = Path(data_dir or DATA).resolve() / name
    places = [folder, DATA / name, SHARED / "data" / name]
    described = next((place / "corpus.yaml" for place in places if (place / "corpus.yaml").is_file()), None)
    if described is None or "/" in name:
        known = ", ".join(known_corpora(data_dir))
        raise UserError(f"there is no corpus {name!r} with a file {folder}/corpus.yaml; known are {known}")
    return Corpus(name, folder, read_description(described))


def read_dictionary(folder: Path, language: str | None = None) -> Dictionary:
    """fairseq's dictionary in a folder of binarised data: that of a language, or ``dict.txt`` for None."""
    from fairseq.data import Dictionary

    path = folder / (f"dict.{language}.txt" if language else "dict.txt")
    try:
        return Dictionary.load(str(path))
    except (OSError, ValueError, RuntimeError) as error:
        raise UserError(f"cannot read the dictionary {path}: {error}") from None


def sentence_lengths(folder: Path, subset: str, languages: tuple[str, str], side: str) -> np.ndarray:
    """The length of each sentence of a side, in tokens with ``</s>``."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset

    data = MMapIndexedDataset(str(folder / f"{subset}.{'-'.join(languages)}.{side}"))
    return np.array(data.sizes, np.int64)  # a copy, because the map is closed with the data
