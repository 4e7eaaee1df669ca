"""What search finds: BLEU by beam size, the most probable translations, and calibration."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from fairseq import utils

from ..checkpoints import load_checkpoint, model_name
from ..corpora import Corpus
from ..corpora.binarised import read_dictionary
from ..corpora.readers import read_made_lines
from ..errors import UserError
from .calibration import calibration
from .direction import translation_direction
from .exact_search import Mode, most_probable
from .limits import translation_limit
from .loading import check_lengths, load_model, load_split
from .scored_split import ScoredSplit
from .search import Search, check_beam
from .split_search import BeamSearch, batches, translate_split
from .text import join_pieces

_KNOWN_BEAM = 5  # for exact search


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
        del state
        self._symbols = len(read_dictionary(corpus.bin, direction[1]))
        self._scored = ScoredSplit(corpus, subset, direction)
        self._subset, self._max_tokens = self._scored.subset, max_tokens
        self._model, self._task = load_model(checkpoint, corpus, direction, cpu=cpu)
        self._limit = self._limit.within(self._model.max_positions()[1])
        self._dataset = load_split(self._task, self._subset)
        words = [len(line.split()) for line in read_made_lines(corpus.text(self._subset, direction[0]))]
        blank = self._dataset.src_sizes == 1  # their empty translation is not the search's
        kept = [i for i, count in enumerate(words[:sentences]) if count >= min_words and not blank[i]]
        if not kept:
            raise UserError(f"no sentence of {subset} has at least --min-words {min_words}")
        self._numbers = np.array(kept)
        self._left_out = sorted({*range(len(words))} - {*kept})
        lengths = check_lengths(self._dataset, self._subset, max_tokens, self._model, left_out=self._left_out)
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
        for beam in beams:
            check_beam(beam, self._symbols)
        padding = self._task.target_dictionary.pad()
        found = calibration(self._model, self._batches("calibration"), padding).facts
        report = {**self.facts, "calibration": found, "beams": []}
        error, tokens = found["expected_calibration_error"], found["tokens"]
        say(f"calibration error {100 * error:.2f} % of {tokens} tokens")
        for beam in beams:
            found = self._beam(beam)
            report["beams"].append(found)
            cut = f", {100 * found['unfinished']:.1f} % reached {self._limit}" if found["unfinished"] else ""
            say(
                f"beam {beam}: BLEU {found['bleu']:.2f}, {100 * found['empty']:.1f} % empty, "
                f"length ratio {found['length_ratio']:.3f}, {found['seconds']:.1f} s{cut}"
            )
        if exact:
            report["exact"] = found = self._exact(most_expansions)
            keys = "completed", "empty_is_most_probable", "empty_may_be_most_probable", "empty_is_possible"
            completed, best, at_most, possible = (f"{100 * found[key]:.1f} %" for key in keys)
            say(
                f"exact search: completed for {completed} of {found['sentences']} sentences; the empty "
                f"translation is the most probable one for {best} of all, at most {at_most}; it has a "
                f"probability for {possible}"
            )
        return report

    def _beam(self, beam: int) -> dict:
        """Scores of one beam size; ``length_ratio`` is that of words to those of the references, or of
        characters where no spaces part words.
        """
        most = max(self._longest, self._max_tokens * _KNOWN_BEAM // max(beam, _KNOWN_BEAM))
        search = Search(beam, self.facts["length_penalty"], self._limit, most)
        what = {"left_out": self._left_out, "description": f"beam {beam}"}
        found = translate_split(self._model, self._task, self._subset, search, **what)
        count = len(found.translations)
        lines, references = (
            self._scored.lines(texts, self._left_out)
            for texts in (found.texts, [each.reference for each in found.translations])
        )
        return {
            "beam": beam,
            "bleu": self._scored.scores(lines, self._left_out)["bleu"],
            "length_ratio": self._scored.size(lines) / max(1, self._scored.size(references)),
            "empty": sum(not text.strip() for text in found.texts) / count,
            "unfinished": len(found.unfinished) / count,
            "seconds": found.seconds,
        }

    def _exact(self, most_expansions: int) -> dict:
        """Shares of the sentences, and the most probable translation of each; null for log p = −∞.

        A search that found anything more probable than the empty translation excludes it, even if it was not
        completed. ``empty_is_most_probable`` counts completed searches that found nothing more probable,
        ``empty_may_be_most_probable`` also those that were not completed.
        """
        modes = self._modes(most_expansions)
        count, dictionary = len(modes), self._task.target_dictionary
        return {
            "sentences": count,
            "completed": sum(mode.exact for mode in modes.values()) / count,
            "empty_is_most_probable": sum(mode.exact and mode.is_empty for mode in modes.values()) / count,
            "empty_may_be_most_probable": sum(mode.is_empty for mode in modes.values()) / count,
            "empty_is_possible": sum(mode.empty_log_p > -math.inf for mode in modes.values()) / count,
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

    def _modes(self, most_expansions: int) -> dict[int, Mode]:
        """The most probable translation of each sentence, by its number."""
        search = BeamSearch([self._model], self._task, Search(_KNOWN_BEAM, 0.0, self._limit))
        pad, modes = self._task.source_dictionary.pad(), {}
        for sample in self._batches("exact search"):
            for row, (number, beams) in enumerate(zip(sample["id"].tolist(), search(sample))):
                found = [(float(each["positional_scores"].sum()), each["tokens"].tolist()) for each in beams]
                log_p, tokens = max(found, key=lambda each: each[0])
                source = utils.strip_pad(sample["net_input"]["src_tokens"][row], pad)
                # Beam search rounds to float32: a little less does not hide what is just as probable.
                known = tokens, log_p - 1e-4
                modes[number] = most_probable(
                    self._model, source, known=known, most_expansions=most_expansions
                )
        return modes

    def _batches(self, description: str) -> Iterator[dict]:
        on_gpu = next(self._model.parameters()).is_cuda
        for sample in batches(self._dataset, self._numbers, self._max_tokens, description):
            yield utils.move_to_cuda(sample) if on_gpu else sample


def _finite(log_p: float) -> float | None:
    """A log-probability for JSON, which has no infinity."""
    return log_p if math.isfinite(log_p) else None
