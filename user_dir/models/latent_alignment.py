"""Context attention as a latent alignment: a word's probability, summed over source positions."""

import math
from typing import Dict, List, Optional, Tuple

import torch
from fairseq.incremental_decoding_utils import with_incremental_state
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import FairseqDropout, LayerNorm
from torch import Tensor, nn

from ..attention import Alpha, AlphaConfig
from ..attention.dense import attention_scores
from ..entmax import entmax
from ..entmax.reference import entmax_forward
from ..errors import UserError
from ..latent import log_mixture
from .layers import AdaptivelySparseDecoder, linear, use_onednn
from .settings import alpha_configs, setting


@with_incremental_state
class LatentAlignment(nn.Module):
    """log p(y_t) = log Σ_a π_t(a) p(y_t | h_t, m_a), where a is the source position of the word.

    π_t is α-entmax of the scores of one attention head, over the ``top_k`` best positions. The sum is exact,
    and the output layer is computed only for positions of nonzero probability. Where one of the ``top_k`` has
    probability 0, so would any position left out: π_t is α-entmax over all positions, and *certified*.

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
        self,
        state: Tensor,
        source: Tensor,
        padding_mask: Optional[Tensor],
        vocabulary: Tensor,
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]] = None,
    ) -> Tuple[Tensor, Tensor]:
        """The log-probabilities of the next words, and the distribution over source positions.

        Args:
            state: h (B, T, C).
            source: m (S, B, C), the encoder's output.
            padding_mask: (B, S), true where a source position is padding.
            vocabulary: the weight of the output projection, (V, C).
            incremental_state: keeps what is computed from the source between decoding steps.

        Returns:
            Log-probabilities (B, T, V), in float32 if the states are in half precision; or logits if
            ``soft``; and π (B, T, S).
        """
        keys, hidden = self._source(source, incremental_state)
        weights, place = self.distribution(state, keys, padding_mask)
        prior = torch.zeros_like(weights[:, :, :1]).expand(-1, -1, keys.size(1)).scatter(2, place, weights)
        if self.soft:
            mixed = self._combined(self.state_proj(state) + torch.bmm(prior, hidden), state)
            return _logits(mixed, vocabulary), prior
        return self.log_probabilities(state, hidden, weights, place, vocabulary), prior

    def log_probabilities(
        self, state: Tensor, hidden: Tensor, weights: Tensor, place: Tensor, vocabulary: Tensor
    ) -> Tensor:
        """log Σ_a π(a) p(y | h, m_a) of all words y (B, T, V), given what :meth:`distribution` returns."""
        from_state = self.state_proj(state)  # (B, T, F)
        batch, step, candidate = torch.where(weights > 0)
        chosen = place[batch, step, candidate]
        row = batch * state.size(1) + step  # (N,), a pair of a word and a position for each
        pairs = from_state.flatten(0, 1).index_select(0, row) + hidden.flatten(0, 1).index_select(
            0, batch * hidden.size(1) + chosen
        )
        pairs = self._combined(pairs, state.flatten(0, 1).index_select(0, row))
        chosen_weights = weights[batch, step, candidate]
        logits = _logits(pairs, vocabulary)
        log_p = log_mixture(logits, chosen_weights, row, state.size(0) * state.size(1))
        return log_p.view(state.size(0), state.size(1), -1)

    def distribution(
        self, state: Tensor, keys: Tensor, padding_mask: Optional[Tensor]
    ) -> Tuple[Tensor, Tensor]:
        """π over the candidate positions (B, T, K), and which positions they are (B, T, K)."""
        scores = attention_scores(self.q_proj(state).unsqueeze(1), keys.unsqueeze(1), padding_mask)
        limit = scores.size(-1) if self.soft else min(self.top_k, scores.size(-1))
        best, place = scores.topk(limit, dim=-1)  # (B, 1, T, K)
        if torch.jit.is_scripting():
            weights = entmax_forward(best, self.alpha().to(best.device))
        else:
            weights = entmax(best, self.alpha.value())
            if self.training:
                self._record(weights.detach(), limit == scores.size(-1))
        return weights.squeeze(1), place.squeeze(1)

    def _combined(self, hidden: Tensor, state: Tensor) -> Tensor:
        """Features (…, C) from the sum of both sides (…, F) and the state (…, C)."""
        return self.layer_norm(state + self.dropout_module(self.out_proj(torch.relu(hidden))))

    def _source(
        self, source: Tensor, incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]]
    ) -> Tuple[Tensor, Tensor]:
        """Keys (B, S, C) and hidden values (B, S, F) of the source, computed once per sentence."""
        if incremental_state is not None:
            saved = self.get_incremental_state(incremental_state, "source")
            if saved is not None:
                keys, hidden = saved["keys"], saved["hidden"]
                assert keys is not None and hidden is not None
                return keys, hidden
        keys = self.k_proj(source).transpose(0, 1)
        hidden = self.source_proj(source).transpose(0, 1).contiguous()
        if incremental_state is not None:
            cached: Dict[str, Optional[Tensor]] = {"keys": keys, "hidden": hidden}
            self.set_incremental_state(incremental_state, "source", cached)
        return keys, hidden

    def reorder_incremental_state(
        self, incremental_state: Dict[str, Dict[str, Optional[Tensor]]], new_order: Tensor
    ) -> Dict[str, Dict[str, Optional[Tensor]]]:
        """Keep the sentences of the hypotheses that beam search keeps."""
        saved = self.get_incremental_state(incremental_state, "source")
        if saved is not None:
            for name in ("keys", "hidden"):
                value = saved[name]
                assert value is not None
                saved[name] = value.index_select(0, new_order)
            self.set_incremental_state(incremental_state, "source", saved)
        return incremental_state

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
        keys, hidden = self._source(source, None)
        weights, place = self.distribution(state, keys, padding_mask)
        if not self.soft:
            from_state, likelihoods = self.state_proj(state), []
            for candidate in place.unbind(2):
                chosen = hidden.gather(1, candidate.unsqueeze(2).expand(-1, -1, hidden.size(2)))
                logits = _logits(self._combined(from_state + chosen, state), vocabulary)
                p = (logits if logits.dtype == torch.float64 else logits.float()).softmax(2)
                likelihoods.append(p.gather(2, target.unsqueeze(2)))
            weights = weights * torch.cat(likelihoods, dim=2)
            weights = weights / weights.sum(2, keepdim=True).clamp_min(1e-30)
        return weights.new_zeros(*weights.shape[:2], keys.size(1)).scatter(2, place, weights)

    @torch.jit.unused
    def _record(self, weights: Tensor, complete: bool) -> None:
        """Keep what the log line reports: the share of certified words, and positions per word."""
        positive = weights > 0
        self.support = positive.sum(-1).float().mean()
        self.certified = torch.ones_like(self.support) if complete else (~positive[..., -1]).float().mean()


def _logits(features: Tensor, vocabulary: Tensor) -> Tensor:
    """Features (…, C) times the weight of the output projection (V, C)."""
    if torch.jit.is_scripting():
        return nn.functional.linear(features, vocabulary)
    return linear(features, vocabulary, None)  # by oneDNN where it is faster


class LatentAlignmentDecoder(AdaptivelySparseDecoder):
    """A decoder that returns log-probabilities, summed over the source position of each word.

    The top layer has no context attention: :class:`LatentAlignment` follows it instead.
    log_softmax does not change log-probabilities, so the output is used like logits.
    """

    def __init__(self, cfg: TransformerConfig, dictionary, embed_tokens, args):
        super().__init__(cfg, dictionary, embed_tokens)
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
        extra: Dict[str, List[Optional[Tensor]]],
        encoder_out: Optional[Dict[str, List[Tensor]]],
        incremental_state: Optional[Dict[str, Dict[str, Optional[Tensor]]]],
    ) -> Tensor:
        """Log-probabilities (B, T, V), and the alignment (B, T, S) as ``attn``."""
        assert encoder_out is not None
        source, padding = encoder_out["encoder_out"][0], encoder_out["encoder_padding_mask"][0]
        vocabulary = self.output_projection.weight
        x, attention = self.alignment(x, source, padding, vocabulary, incremental_state)
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


def latent_settings() -> list:
    """The settings of ``--latent-alignment``."""
    return [
        setting(
            "latent_alignment",
            bool,
            False,
            "the top context attention, of one head, is a distribution over source positions that is summed "
            "out exactly",
        ),
        setting(
            "latent_alignment_alpha",
            Optional[float],
            None,
            "the constant α of this distribution, such as 2 for sparsemax (default: set or learned like that "
            "of decoder context attention)",
        ),
        setting("latent_alignment_top_k", int, 4, "the most positions per target word in this sum"),
        setting(
            "latent_alignment_soft",
            bool,
            False,
            "attend to the expected source position instead of summing: a baseline of equal size",
        ),
    ]


def latent_alignment(args) -> bool:
    """Whether the settings ask for a latent alignment.

    Raises:
        UserError: a value is invalid, or another setting contradicts it.
    """
    alpha, soft = args.latent_alignment_alpha, args.latent_alignment_soft
    if not args.latent_alignment:
        if soft or alpha is not None:
            raise UserError("--latent-alignment-alpha and --latent-alignment-soft need --latent-alignment")
        return False
    if args.latent_alignment_top_k < 1:
        raise UserError(f"--latent-alignment-top-k must be at least 1, not {args.latent_alignment_top_k}")
    others = args.adaptive_softmax_cutoff, args.no_cross_attention, args.quant_noise_scalar
    if any(others) or args.output_alpha != 1:
        raise UserError(
            "--latent-alignment cannot be combined with --adaptive-softmax-cutoff, --output-alpha, "
            "--no-cross-attention or --quant-noise-scalar"
        )
    constant = alpha_configs(args)["decoder_context"].constant if alpha is None else alpha
    if constant is not None and not (1 if soft else math.nextafter(1, 2)) <= constant < math.inf:
        raise UserError(f"--latent-alignment needs an α above 1, such as 2, not {constant:g}")
    return True
