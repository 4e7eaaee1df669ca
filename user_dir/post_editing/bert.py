"""Our encoder and decoder as one BERT: segments, positions that start again, an output layer with a bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..corpora.pieces import SEPARATOR, separator_of
from ..errors import UserError
from ..models.layers import AdaptivelySparseDecoder, AdaptivelySparseEncoder, use_onednn


class SegmentedPositions(nn.Module):
    """The sum of position and segment embeddings, which is added to word embeddings.

    Segment A ends with the first separator. In segment B, positions start again at 0 (Correia and Martins
    2019). Padding is not counted, so left and right padding make no difference. Without a
    separator, all tokens belong to one segment: in an encoder to A, in a decoder to B.

    Args:
        cfg: fairseq's settings of the model, which say how many positions a segment has.
        embed_tokens: the word embeddings.
        separator: index of the separator; None for a decoder, which reads segment B only.
    """

    def __init__(self, cfg, embed_tokens: nn.Embedding, separator: int | None = None):
        super().__init__()
        embed_dim = embed_tokens.embedding_dim
        self.max_positions = max(cfg.max_source_positions, cfg.max_target_positions)
        self.padding_idx = embed_tokens.padding_idx
        self.separator = separator
        self.positions = nn.Embedding(self.max_positions, embed_dim)
        self.segments = nn.Embedding(2, embed_dim)
        for table in (self.positions, self.segments):
            nn.init.normal_(table.weight, std=embed_dim**-0.5)

    def forward(
        self,
        tokens: Tensor,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
    ) -> Tensor:
        """Embeddings (B, T, C) of ``tokens`` (B, T); only the last, (B, 1, C), with an ``incremental_state``.

        fairseq passes all previous tokens in incremental decoding, too, so that no state is needed.
        """
        number = tokens.ne(self.padding_idx).cumsum(1) - 1  # (B, T)
        segment = torch.ones_like(number)
        if self.separator is not None:
            separators = tokens.eq(self.separator).long()
            in_second = (separators.cumsum(1) - separators).gt(0)  # after the first separator
            last = number.masked_fill(in_second, -1).amax(1, keepdim=True)
            number = torch.where(in_second, number - last - 1, number)
            segment = in_second.long()
        if incremental_state is not None:
            number, segment = number[:, -1:], segment[:, -1:]
        return self.positions(number.clamp(min=0)) + self.segments(segment)


def set_eps(module: nn.Module, eps: float) -> None:
    """Set ε of every LayerNorm; BERT's is 1e-12, PyTorch's 1e-5."""
    for submodule in module.modules():
        if hasattr(submodule, "eps") and hasattr(submodule, "normalized_shape"):  # apex's, too
            submodule.eps = eps


class BertEncoder(AdaptivelySparseEncoder):
    """Our encoder with BERT's embeddings: words + positions + segments, LayerNorm, dropout.

    With ``drops_separator``, the separator is masked like padding once segments and positions are known.
    """

    def __init__(self, cfg, dictionary, embed_tokens):
        super().__init__(cfg, dictionary, embed_tokens)
        self.separator = separator_of(dictionary.indices)
        if self.separator is None:
            raise UserError(f"the dictionary has no {SEPARATOR}; prepare the triplets as a corpus")
        self.input_positions = SegmentedPositions(cfg, embed_tokens, self.separator)
        self.drops_separator = False

    def forward(
        self,
        src_tokens,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ):
        """See fairseq; ``src_tokens`` of the result are used by the decoder."""
        if token_embeddings is None:
            token_embeddings = self.embed_tokens(src_tokens)
        embeddings = token_embeddings + self.input_positions(src_tokens)
        seen = src_tokens
        if self.drops_separator:
            seen = src_tokens.masked_fill(src_tokens.eq(self.separator), self.padding_idx)
        output = self.forward_scriptable(seen, src_lengths, return_all_hiddens, embeddings)
        output["src_tokens"] = [src_tokens]
        return output


class BertDecoder(AdaptivelySparseDecoder):
    """Our decoder with BERT's embeddings, in segment B, and an output layer with a bias.

    ``new_piece_penalty`` is subtracted, outside training, from the logits of pieces that stand neither in the
    source nor in the machine translation (Lopes et al. 2019, aclanthology.org/W19-5413), except ``</s>``.
    """

    def __init__(self, cfg, dictionary, embed_tokens):
        super().__init__(cfg, dictionary, embed_tokens)
        self.embed_positions = SegmentedPositions(cfg, embed_tokens)
        self.new_piece_penalty = 0.0
        self.eos = dictionary.eos()

    def build_output_projection(self, cfg, dictionary, embed_tokens):
        """The output layer, with the embeddings as weight."""
        layer = nn.Linear(embed_tokens.embedding_dim, embed_tokens.num_embeddings)
        layer.weight = embed_tokens.weight
        self.output_projection = use_onednn(layer)

    def outputs(
        self,
        x: Tensor,
        extra: dict[str, list[Tensor | None]],
        encoder_out: dict[str, list[Tensor]],
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
    ) -> Tensor:
        """See the base class."""
        x = self.output_layer(x)
        if self.new_piece_penalty > 0 and not self.training:
            x = x - self.new_piece_penalty * self.is_new(x, encoder_out["src_tokens"][0])
        return x

    def is_new(self, logits: Tensor, src_tokens: Tensor) -> Tensor:
        """1 for each piece of the vocabulary that is not in the input, else 0: (B, 1, V)."""
        new = torch.ones_like(logits[:, 0])  # (B, V)
        beam = logits.size(0) // src_tokens.size(0)  # above 1 if fairseq stores the source once per sentence
        new.scatter_(1, src_tokens.repeat_interleave(beam, 0), 0.0)
        new[:, self.eos] = 0.0
        return new.unsqueeze(1)
