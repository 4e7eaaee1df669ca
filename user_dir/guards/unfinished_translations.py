"""fairseq's search cuts long translations without a word.

They end at ``max_len_a`` times the source and ``max_len_b`` pieces, by default 0 and 200, in all versions.
With this guard, the first translation that reaches the limit is reported. In validation, where a model that
has learned little repeats itself, only a limit is that the references exceed. Unnecessary once fairseq says
what it has cut.
"""

import logging
import math

from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.tasks.translation import TranslationTask
from torch import Tensor

from .installing import around

logger = logging.getLogger(__name__)


@around(SequenceGenerator, "generate")
@around(SequenceGeneratorWithAlignment, "generate")
def generate(search, self, models, sample, **kwargs):
    """Warn once in the life of a generator, unless its owner counts the translations."""
    found = search(self, models, sample, **kwargs)
    if _tells(self) and any(unfinished(self, sample, found)):
        self.tells_unfinished = False
        limit = longest(self, sample["net_input"]["src_tokens"])
        is_model_s = limit == self.max_len - 1
        logger.warning(
            "warning: a translation reached the limit of %d pieces, and may lack its end; %s (this is said "
            "once)",
            limit,
            "the model allows no more" if is_model_s else "--max-len-a and --max-len-b raise it",
        )
    return found


@around(TranslationTask, "_inference_with_bleu")
def check_references(inference, self, generator, sample, model):
    """In validation, warn once of a reference that is longer than the limit."""
    if _tells(generator):
        generator.tells_unfinished = False
        self._checks_limit = True
    if getattr(self, "_checks_limit", False):
        limit = longest(generator, sample["net_input"]["src_tokens"])
        needed = int(sample["target"].ne(self.tgt_dict.pad()).sum(1).max()) - 1
        if needed > limit:
            self._checks_limit = False
            logger.warning(
                "warning: a reference of validation has %d pieces, but translations end after %d; raise "
                "max_len_a or max_len_b in eval_bleu_args",
                needed,
                limit,
            )
    return inference(self, generator, sample, model)


def longest(generator: SequenceGenerator, source: Tensor) -> int:
    """The most pieces of a translation, without its end, of the (B, S) tokens of a batch."""
    return min(int(generator.max_len_a * source.size(1) + generator.max_len_b), generator.max_len - 1)


def unfinished(generator: SequenceGenerator, sample: dict, found: list[list[dict]]) -> list[bool]:
    """Whether the best translation of each sentence reached the limit, or was given up without an end."""
    source = sample["net_input"].get("src_tokens")
    if source is None or getattr(generator, "match_source_len", False):
        return [False] * len(found)
    limit = longest(generator, source)
    return [
        bool(each) and (len(each[0]["tokens"]) > limit or float(each[0]["score"]) == -math.inf)
        for each in found
    ]


def _tells(generator) -> bool:
    """Whether a generator reports its first unfinished translation."""
    return getattr(generator, "tells_unfinished", True)
