"""The adaptively sparse Transformer for Hugging Face's transformers, in one file that goes with a model.

M2M100 is fairseq's pre-norm Transformer; here its attention is α-entmax.
"""

import torch
from torch import nn
from transformers import M2M100Config, M2M100ForConditionalGeneration
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.m2m_100.modeling_m2m_100 import M2M100Attention


def entmax(scores, alpha):
    """α-entmax along the last dimension, for α from 1 to 2, by Newton's method.

    Source: Peters et al. 2019 (https://arxiv.org/abs/1905.05702), equation 3, with ε = α − 1 and weights
    [1 + ε (z − λ)]₊^(1/ε). The last step is differentiated, which makes gradients those of the solution.
    """
    eps = (alpha - 1).clamp_min(1e-6).to(torch.float32)  # softmax to float32's precision
    z = scores.float() - scores.float().amax(-1, keepdim=True)

    def powers(lam):
        x = (eps * (z - lam)).clamp_min(-1.0)
        inside = x > -1.0
        x = torch.where(inside, x, 0.0)
        p = torch.where(inside, torch.exp(torch.log1p(x) / eps), 0.0)
        return p, p / (1.0 + x)

    with torch.no_grad():
        lam = torch.zeros_like(z[..., :1])
        for _ in range(40):
            p, slope = powers(lam)
            mass = p.sum(-1, keepdim=True)
            step = -mass * torch.expm1(-eps * mass.log()) / (eps * slope.sum(-1, keepdim=True))
            lam = lam + step
            if (step <= 5e-7 * (1 + lam)).all():
                break
    p, slope = powers(lam)
    lam = lam + (p.sum(-1, keepdim=True) - 1.0) / slope.sum(-1, keepdim=True).detach()
    p, _ = powers(lam)
    return p.to(scores.dtype)


def entmax_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """Attention with the α of each head of ``module``, in the form that transformers calls."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = entmax(scores, module.alpha)
    dropped = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(dropped, value).transpose(1, 2).contiguous(), weights


ALL_ATTENTION_FUNCTIONS.register("entmax", entmax_attention)
ALL_MASK_ATTENTION_FUNCTIONS.register("entmax", eager_mask)


class AdaptivelySparseConfig(M2M100Config):
    """The configuration of M2M100."""

    model_type = "adaptively_sparse_transformer"


class AdaptivelySparseForConditionalGeneration(M2M100ForConditionalGeneration):
    """The model; each attention has a buffer ``alpha`` (H, 1, 1)."""

    config_class = AdaptivelySparseConfig

    def __init__(self, config):
        config._attn_implementation = "entmax"
        super().__init__(config)
        for module in self.modules():
            if isinstance(module, M2M100Attention):
                module.register_buffer("alpha", torch.ones(module.num_heads, 1, 1))

    def set_attn_implementation(self, attn_implementation, **kwargs):
        """Refuse any but α-entmax: softmax in its place would compute something else."""
        if attn_implementation != "entmax":
            raise ValueError(f"attention of this model is entmax and cannot be {attn_implementation}")
