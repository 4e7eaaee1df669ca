"""The decoder of the Adaptively Sparse Transformer as a language model, and its architectures."""

from __future__ import annotations

from fairseq import options
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import (
    DEFAULT_MAX_TARGET_POSITIONS,
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    base_lm_architecture,
    transformer_lm_baevski_wiki103,
)
from fairseq.modules import AdaptiveInput

from ..errors import UserError
from ..modules import EntmaxMultiheadAttention
from .flags import add_alpha_flags, alpha_configs, attention_backend, check_cutoffs
from .output import add_output_flags, output_normalizer
from .sides import AdaptivelySparseDecoder
from .sparse_heads import SparseHeads
from .variants import add_variant_flags

MODEL = "adaptively_sparse_transformer_lm"


@register_model(MODEL)
class AdaptivelySparseLanguageModel(SparseHeads, TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with α-entmax attention, for the task ``language_modeling``.

    Takes the flags of ``transformer_lm`` except ``--character-embeddings``, those of
    :class:`~user_dir.attention.AlphaConfig`, and ``--output-alpha``. Parameters have the names of the stock
    model; each attention additionally has an ``alpha``.
    """

    @classmethod
    def add_args(cls, parser):
        """Add the flags of fairseq's language model and ours."""
        gen_parser_from_dataclass(parser, TransformerLanguageModelConfig(), delete_default=True)
        add_alpha_flags(parser)
        add_output_flags(parser)
        add_variant_flags(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid combinations of flags."""
        configs, backend, output = alpha_configs(args), attention_backend(args), output_normalizer(args)
        check_cutoffs(args, len(task.target_dictionary))
        if getattr(args, "max_target_positions", None) is None:
            args.max_target_positions = _longest(task)
        decoder = AdaptivelySparseDecoder(
            TransformerConfig.from_namespace(args),
            task.target_dictionary,
            _embedding(cls, args, task.source_dictionary),
            no_encoder_attn=True,
        )
        model = cls(decoder)
        model.set_up_heads(args, configs, backend)
        decoder.output_normalizer = output
        return model

    def attentions(self) -> dict[str, list[EntmaxMultiheadAttention]]:
        """The attention modules of each type, by layer; there are only those of ``decoder_self``."""
        layers = [self.decoder.layers[i] for i in range(len(self.decoder.layers))]
        own = [layer.self_attn for layer in layers]
        return {"encoder_self": [], "decoder_self": own, "decoder_context": []}


def _longest(task) -> int:
    """The longest text of a task, in tokens; fairseq's default if it has none."""
    for name in ("max_target_positions", "tokens_per_sample"):
        if getattr(getattr(task, "args", None), name, None):
            return getattr(task.args, name)
    return DEFAULT_MAX_TARGET_POSITIONS


def _embedding(cls, args, dictionary):
    """The embedding of the input; adaptive as in Baevski and Auli 2019 (https://arxiv.org/abs/1809.10853)."""
    if not args.adaptive_input:
        return cls.build_embedding(args, dictionary, args.decoder_input_dim)
    cutoffs = options.eval_str_list(args.adaptive_input_cutoff, type=int)
    return AdaptiveInput(
        len(dictionary),
        dictionary.pad(),
        args.decoder_input_dim,
        args.adaptive_input_factor,
        args.decoder_embed_dim,
        cutoffs,
        args.quant_noise_pq,
        args.quant_noise_pq_block_size,
    )


def _check(args) -> None:
    """Validate the flags while the command line is being parsed; raises UserError."""
    alpha_configs(args)
    attention_backend(args)
    output_normalizer(args)
    for name in ("decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_layers", "decoder_attention_heads"):
        value = getattr(args, name)
        if not isinstance(value, int) or value <= 0:
            raise UserError(f"--{name.replace('_', '-')} must be a positive integer, not {value!r}")
    width, heads = args.decoder_embed_dim, args.decoder_attention_heads
    if width < 4 or width % heads:
        raise UserError(
            f"--decoder-embed-dim {width} must be at least 4, and divisible by "
            f"--decoder-attention-heads {heads}"
        )
    if args.character_embeddings:
        raise UserError(f"--character-embeddings is not supported by {MODEL}; omit it")
    if getattr(args, "decoder_xformers_att_config", None) is not None:
        raise UserError("--decoder-xformers-att-config replaces this model's attention; omit it")
    if args.adaptive_input and not args.adaptive_input_cutoff:
        raise UserError("--adaptive-input requires --adaptive-input-cutoff, such as 20000,60000")
    if args.tie_adaptive_weights:
        for name in ("cutoff", "factor"):
            ends = getattr(args, f"adaptive_input_{name}"), getattr(args, f"adaptive_softmax_{name}")
            if not args.adaptive_input or ends[0] != ends[1]:
                raise UserError(
                    "--tie-adaptive-weights requires --adaptive-input and equal --adaptive-input-"
                    f"{name} and --adaptive-softmax-{name}, not {ends[0]} and {ends[1]}"
                )


@register_model_architecture(MODEL, MODEL)
def base(args):
    """The size of fairseq's transformer_lm: 6 layers of 512 channels."""
    base_lm_architecture(args)
    _check(args)


@register_model_architecture(MODEL, MODEL + "_tiny")
def tiny(args):
    """A small model of 4 layers, for small corpora and CPUs."""
    sizes = {"embed_dim": 128, "ffn_embed_dim": 256, "layers": 4, "attention_heads": 4}
    for name, value in sizes.items():
        if getattr(args, f"decoder_{name}", None) is None:
            setattr(args, f"decoder_{name}", value)
    base(args)


@register_model_architecture(MODEL, MODEL + "_wiki103")
def wiki103(args):
    """The size of fairseq's transformer_lm_wiki103, with adaptive input and softmax."""
    transformer_lm_baevski_wiki103(args)
    _check(args)
