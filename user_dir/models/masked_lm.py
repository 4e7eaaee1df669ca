"""A BERT of our encoder, to be trained with fairseq's task and criterion ``masked_lm`` (Devlin et al. 2019).

Its checkpoint is what ``--bert`` of the post-editor takes where no published BERT is at hand, or where one
was trained further on text of a corpus (Gururangan et al. 2020).
"""

from __future__ import annotations

import logging

import torch
from fairseq.models import FairseqEncoderModel, register_model
from fairseq.models.transformer import TransformerConfig, TransformerModel
from torch import Tensor, nn

from .bert_files import start_bert
from .bert_sides import BertEncoder, set_eps
from .flags import add_alpha_flags
from .post_editor_flags import add_bert_flags
from .sparse_heads import SparseHeads

logger = logging.getLogger(__name__)


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


@register_model("adaptively_sparse_masked_lm")
class AdaptivelySparseMaskedLM(SparseHeads, FairseqEncoderModel):
    """The post-editor's encoder with an output layer for masked words; its attention has the flags of α."""

    def __init__(self, args, encoder: BertEncoder):
        super().__init__(encoder)
        self.args = args
        self.head = MaskedLMHead(encoder.embed_tokens)

    @classmethod
    def add_args(cls, parser):
        """Add fairseq's Transformer flags, those of α, and that of ε."""
        TransformerModel.add_args(parser)
        add_alpha_flags(parser)
        add_bert_flags(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid flags, or a BERT that does not fit."""
        breaks = getattr(getattr(task, "cfg", None), "sample_break_mode", "eos")
        if breaks != "eos":
            logger.warning(
                "sample_break_mode %s joins lines, and only the first [SEP] of a sample parts segments; "
                "--sample-break-mode eos keeps lines apart",
                breaks,
            )
        bert = start_bert(args, task)
        cfg, dictionary = TransformerConfig.from_namespace(args), task.source_dictionary
        embed_tokens = TransformerModel.build_embedding(args, dictionary, args.encoder_embed_dim)
        model = cls(args, BertEncoder(cfg, dictionary, embed_tokens))
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

    def get_normalized_probs(self, net_output, log_probs: bool, sample=None) -> Tensor:
        """(Log-)probabilities of the vocabulary."""
        logits = net_output[0].float()
        return torch.log_softmax(logits, -1) if log_probs else torch.softmax(logits, -1)

    def max_positions(self) -> int:
        """The longest input, in tokens."""
        return self.encoder.max_positions()
