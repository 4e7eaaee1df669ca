"""A decoder whose top context attention is a latent alignment, and its flags."""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Dict, List, Optional, Tuple

import torch
from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from ..alpha_settings import alpha_configs
from ..errors import UserError
from ..modules import LatentAlignment
from .sides import AdaptivelySparseDecoder

DEFAULT_TOP_K = 4


@dataclass(frozen=True)
class LatentSettings:
    """Settings of :class:`~user_dir.modules.LatentAlignment`; ``alpha`` if it is a constant of its own."""

    top_k: int
    soft: bool
    alpha: float | None


class LatentAlignmentDecoder(AdaptivelySparseDecoder):
    """A decoder that returns log-probabilities, summed over the source position of each word.

    The top layer has no context attention: :class:`~user_dir.modules.LatentAlignment` follows it instead.
    log_softmax does not change log-probabilities, so the output is used like logits.
    """

    def __init__(self, cfg: TransformerConfig, dictionary, embed_tokens, settings: LatentSettings):
        super().__init__(cfg, dictionary, embed_tokens)
        self.layers[-1] = self.build_decoder_layer(cfg, no_encoder_attn=True)
        self.alignment = LatentAlignment(
            self.output_embed_dim,
            cfg.encoder.embed_dim,
            cfg.decoder.ffn_embed_dim,
            settings.top_k,
            cfg.dropout,
            settings.soft,
            settings.alpha,
        )

    def outputs(
        self,
        x: Tensor,
        extra: Dict[str, List[Optional[Tensor]]],
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]],
    ) -> Tensor:
        """Log-probabilities (B, T, V), and the alignment (B, T, S) as ``attn``."""
        assert encoder_out is not None
        source, padding_mask = self._source(encoder_out)
        x, attention = self.alignment(
            x, source, padding_mask, self.output_projection.weight, incremental_state
        )
        attn: List[Optional[Tensor]] = [attention]
        extra["attn"] = attn
        return x

    def get_normalized_probs(
        self,
        net_output: Tuple[Tensor, Optional[Dict[str, List[Optional[Tensor]]]]],
        log_probs: bool,
        sample: Optional[Dict[str, Tensor]] = None,
    ):
        """See fairseq; in training, without a second log_softmax.

        In search it is needed, because a temperature or an ensemble may have changed the log-probabilities.
        """
        if self.training and log_probs and not self.alignment.soft:
            return net_output[0]
        return self.get_normalized_probs_scriptable(net_output, log_probs, sample)

    def _source(self, encoder_out: Dict[str, List[Tensor]]):
        """The encoder's output (S, B, C), and where it is padding (B, S) or None."""
        padding_mask: Optional[Tensor] = None
        if len(encoder_out["encoder_padding_mask"]) > 0:
            padding_mask = encoder_out["encoder_padding_mask"][0]
        return encoder_out["encoder_out"][0], padding_mask

    @torch.jit.unused
    def posterior(
        self, encoder_out: Dict[str, List[Tensor]], prev_output_tokens: Tensor, target: Tensor
    ) -> Tensor:
        """The alignment of given target words (B, T): p(a | y_t, y_<t, x), (B, T, S)."""
        state, _ = self.extract_features(prev_output_tokens, encoder_out)
        source, padding_mask = self._source(encoder_out)
        return self.alignment.posterior(state, source, padding_mask, self.output_projection.weight, target)


def add_latent_flags(parser) -> None:
    """Add ``--latent-alignment`` and the flags that belong to it."""
    parser.add_argument(
        "--latent-alignment",
        action="store_true",
        default=argparse.SUPPRESS,  # as fairseq does for every flag of a model
        help="the top context attention, of one head, is a distribution over source positions that is summed "
        "out exactly",
    )
    parser.add_argument(
        "--latent-alignment-alpha",
        type=float,
        metavar="A",
        help="the constant alpha of this distribution, such as 2 for sparsemax (default: set or learned like "
        "that of decoder context attention)",
    )
    parser.add_argument(
        "--latent-alignment-top-k",
        type=int,
        metavar="K",
        help=f"the most positions per target word in this sum (default: {DEFAULT_TOP_K})",
    )
    parser.add_argument(
        "--latent-alignment-soft",
        action="store_true",
        default=argparse.SUPPRESS,
        help="attend to the expected source position instead of summing: a baseline of equal size",
    )


def latent_alignment(args) -> LatentSettings | None:
    """The settings of ``--latent-alignment``; None without it.

    Raises:
        UserError: a value is invalid, or another flag contradicts it.
    """
    top_k, soft = getattr(args, "latent_alignment_top_k", None), getattr(args, "latent_alignment_soft", False)
    alpha = getattr(args, "latent_alignment_alpha", None)
    if not getattr(args, "latent_alignment", False):
        for given, flag in ((top_k is not None, "top-k"), (alpha is not None, "alpha"), (soft, "soft")):
            if given:
                raise UserError(f"--latent-alignment-{flag} requires --latent-alignment")
        return None
    top_k = DEFAULT_TOP_K if top_k is None else top_k
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 1:
        raise UserError(f"--latent-alignment-top-k must be a positive integer, not {top_k!r}")
    if alpha is not None and not (_is_number(alpha) and 1 <= alpha < math.inf):
        raise UserError(f"--latent-alignment-alpha must be a number of at least 1, not {alpha!r}")
    if getattr(args, "adaptive_softmax_cutoff", None) is not None:
        raise UserError("--latent-alignment needs the whole softmax; omit --adaptive-softmax-cutoff")
    if getattr(args, "output_alpha", None) not in (None, 1):
        raise UserError("--latent-alignment sums probabilities of a softmax; omit --output-alpha")
    if getattr(args, "no_cross_attention", False):
        raise UserError("--latent-alignment replaces the top context attention; omit --no-cross-attention")
    if getattr(args, "quant_noise_scalar", None):
        raise UserError(
            "--latent-alignment multiplies with the vocabulary's vectors themselves, which are then not "
            "quantized; omit --quant-noise-scalar"
        )
    constant = alpha_configs(args)["decoder_context"].constant if alpha is None else alpha
    if constant == 1 and not soft:
        raise UserError(
            "--latent-alignment needs α-entmax with an alpha above 1; "
            "give --latent-alignment-alpha 2, for instance"
        )
    return LatentSettings(top_k, bool(soft), alpha)


def _is_number(value) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
