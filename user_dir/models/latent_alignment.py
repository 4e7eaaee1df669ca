"""Context attention as a latent alignment: a word's probability, summed over source positions."""

import math
from dataclasses import dataclass
from typing import Optional

import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import FairseqDropout, LayerNorm
from torch import Tensor, nn

from ..attention import Alpha, AlphaConfig
from ..attention.dense import attention_scores
from ..entmax import entmax
from ..errors import UserError
from ..latent import log_mixture
from .layers import AdaptivelySparseDecoder, linear, output_normalizer, use_onednn
from .settings import alpha_configs, described


class LatentAlignment(nn.Module):
    """log p(y_t) = log Σ_a π_t(a) p(y_t | h_t, m_a), where a is the source position of the word.

    π_t is α-entmax of the scores of one attention head, over the ``top_k`` best positions. The sum is exact,
    and the output layer is computed only for positions of nonzero probability. Where one of the ``top_k`` has
    probability 0, so would every position left out: π_t is *certified* to be α-entmax over all positions.

    p(y_t | h_t, m_a) is the softmax of the decoder's output projection, applied to
    LN(h_t + W_o ReLU(W_h h_t + W_m m_a)) for decoder state h_t and encoder output m_a.

    If ``soft``, it is soft attention with the same parameters: the output projection is applied once, to
    LN(h_t + W_o ReLU(W_h h_t + W_m Σ_a π_t(a) m_a)), where π_t is over all positions.

    Source: Deng et al. 2018 (https://arxiv.org/abs/1807.03756), section 3, summed as in Correia et al. 2020
    (https://arxiv.org/abs/2007.01919).
    """

    def __init__(
        self,
        embed_dim: int,
        source_dim: int,
        hidden_dim: int,
        top_k: int,
        dropout: float,
        soft: bool = False,
        alpha: Optional[float] = None,
    ):
        super().__init__()
        self.num_heads = 1
        self.top_k = top_k
        self.soft = soft
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(source_dim, embed_dim)
        self.state_proj = nn.Linear(embed_dim, hidden_dim)
        self.source_proj = nn.Linear(source_dim, hidden_dim, bias=False)
        self.out_proj = nn.Linear(hidden_dim, embed_dim)
        for layer in (self.q_proj, self.k_proj, self.state_proj, self.source_proj, self.out_proj):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
        use_onednn(self)
        self.layer_norm = LayerNorm(embed_dim)
        self.dropout_module = FairseqDropout(dropout, module_name=self.__class__.__name__)
        self.has_constant_alpha = alpha is not None  # otherwise the model sets it
        self.alpha = Alpha(1, AlphaConfig(fixed_alpha=1.5 if alpha is None else alpha))
        self.certified: Optional[Tensor] = None
        self.support: Optional[Tensor] = None

    def forward(
        self, state: Tensor, source: Tensor, padding_mask: Optional[Tensor], vocabulary: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The log-probabilities of the next words, and the distribution over source positions.

        Args:
            state: h (B, T, C).
            source: m (S, B, C), the encoder's output.
            padding_mask: (B, S), true where a source position is padding.
            vocabulary: the weight of the output projection, (V, C).

        Returns:
            Log-probabilities (B, T, V), in float32 if the states are in half precision; or logits if
            ``soft``; and π (B, T, S).
        """
        weights, place = self.distribution(state, source, padding_mask)
        prior = _at_places(weights, place, source.size(0))
        if self.soft:
            mixed = torch.bmm(prior, self.source_proj(source).transpose(0, 1))
            return self._logits(self.state_proj(state) + mixed, state, vocabulary), prior
        batch, step, candidate, logits = self._likelihoods(state, source, weights, place, vocabulary)
        row = batch * state.size(1) + step
        log_p = log_mixture(logits, weights[batch, step, candidate], row, state.size(0) * state.size(1))
        return log_p.view(state.size(0), state.size(1), -1), prior

    def distribution(
        self, state: Tensor, source: Tensor, padding_mask: Optional[Tensor]
    ) -> tuple[Tensor, Tensor]:
        """π over the candidate positions (B, T, K), and which positions they are (B, T, K)."""
        keys = self.k_proj(source).transpose(0, 1)
        scores = attention_scores(self.q_proj(state).unsqueeze(1), keys.unsqueeze(1), padding_mask)
        limit = scores.size(-1) if self.soft else min(self.top_k, scores.size(-1))
        best, place = scores.topk(limit, dim=-1)  # (B, 1, T, K)
        weights = entmax(best, self.alpha.value())
        if self.training:
            self._record(weights.detach(), limit == scores.size(-1))
        return weights.squeeze(1), place.squeeze(1)

    def _likelihoods(
        self, state: Tensor, source: Tensor, weights: Tensor, place: Tensor, vocabulary: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where weights are positive, as three indices (N,); and the logits of p(y | h, m_a) there (N, V)."""
        batch, step, candidate = torch.where(weights > 0)
        row = batch * state.size(1) + step
        hidden = self.source_proj(source).transpose(0, 1).flatten(0, 1)
        hidden = hidden.index_select(0, batch * source.size(0) + place[batch, step, candidate])
        hidden = self.state_proj(state).flatten(0, 1).index_select(0, row) + hidden
        state = state.flatten(0, 1).index_select(0, row)
        return batch, step, candidate, self._logits(hidden, state, vocabulary)

    def _logits(self, hidden: Tensor, state: Tensor, vocabulary: Tensor) -> Tensor:
        """Logits (…, V) from the sum of both sides (…, F) and the state (…, C)."""
        x = self.layer_norm(state + self.dropout_module(self.out_proj(torch.relu(hidden))))
        return linear(x, vocabulary, None)  # by oneDNN where it is faster

    def posterior(
        self,
        state: Tensor,
        source: Tensor,
        padding_mask: Optional[Tensor],
        vocabulary: Tensor,
        target: Tensor,
    ) -> Tensor:
        """The alignment given the words: p(a | y_t) ∝ π_t(a) p(y_t | h_t, m_a) for target (B, T); (B, T, S).

        The other arguments are those of :meth:`forward`. If ``soft``, which has no such posterior, it is π.
        """
        weights, place = self.distribution(state, source, padding_mask)
        if not self.soft:
            batch, step, candidate, logits = self._likelihoods(state, source, weights, place, vocabulary)
            p = (logits if logits.dtype == torch.float64 else logits.float()).softmax(1)
            p = p.gather(1, target[batch, step].unsqueeze(1)).squeeze(1)
            joint = torch.zeros_like(weights, dtype=p.dtype).index_put((batch, step, candidate), p) * weights
            weights = joint / joint.sum(2, keepdim=True).clamp_min(1e-30)
        return _at_places(weights, place, source.size(0))

    def _record(self, weights: Tensor, complete: bool) -> None:
        """Keep what the log line reports: the share of certified words, and positions per word."""
        positive = weights > 0
        self.support = positive.sum(-1).float().mean()
        self.certified = torch.ones_like(self.support) if complete else (~positive[..., -1]).float().mean()


def _at_places(weights: Tensor, place: Tensor, positions: int) -> Tensor:
    """Scatter weights (B, T, K) of candidates to all positions of the source (B, T, S)."""
    return torch.zeros_like(weights[:, :, :1]).expand(-1, -1, positions).scatter(2, place, weights)


class LatentAlignmentDecoder(AdaptivelySparseDecoder):
    """A decoder that returns log-probabilities, summed over the source position of each word.

    The top layer has no context attention: :class:`LatentAlignment` follows it instead.
    log_softmax does not change log-probabilities, so the output is used like logits.
    """

    def __init__(self, cfg: TransformerConfig, dictionary, embed_tokens, args):
        super().__init__(cfg, dictionary, embed_tokens)
        self.gives_log_probs = not args.latent_alignment_soft
        self.layers[-1] = self.build_decoder_layer(cfg, no_encoder_attn=True)
        self.alignment = LatentAlignment(
            self.output_embed_dim,
            cfg.encoder.embed_dim,
            cfg.decoder.ffn_embed_dim,
            args.latent_alignment_top_k,
            cfg.dropout,
            args.latent_alignment_soft,
            args.latent_alignment_alpha,
        )

    def outputs(
        self,
        x: Tensor,
        extra: dict[str, list[Optional[Tensor]]],
        encoder_out: Optional[dict[str, list[Tensor]]],
        incremental_state: Optional[dict[str, dict[str, Optional[Tensor]]]],
    ) -> Tensor:
        """Log-probabilities (B, T, V), and the alignment (B, T, S) as ``attn``."""
        source, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
        vocabulary = self.output_projection.weight
        x, attention = self.alignment(x, source, padding, vocabulary)
        extra["attn"] = [attention]
        return x


@dataclass
class LatentSettings:
    """The settings of ``--latent-alignment``."""

    latent_alignment: bool = described(
        False,
        "the top context attention, of one head, is a distribution over source positions that is summed "
        "out exactly",
    )
    latent_alignment_alpha: Optional[float] = described(
        None,
        "the constant α of this distribution, such as 2 for sparsemax (default: set or learned like that "
        "of decoder context attention)",
    )
    latent_alignment_top_k: int = described(4, "the most positions per target word in this sum")
    latent_alignment_soft: bool = described(
        False, "attend to the expected source position instead of summing: a baseline of equal size"
    )


def latent_alignment(args) -> bool:
    """Whether the settings ask for a latent alignment.

    Raises:
        UserError: a value is invalid, or another setting contradicts it.
    """
    if not args.latent_alignment:
        return False
    if args.latent_alignment_top_k < 1:
        raise UserError(f"--latent-alignment-top-k must be at least 1, not {args.latent_alignment_top_k}")
    others = args.adaptive_softmax_cutoff, args.no_cross_attention, args.quant_noise_scalar
    if any(others) or not output_normalizer(args).is_softmax:
        raise UserError(
            "--latent-alignment cannot be combined with --adaptive-softmax-cutoff, --output-alpha, "
            "--no-cross-attention or --quant-noise-scalar"
        )
    alpha = args.latent_alignment_alpha
    constant = alpha_configs(args)["decoder_context"].constant if alpha is None else alpha
    least = 1 if args.latent_alignment_soft else math.nextafter(1, 2)
    if constant is not None and not least <= constant < math.inf:
        raise UserError(f"--latent-alignment needs an α above 1, such as 2, not {constant:g}")
    return True
