"""fairseq's task ``masked_lm`` masks the separator of two segments, so that models see one segment.

It masks any token of a line (0.12.2 and later), ``<s>`` and ``</s>`` too. With ``[SEP]`` masked, and
``--mask-prob 0.15``, every eighth line ``src [SEP] mt`` has segment A and running positions throughout; BERT
(Devlin et al. 2019) masks words only. Only ``[SEP]`` is kept, so that other corpora are masked as before.
Unnecessary once fairseq lets special tokens be excluded.
"""

import torch
from fairseq.data.mask_tokens_dataset import MaskTokensDataset

from ..corpora.pieces import separator_of
from . import around


@around(MaskTokensDataset, "__getitem__")
def line(read, self, index):
    """Keep the separators of the line, and do not ask for them; the others are masked as by fairseq."""
    tokens, separator = read(self, index), separator_of(self.vocab.indices)
    if separator is None or self.skip_masking:
        return tokens
    rest = self.pad_idx if self.return_masked_tokens else separator
    kept = torch.as_tensor(self.dataset[index]).eq(separator) & tokens.ne(rest)
    if not kept.any():
        return tokens
    return tokens.masked_fill(kept, rest)  # a copy: fairseq keeps what it has read
