"""fairseq's search takes two to four times as long as it needs to on a CPU.

In all versions each step copies every cache to reorder it, multiplies with weights that are not laid out for
the processor, and reads the scores of the whole vocabulary some ten times. Unnecessary once fairseq's own
``SequenceGenerator`` is as fast.
"""

from fairseq.tasks.fairseq_task import FairseqTask

from .installing import around


@around(FairseqTask, "build_generator")
def build_generator(
    build, self, models, args, seq_gen_cls=None, extra_gen_cls_kwargs=None, *others, **kwargs
):
    """Build a generator that searches faster where it can."""
    from ..decoding.generator import AligningGenerator, FastGenerator, require_no_int8

    if seq_gen_cls is not None or getattr(args, "score_reference", False):
        require_no_int8(models, "another generator is asked for")
    elif alignment := getattr(args, "print_alignment", None):
        seq_gen_cls = AligningGenerator
        extra_gen_cls_kwargs = {**(extra_gen_cls_kwargs or {}), "print_alignment": alignment}
    else:
        seq_gen_cls = FastGenerator
    return build(self, models, args, seq_gen_cls, extra_gen_cls_kwargs, *others, **kwargs)
