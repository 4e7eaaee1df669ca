"""Text that ``fairseq-interactive`` segments itself loses spaces, and ``</s>`` in it may end the sentence.

sentencepiece knows one kind of space and joins unknown characters; fairseq splits the pieces at white space
of every kind and takes one named like a symbol for that symbol. All versions since 0.10 are affected, with
``--bpe sentencepiece``. With this guard, text becomes the same pieces as in ``prepare.py`` and
``translate.py``. Unnecessary once fairseq's ``SentencepieceBPE`` keeps symbols and white space apart.
"""

from fairseq.data.encoders.sentencepiece_bpe import SentencepieceBPE

from ..corpora.reserved import FAIRSEQ, spelled
from ..corpora.spacing import spaced
from .announcing import acted
from .installing import around


@around(SentencepieceBPE, "encode")
def encode(encode, self, x: str) -> str:
    """Segment text by the rules of the corpora; separators of post-editing triplets stay separators."""
    text = spaced(x)
    pieces = encode(self, text).split(" ")
    kept = spelled(pieces, FAIRSEQ)
    if text != x or kept is not pieces:
        acted("typed-text", "reads white space of every kind as spaces, and names of symbols as text")
    return " ".join(kept)
