"""A decoder whose top context attention is a latent alignment."""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple

import torch
from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from ..modules import LatentAlignment
from .latent_flags import LatentSettings
from .sides import AdaptivelySparseDecoder


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
