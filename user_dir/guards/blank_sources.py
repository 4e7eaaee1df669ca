"""fairseq invents a translation of a blank line.

In all versions. With this guard, the translation of a source without any piece is blank: of an empty line,
of white space, and of characters that the pieces drop. Not where its beginning is prescribed, and not for
language models, which go on from nothing. Unnecessary once fairseq leaves blank lines blank.
"""

from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from torch import Tensor

from .announcing import acted
from .installing import around


@around(SequenceGenerator, "generate")
@around(SequenceGeneratorWithAlignment, "generate")
def generate(search, self, models, sample, **kwargs):
    """Find an empty translation, with the score 0, of each blank source."""
    found = search(self, models, sample, **kwargs)
    if kwargs.get("prefix_tokens") is None and kwargs.get("constraints") is None:
        for row in _blank_sources(self, sample):
            acted("blank-sources", "leaves blank lines blank")
            found[row] = [_blank(each, self.eos) for each in found[row][:1]]
    return found


def _blank_sources(generator: SequenceGenerator, sample: dict) -> list[int]:
    """The rows of a batch whose source has no piece; none of a model without an encoder."""
    source = sample["net_input"].get("src_tokens")
    if source is None or source.dim() != 2 or not generator.model.has_encoder():
        return []
    return (source.eq(generator.pad) | source.eq(generator.eos)).all(1).nonzero().flatten().tolist()


def _blank(hypothesis: dict, end: int) -> dict:
    """A hypothesis that has only its end, in the form of another."""
    tokens, attention = hypothesis["tokens"], hypothesis.get("attention")
    empty = {
        "tokens": tokens.new_tensor([end]),
        "score": hypothesis["score"].new_zeros(()),
        "positional_scores": hypothesis["positional_scores"].new_zeros(1),
        "alignment": hypothesis["alignment"][:0],
    }
    if isinstance(attention, Tensor) and attention.dim() == 2:
        empty["attention"] = attention[:, :1]
    return {**hypothesis, **empty}
