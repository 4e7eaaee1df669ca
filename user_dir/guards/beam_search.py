"""fairseq's search takes two to four times as long as it needs to on a CPU.

In all versions each step copies every cache to reorder it, multiplies with weights that are not laid out for
the processor, and reads the scores of the whole vocabulary some ten times. Unnecessary once fairseq's own
``SequenceGenerator`` is as fast.
"""

from __future__ import annotations

import functools

from fairseq.tasks.fairseq_task import FairseqTask


def install() -> None:
    """Build generators that search faster wherever they can, and need no weights of attention."""
    build = FairseqTask.build_generator

    @functools.wraps(build)
    def build_generator(self, models, args, seq_gen_cls=None, *others, **kwargs):
        from ..decoding import FastGenerator, require_no_int8

        if seq_gen_cls is not None or getattr(args, "score_reference", False):
            require_no_int8(models, "another generator is asked for")
        elif wants_alignment(args):
            require_no_int8(models, "alignments are asked for")
        else:
            seq_gen_cls = FastGenerator
        return build(self, models, args, seq_gen_cls, *others, **kwargs)

    FairseqTask.build_generator = build_generator


def wants_alignment(args) -> bool:
    """Whether attention weights are needed: to print alignments, or to replace unknown words."""
    return bool(getattr(args, "print_alignment", None)) or getattr(args, "replace_unk", None) is not None
