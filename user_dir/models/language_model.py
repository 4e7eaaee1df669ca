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

from ..alpha_settings import alpha_configs
from ..errors import UserError
from ..graphs import add_graph_flag
from .architectures import default
from .flags import add_alpha_flags, attention_backend, check_cutoffs, check_sizes
from .output import add_output_flags, output_normalizer
from .sides import AdaptivelySparseDecoder
from .sparse_heads import SparseHeads

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
        add_graph_flag(parser)

    @classmethod
    def build_model(cls, args, task):
        """Build the model for ``task``; raises UserError for invalid combinations of flags."""
        output = output_normalizer(args)
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
        model.set_up_heads(args)
        decoder.output_normalizer = output
        return model


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
    check_sizes(args, "decoder")
    if args.character_embeddings:
        raise UserError(f"--character-embeddings is not supported by {MODEL}; omit it")
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
    default(
        args,
        decoder_embed_dim=128,
        decoder_ffn_embed_dim=256,
        decoder_layers=4,
        decoder_attention_heads=4,
    )
    base(args)


@register_model_architecture(MODEL, MODEL + "_wiki103")
def wiki103(args):
    """The size of fairseq's transformer_lm_wiki103, with adaptive input and softmax."""
    transformer_lm_baevski_wiki103(args)
    _check(args)
