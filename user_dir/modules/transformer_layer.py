"""fairseq's Transformer layers with α-entmax attention."""

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase

from .linear import use_onednn
from .multihead_attention import EntmaxMultiheadAttention


class AdaptivelySparseEncoderLayer(TransformerEncoderLayerBase):
    """Encoder layer with α-entmax self-attention."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        use_onednn(self)

    def build_self_attention(self, embed_dim, cfg):
        """See fairseq."""
        return EntmaxMultiheadAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )


class AdaptivelySparseDecoderLayer(TransformerDecoderLayerBase):
    """Decoder layer with α-entmax self-attention and context attention.

    Context attention weights are only computed when requested, not in every evaluation.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.need_attn = False
        use_onednn(self)

    def make_generation_fast_(self, need_attn: bool = False, **kwargs) -> None:
        """Leave ``need_attn`` unchanged, unlike fairseq.

        In fairseq every layer then computes weights if one layer's are needed. Also, fairseq may pass None or
        a string, which TorchScript cannot use as a condition.
        """

    def build_self_attention(self, embed_dim, cfg, add_bias_kv=False, add_zero_attn=False):
        """See fairseq."""
        return EntmaxMultiheadAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            dropout=cfg.attention_dropout,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            self_attention=not cfg.cross_self_attention,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )

    def build_encoder_attention(self, embed_dim, cfg):
        """See fairseq."""
        return EntmaxMultiheadAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
        )
