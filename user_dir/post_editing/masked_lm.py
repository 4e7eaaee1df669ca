"""A BERT of our encoder, to be trained with fairseq's task and criterion ``masked_lm`` (Devlin et al. 2019).

The post-editor's ``--bert`` takes its checkpoint: where no published BERT is at hand, or after training a
published one further on text of a corpus (Gururangan et al. 2020).
"""

from __future__ import annotations

import torch
from fairseq.data.mask_tokens_dataset import MaskTokensDataset
from fairseq.models import FairseqEncoderModel
from fairseq.models.transformer import TransformerConfig, TransformerModel
from torch import Tensor, nn

from ..corpora.pieces import separator_of
from ..guards import around
from ..models.heads import SparseHeads
from ..models.settings import as_namespace, make_settings, register
from ..models.transformer import TransformerSettings, fill_in
from .bert import BertEncoder, set_eps
from .model import BERT_SETTINGS, SIZES, make_bert
from .pretrained import start_bert


class MaskedLMHead(nn.Module):
    """BERT's output layer for masked words: dense, GELU, LayerNorm, then the word embeddings with a bias."""

    def __init__(self, embed_tokens: nn.Embedding):
        super().__init__()
        self.dense = nn.Linear(embed_tokens.embedding_dim, embed_tokens.embedding_dim)
        self.layer_norm = nn.LayerNorm(embed_tokens.embedding_dim)
        self.output = nn.Linear(embed_tokens.embedding_dim, embed_tokens.num_embeddings)
        self.output.weight = embed_tokens.weight
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Logits (…, V) of states (…, C)."""
        return self.output(self.layer_norm(nn.functional.gelu(self.dense(x))))


MaskedLMSettings = make_settings("MaskedLMSettings", BERT_SETTINGS, base=TransformerSettings)


@register("adaptively_sparse_masked_lm", MaskedLMSettings, SIZES)
class AdaptivelySparseMaskedLM(SparseHeads, FairseqEncoderModel):
    """The post-editor's encoder with an output layer for masked words; its attention has the flags of α."""

    def __init__(self, encoder: BertEncoder):
        super().__init__(encoder)
        self.head = MaskedLMHead(encoder.embed_tokens)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid flags, or a BERT that does not fit."""
        args = as_namespace(args)
        make_bert(args)
        fill_in(args)
        args.max_target_positions = args.max_source_positions  # there is no target
        bert = start_bert(args)
        cfg, dictionary = TransformerConfig.from_namespace(args), task.source_dictionary
        embed_tokens = TransformerModel.build_embedding(args, dictionary, args.encoder_embed_dim)
        model = cls(BertEncoder(cfg, dictionary, embed_tokens))
        set_eps(model, args.layer_norm_eps)
        if bert is not None:
            bert.load_encoder(model.encoder, dictionary)
        model.set_up_heads(args)
        return model

    def forward(self, src_tokens: Tensor, src_lengths=None, masked_tokens=None, **kwargs):
        """Logits (B, T, V), or (N, V) of the N ``masked_tokens`` (B, T); and the encoder's output."""
        encoder_out = self.encoder(src_tokens, src_lengths)
        x = encoder_out["encoder_out"][0].transpose(0, 1)  # (B, T, C)
        if masked_tokens is not None:
            x = x[masked_tokens]
        return self.head(x), encoder_out


@around(MaskTokensDataset, "__getitem__")
def keep_separators(read, self, index):
    """Mask no [SEP]: fairseq masks any token, and every eighth line would lose its segments."""
    tokens, separator = read(self, index), separator_of(self.vocab.indices)
    if separator is None or self.skip_masking:
        return tokens
    rest = self.pad_idx if self.return_masked_tokens else separator
    kept = torch.as_tensor(self.dataset[index]).eq(separator)
    return tokens.masked_fill(kept, rest)  # a copy: fairseq keeps what it has read
