"""fairseq's search takes two to four times as long as it needs to on a CPU.

In all versions each step copies every cache to reorder it, multiplies with weights that are not laid out for
the processor, and reads the scores of the whole vocabulary some ten times. Unnecessary once fairseq's own
``SequenceGenerator`` is as fast.
"""

from fairseq.tasks.fairseq_task import FairseqTask

from .installing import around


@around(FairseqTask, "build_generator")
def build_generator(build, self, models, args, seq_gen_cls=None, *others, **kwargs):
    """Build a generator that searches faster where it can, and where no weights of attention are needed."""
    from ..decoding import FastGenerator, require_no_int8

    if seq_gen_cls is not None or getattr(args, "score_reference", False):
        require_no_int8(models, "another generator is asked for")
    elif _wants_alignment(args):
        require_no_int8(models, "alignments are asked for")
    else:
        seq_gen_cls = FastGenerator
    return build(self, models, args, seq_gen_cls, *others, **kwargs)


def _wants_alignment(args) -> bool:
    """Whether attention weights are needed: to print alignments, or to replace unknown words."""
    return bool(getattr(args, "print_alignment", None)) or getattr(args, "replace_unk", None) is not None
