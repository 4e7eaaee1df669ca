"""fairseq's ``--bf16`` asks for a TPU as well, and ends with an AttributeError where there is none.

fairseq (0.12.2 and later) sets ``tpu`` whenever ``--bf16`` is given on the command line, although its trainer
computes in bfloat16 on GPUs and CPUs, as it does for ``common.bf16=true`` of a config. Without the library
for TPUs, the flag means no more than that here. Unnecessary once fairseq's parser leaves ``tpu`` to
``--tpu``.
"""

import sys
from importlib.util import find_spec

from fairseq import options

from .installing import around


@around(options, "parse_args_and_arch")
def parse_args_and_arch(parse, parser, input_args=None, *args, **kwargs):
    """Parse a command line as fairseq does, but for ``tpu`` where none is asked for and there can be none."""
    found = parse(parser, input_args, *args, **kwargs)
    given = found[0] if isinstance(found, tuple) else found  # else with the words that are not known
    asked = "--tpu" in (sys.argv if input_args is None else input_args)
    if getattr(given, "bf16", False) and not asked and find_spec("torch_xla") is None:
        given.tpu = False
    return found
