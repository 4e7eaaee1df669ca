"""Position and segment embeddings of BERT for two segments whose positions both start at 0."""

from typing import Dict, Optional

import torch
from torch import Tensor, nn


class SegmentedPositions(nn.Module):
    """The sum of position and segment embeddings, which is added to word embeddings.

    Segment A ends with the first separator. In segment B, positions start again at 0 (Correia and Martins
    2019). Padding is not counted, so left and right padding make no difference. Without a
    separator, all tokens belong to one segment: in an encoder to A, in a decoder to B.

    Args:
        max_positions: number of positions of a segment.
        embed_dim: C.
        padding_idx: index of the padding token.
        separator: index of the separator; None for a decoder, which reads segment B only.
    """

    def __init__(self, max_positions: int, embed_dim: int, padding_idx: int, separator: Optional[int] = None):
        super().__init__()
        self.max_positions = max_positions
        self.padding_idx = padding_idx
        self.separator = -1 if separator is None else separator
        self.alone = 1 if separator is None else 0
        self.positions = nn.Embedding(max_positions, embed_dim)
        self.segments = nn.Embedding(2, embed_dim)
        for table in (self.positions, self.segments):
            nn.init.normal_(table.weight, std=embed_dim**-0.5)

    def share(self, other: "SegmentedPositions") -> None:
        """Use the tables of another module."""
        self.positions = other.positions
        self.segments = other.segments

    def forward(
        self,
        tokens: Tensor,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
    ) -> Tensor:
        """Embeddings (B, T, C) of ``tokens`` (B, T); only the last, (B, 1, C), with an ``incremental_state``.

        fairseq passes all previous tokens in incremental decoding, too, so that no state is needed.
        """
        number = tokens.ne(self.padding_idx).cumsum(1) - 1  # (B, T)
        segment = torch.full_like(number, self.alone)
        if self.separator >= 0:
            separators = tokens.eq(self.separator).long()
            in_second = (separators.cumsum(1) - separators).gt(0)  # after the first separator
            last = number.masked_fill(in_second, -1).amax(1, keepdim=True)
            number = torch.where(in_second, number - last - 1, number)
            segment = in_second.long()
        if incremental_state is not None:
            number, segment = number[:, -1:], segment[:, -1:]
        return self.positions(number.clamp(min=0)) + self.segments(segment)
