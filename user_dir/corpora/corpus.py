"""A corpus as seen by other packages: its languages, files and test sets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..checkout import DATA, SHARED, command_words
from ..errors import UserError
from ..io import name_fault, shown
from . import normalising
from .bert_tokenizer import TOKENIZER, VOCABULARY
from .description import Description, read_description


def _place(*parts: str) -> property:
    """A file or folder of a corpus."""
    return property(lambda corpus: corpus.folder.joinpath(*parts))


@dataclass(frozen=True)
class Corpus:
    """The paths and description of a corpus, which need not exist yet (see ``require_prepared``)."""

    name: str
    folder: Path
    description: Description

    raw = _place("raw")  # files as downloaded
    extracted = _place("extracted")  # members of archives; not needed once the text exists
    segmented = _place("text", "spm")  # the text in pieces, one file SUBSET.LANGUAGE per file of ``text``
    bin = _place("bin")  # fairseq's binarised data: the ``data`` of its commands, for both directions
    pretraining = _place("pretraining")  # binarised text for masked language modelling, if there is such text
    spm_model = _place("spm.model")  # the sentencepiece model of both languages

    @property
    def languages(self) -> tuple[str, str]:
        """Source and target language code."""
        return self.description.languages

    @property
    def test_sets(self) -> dict[str, str]:
        """Public name of each test set → its fairseq subset, in the order of ``corpus.yaml``."""
        return self.description.test_sets

    @property
    def subsets(self) -> dict[str, str]:
        """Name of every split → its fairseq subset: train, valid and the test sets."""
        return {"train": "train", "valid": "valid", **self.test_sets}

    @property
    def written(self) -> list[Path]:
        """All folders that preparation writes to, except for that of downloads."""
        text = self.folder / "text"
        inner = [text / name for name in ("reference", "normalised", "mt", "pretraining")]
        return [self.extracted, text, *inner, self.segmented, self.bin, self.pretraining]

    @property
    def kept(self) -> list[Path]:
        """Its files and folders, which the output of no command may replace."""
        return [self.raw, *self.written, self.spm_model, self.pieces, self.description.path]

    @property
    def pieces(self) -> Path:
        """What segments text into pieces: the sentencepiece model, or the tokenizer of a BERT.

        Of that, only ``vocab.txt`` is there if no other file of the BERT said how it treats text.
        """
        if not self.description.wordpiece:
            return self.spm_model
        tokenizer = self.folder / "text" / TOKENIZER
        return tokenizer if tokenizer.is_file() else tokenizer.with_name(VOCABULARY)

    def subset(self, name: str) -> str:
        """The fairseq subset of a split, by its public or fairseq name; raises UserError if unknown."""
        subset = self.subsets.get(name, name)
        if subset not in self.subsets.values():
            known = ", ".join(self.subsets.values())
            raise UserError(f"the corpus {self.name} has no subset {subset!r}; it has {known}")
        return subset

    def text(self, subset: str, language: str) -> Path:
        """The text as released, one sentence per line; ``subset`` is a fairseq subset or a public name."""
        return self.folder / "text" / self._file(subset, language)

    def reference(self, subset: str, language: str) -> Path:
        """The original text to score translations against: ``text``, or a separate reference."""
        other = self.folder / "text" / "reference" / self._file(subset, language)
        return other if other.is_file() else self.text(subset, language)

    def uncorrected(self, subset: str) -> Path:
        """Of a triplet corpus: the machine translations that are to be corrected."""
        return self.folder / "text" / "mt" / self._file(subset, self.languages[1])

    def normalised(self, subset: str, language: str) -> Path:
        """The text before segmentation: ``text``, or the result of the ``normalise`` steps."""
        name = self._file(subset, language)
        steps = normalising.steps_of(self.description, self.split(subset))
        return self.folder / "text" / ("normalised" if steps else "") / name

    def split(self, subset: str) -> str:
        """The public name of a fairseq subset: train, valid or that of a test set."""
        subset = self.subset(subset)
        return next(name for name, each in self.subsets.items() if each == subset)

    def _file(self, subset: str, language: str) -> str:
        subset = self.subset(subset)
        if language not in self.languages:
            raise UserError(
                f"the corpus {self.name} has no language {language!r}; it has {' and '.join(self.languages)}"
            )
        return f"{subset}.{language}"

    def require_prepared(self) -> Corpus:
        """Return the corpus itself, or raise a UserError that says how to prepare it."""
        if not (self.bin / "stamp.json").is_file():
            raise UserError(
                f"the corpus {self.name} is not prepared in {self.folder}; "
                f"run: {' '.join(command_words('prepare', 'prepare'))} {self.name}"
            )
        return self


def known_corpora(data_dir: Path | str | None = None) -> list[str]:
    """Names of all corpora with a ``corpus.yaml`` in ``data_dir``, in ``data`` or of the package.

    Folders whose name is not a valid corpus name are skipped.
    """
    folders = {DATA, SHARED / "data", Path(data_dir or DATA)}
    names = {path.parent.name for folder in folders for path in folder.glob("*/corpus.yaml")}
    return sorted(name for name in names if name_fault(name) is None)


def load_corpus(name: str, data_dir: Path | str | None = None) -> Corpus:
    """Find a corpus by name.

    Its files are in ``data_dir/name`` (default: the repository's ``data``). Its ``corpus.yaml`` is read from
    there, from ``data`` or else from the package. Raises UserError for an unknown name, listing those known.
    """
    fault = name_fault(name)
    if fault is not None:
        raise UserError(f"there is no corpus {shown(name)}: the name {fault}")
    folder = Path(data_dir or DATA).resolve() / name
    described = folder / "corpus.yaml"
    others = (place / name / "corpus.yaml" for place in (DATA, SHARED / "data"))
    known = known_corpora(data_dir)
    if name not in known:
        choose = f"choose from {', '.join(known)}, or " if known else ""
        raise UserError(f"there is no corpus {name!r}; {choose}describe yours in {described}")
    found = next(path for path in (described, *others) if path.is_file())
    return Corpus(name, folder, read_description(found))
