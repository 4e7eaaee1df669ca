"""What search finds: BLEU by beam size, the most probable translations, and calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from fairseq import utils
from tqdm import tqdm

from ..checkpoints import load_checkpoint, model_name
from ..corpora import Corpus
from ..corpora.binarised import read_dictionary
from ..corpora.readers import read_made_lines
from ..errors import UserError
from .calibration import Calibration, calibration
from .exact_search import Mode, most_probable
from .limits import translation_limit
from .loading import check_lengths, load_model, load_split, translation_direction
from .restoring import join_pieces
from .scored_split import ScoredSplit
from .split_search import BeamSearch, batches, check_beam, translate_split

_KNOWN_BEAM = 5  # for exact search


@dataclass(frozen=True)
class BeamResult:
    """Translations of a split with one beam size.

    Attributes:
        beam: beam size.
        bleu: of the detokenised translations.
        length_ratio: number of words of the translations as a share of that of the references.
        empty: share of sentences with an empty translation.
        unfinished: share of sentences whose translation reached the limit of length.
        seconds: time of the search.
    """

    beam: int
    bleu: float
    length_ratio: float
    empty: float
    unfinished: float
    seconds: float


class SearchStudy:
    """A model and a split of its corpus, to be searched in several ways.

    Args:
        checkpoint: of a fairseq translation model.
        corpus: a prepared corpus.
        subset: name of the split, public or fairseq's.
        sentences: only the first N sentences; None for all.
        min_words: only sentences whose source has at least so many words, separated by spaces.
        max_tokens: batch size in tokens of one side for beam 5; batches for wider beams are smaller.
        length_penalty: fairseq's ``--lenpen`` for the beams; the most probable translation has none.
        cpu: use the CPU even if there is a GPU.

    Raises:
        UserError: checkpoint, corpus and split do not match.
    """

    def __init__(
        self,
        checkpoint: Path,
        corpus: Corpus,
        subset: str,
        *,
        sentences: int | None = None,
        min_words: int = 0,
        max_tokens: int = 4096,
        length_penalty: float = 1.0,
        cpu: bool = False,
    ):
        state = load_checkpoint(checkpoint)
        direction = translation_direction(state, checkpoint, corpus)
        self._limit = translation_limit(state, corpus)
        self.facts = {
            "checkpoint": str(checkpoint),
            "model": model_name(state),
            "corpus": corpus.name,
            "subset": corpus.split(subset),
            "direction": "-".join(direction),
            "length_penalty": length_penalty,
        }
        self._symbols = len(read_dictionary(corpus.bin, direction[1]))
        self._scored = ScoredSplit(corpus, subset, direction)
        self.model, self.task = load_model(checkpoint, corpus, direction, cpu=cpu)
        self._subset = corpus.subset(subset)
        self._max_tokens, self._length_penalty = max_tokens, length_penalty
        self._dataset = load_split(self.task, self._subset)
        words = [len(line.split()) for line in read_made_lines(corpus.text(self._subset, direction[0]))]
        blank = self._dataset.src_sizes == 1  # their empty translation is not the search's
        kept = [
            number
            for number, count in enumerate(words[:sentences])
            if count >= min_words and not blank[number]
        ]
        if not kept:
            raise UserError(f"no sentence of {subset} has at least --min-words {min_words}")
        self._numbers = np.array(kept)
        self._left_out = sorted({*range(len(words))} - {*kept})
        lengths = check_lengths(self._dataset, self._subset, max_tokens, self.model, left_out=self._left_out)
        self._longest = int(lengths.max())
        self.facts.update(sentences=len(kept), min_words=min_words)

    def report(
        self,
        beams: Sequence[int],
        say: Callable[[str], None],
        *,
        exact: bool = True,
        most_expansions: int = 5000,
    ) -> dict:
        """Calibration, results by beam, and those of exact search.

        Args:
            beams: beam sizes.
            say: told each result in a line as soon as it is known.
            exact: whether to search for the most probable translations.
            most_expansions: prefixes per sentence after which exact search gives up.

        Raises:
            UserError: a beam is too large for the vocabulary.
        """
        self.check_beams(beams)
        found = self.calibration().facts
        report = {**self.facts, "calibration": found, "beams": []}
        error, tokens = found["expected_calibration_error"], found["tokens"]
        say(f"calibration error {100 * error:.2f} % of {tokens} tokens")
        for beam in beams:
            result = self.beam(beam)
            report["beams"].append(asdict(result))
            say(
                f"beam {beam}: BLEU {result.bleu:.2f}, {100 * result.empty:.1f} % empty, "
                f"length ratio {result.length_ratio:.3f}, {result.seconds:.1f} s"
                + (f", {100 * result.unfinished:.1f} % reached {self._limit}" if result.unfinished else "")
            )
        if exact:
            report["exact"] = found = self.mode_facts(self.modes(most_expansions))
            keys = "completed", "empty_is_most_probable", "empty_may_be_most_probable", "empty_is_possible"
            completed, best, at_most, possible = (f"{100 * found[key]:.1f} %" for key in keys)
            say(
                f"exact search: completed for {completed} of {found['sentences']} sentences; the empty "
                f"translation is the most probable one for {best} of all, at most {at_most}; it has a "
                f"probability for {possible}"
            )
        return report

    def check_beams(self, beams: Sequence[int]) -> None:
        """Raise UserError unless fairseq can search with all of these beams."""
        for beam in beams:
            check_beam(beam, self._symbols)

    def beam(self, beam: int) -> BeamResult:
        """Translate the split by beam search."""
        found = translate_split(
            self.model,
            self.task,
            self._subset,
            beam=beam,
            length_penalty=self._length_penalty,
            limit=self._limit,
            max_tokens=max(self._longest, self._max_tokens * _KNOWN_BEAM // max(beam, _KNOWN_BEAM)),
            left_out=self._left_out,
            description=f"beam {beam}",
        )
        references = [each.reference for each in found.translations]
        words = sum(len(each.text.split()) for each in found.translations)
        return BeamResult(
            beam,
            self._scored.scores(self._scored.lines(found.texts), self._left_out)["bleu"],
            words / max(1, sum(len(reference.split()) for reference in references)),
            sum(not each.text.strip() for each in found.translations) / len(references),
            len(found.unfinished) / len(references),
            found.seconds,
        )

    def calibration(self, bins: int = 20) -> Calibration:
        """Calibration of the next tokens of the references."""
        return calibration(self.model, self._batches("calibration"), self.task.target_dictionary.pad(), bins)

    def modes(self, most_expansions: int) -> dict[int, Mode]:
        """The most probable translation of each sentence, by its number."""
        search = BeamSearch([self.model], self.task, _KNOWN_BEAM, 0.0, self._limit)
        pad, modes = self.task.source_dictionary.pad(), {}
        for sample in self._batches("exact search"):
            for row, (number, beams) in enumerate(zip(sample["id"].tolist(), search(sample))):
                known = max(
                    ((each["tokens"].tolist(), float(each["positional_scores"].sum())) for each in beams),
                    key=lambda each: each[1],
                )
                source = utils.strip_pad(sample["net_input"]["src_tokens"][row], pad)
                # Beam search rounds to float32: a little less does not hide what is just as probable.
                known = (known[0], known[1] - 1e-4)
                modes[number] = most_probable(
                    self.model, source, known=known, most_expansions=most_expansions
                )
        return modes

    def mode_facts(self, modes: dict[int, Mode]) -> dict:
        """Shares over sentences, and each sentence's mode as text; null for log p = −∞.

        A search that found anything more probable than the empty translation excludes it, even if it was not
        completed. ``empty_is_most_probable`` counts completed searches that found nothing more probable,
        ``empty_may_be_most_probable`` also those that were not completed.
        """
        count, exact = len(modes), [mode for mode in modes.values() if mode.exact]
        dictionary = self.task.target_dictionary
        return {
            "sentences": count,
            "completed": len(exact) / count,
            "empty_is_most_probable": sum(mode.is_empty for mode in exact) / count,
            "empty_may_be_most_probable": sum(mode.is_empty for mode in modes.values()) / count,
            "empty_is_possible": sum(mode.empty_log_p > float("-inf") for mode in modes.values()) / count,
            "mean_expanded": sum(mode.expanded for mode in modes.values()) / count,
            "modes": [
                {
                    "sentence": number,
                    "text": join_pieces(dictionary.string(mode.tokens[:-1])),
                    "log_p": _finite(mode.log_p),
                    "empty_log_p": _finite(mode.empty_log_p),
                    "exact": mode.exact,
                    "expanded": mode.expanded,
                }
                for number, mode in sorted(modes.items())
            ],
        }

    def _batches(self, description: str) -> Iterator[dict]:
        on_gpu = next(self.model.parameters()).is_cuda
        with tqdm(total=len(self._numbers), desc=description, unit="sentence", disable=None) as progress:
            for sample in batches(self._dataset, self._numbers, self._max_tokens):
                yield utils.move_to_cuda(sample) if on_gpu else sample
                progress.update(len(sample["id"]))


def _finite(log_p: float) -> float | None:
    """A log-probability for JSON, which has no infinity."""
    return log_p if math.isfinite(log_p) else None
