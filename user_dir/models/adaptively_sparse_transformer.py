"""The Adaptively Sparse Transformer (Correia et al. 2019) as a fairseq model."""

from fairseq.models import register_model
from fairseq.models.transformer import TransformerConfig, TransformerModel
from torch import Tensor

from ..modules import LatentAlignment
from .flags import add_alpha_flags, check_cutoffs
from .latent_alignment import LatentAlignmentDecoder, add_latent_flags, latent_alignment
from .output import add_output_flags, output_normalizer
from .sides import AdaptivelySparseDecoder, AdaptivelySparseEncoder
from .sparse_heads import SparseHeads


@register_model("adaptively_sparse_transformer")
class AdaptivelySparseTransformerModel(SparseHeads, TransformerModel):
    """fairseq's Transformer with α-entmax attention, whose heads learn how sparse to be.

    Takes all flags of fairseq's ``transformer`` and those of :class:`~user_dir.attention.AlphaConfig`;
    without any of the latter it is the model of the paper. Parameters have the names of the stock model, so
    its checkpoints load; each attention additionally has an ``alpha``.
    """

    __jit_unused_properties__ = ("alignment",)
    int8 = False  # see --int8

    @classmethod
    def add_args(cls, parser):
        """Add fairseq's Transformer flags and ours."""
        super().add_args(parser)
        add_alpha_flags(parser)
        parser.add_argument(
            "--int8",
            action="store_true",
            help="translate on a CPU with linear layers in 8-bit integers; training is not affected. When "
            "translating with a trained model: --model-overrides \"{'int8': True}\"",
        )
        add_output_flags(parser)
        add_latent_flags(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid combinations of flags."""
        output = output_normalizer(args)
        check_cutoffs(args, len(task.target_dictionary))
        model = super().build_model(args, task)
        model.set_up_heads(args)
        model.int8 = bool(getattr(args, "int8", False))
        model.decoder.output_normalizer = output
        # A dataset with alignments is used to train alignment.
        model.trains_alignment = bool(getattr(getattr(task, "cfg", None), "load_alignments", False))
        return model

    @classmethod
    def build_encoder(cls, args, src_dict, embed_tokens):
        """See fairseq."""
        return AdaptivelySparseEncoder(TransformerConfig.from_namespace(args), src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args, tgt_dict, embed_tokens):
        """See fairseq."""
        cfg = TransformerConfig.from_namespace(args)
        latent = latent_alignment(args)
        if latent is not None:
            return LatentAlignmentDecoder(cfg, tgt_dict, embed_tokens, latent)
        return AdaptivelySparseDecoder(cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention)

    @property
    def alignment(self) -> LatentAlignment | None:
        """The decoder's latent alignment, if it has one."""
        return getattr(self.decoder, "alignment", None)

    def posterior_alignment(self, sample: dict) -> Tensor:
        """The latent alignment of a batch's target words with the source (B, T, S), given the words."""
        given = sample["net_input"]
        encoder_out = self.encoder(given["src_tokens"], src_lengths=given["src_lengths"])
        return self.decoder.posterior(encoder_out, given["prev_output_tokens"], sample["target"])
