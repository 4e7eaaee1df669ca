"""What our beam search knows in a model; all else is left to fairseq's (:mod:`.supported`)."""

from __future__ import annotations

from fairseq.modules import FairseqDropout, LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from fairseq.modules.layer_drop import LayerDropModuleList
from torch import nn

from ..attention import Alpha
from ..attention.length_scaling import LengthScaling
from ..attention.normalizers.rela import GatedRMSNorm
from ..models.adaptively_sparse_transformer import AdaptivelySparseTransformerModel
from ..models.bert_sides import BertDecoder, BertEncoder
from ..models.latent_alignment import LatentAlignmentDecoder
from ..models.post_editor import AdaptivelySparsePostEditor
from ..models.sides import AdaptivelySparseDecoder, AdaptivelySparseEncoder
from ..modules import (
    AdaptivelySparseDecoderLayer,
    AdaptivelySparseEncoderLayer,
    EntmaxMultiheadAttention,
    LatentAlignment,
    OutputNormalizer,
    SegmentedPositions,
)
from ..modules.linear import Linear

MODELS: dict[type, set[tuple[type, type]]] = {
    AdaptivelySparseTransformerModel: {
        (AdaptivelySparseEncoder, AdaptivelySparseDecoder),
        (AdaptivelySparseEncoder, LatentAlignmentDecoder),
    },
    AdaptivelySparsePostEditor: {(BertEncoder, BertDecoder)},
}
"""The models, and their encoders and decoders."""

_LINEAR = "in_features out_features weight bias"
_EMBEDDING = "num_embeddings embedding_dim padding_idx max_norm norm_type scale_grad_by_freq sparse weight"
_SIDE = "cfg dictionary padding_idx embed_scale quant_noise num_layers layernorm_embedding dropout_module "
_SIDE += "embed_tokens embed_positions layers layer_norm version normalize "
_ENCODER = _SIDE + "encoder_layerdrop return_fc max_source_positions "
_DECODER = (
    _SIDE + "onnx_trace adaptive_softmax _incremental_state_id _beam_size _future_mask decoder_layerdrop "
)
_DECODER += "share_input_output_embed embed_dim output_embed_dim max_target_positions project_in_dim "
_DECODER += "cross_self_attention prepends_source project_out_dim output_projection output_normalizer "
_LAYER = (
    "embed_dim quant_noise quant_noise_block_size activation_fn normalize_before self_attn fc1 fc2 forward "
)
_LAYER += "self_attn_layer_norm final_layer_norm dropout_module activation_dropout_module "
_MODEL = "_is_generation_fast cfg args supports_align_args int8 trains_alignment alpha_log reported train "
_MODEL += "encoder decoder "

NAMES: dict[type, str] = {
    AdaptivelySparseTransformerModel: _MODEL,
    AdaptivelySparsePostEditor: _MODEL + "ema_warmup",
    AdaptivelySparseEncoder: _ENCODER,
    BertEncoder: _ENCODER + "separator input_positions drops_separator",
    AdaptivelySparseDecoder: _DECODER,
    BertDecoder: _DECODER + "new_piece_penalty eos",
    LatentAlignmentDecoder: _DECODER + "alignment",
    LatentAlignment: "num_heads top_k soft q_proj k_proj state_proj source_proj out_proj layer_norm "
    "dropout_module has_constant_alpha alpha certified support _incremental_state_id",
    GatedRMSNorm: "scale gate",
    AdaptivelySparseEncoderLayer: _LAYER + "cfg return_fc",
    AdaptivelySparseDecoderLayer: _LAYER
    + "cross_self_attention attn_ln nh head_dim c_attn encoder_attn encoder_attn_layer_norm ffn_layernorm "
    "w_resid need_attn onnx_trace",
    EntmaxMultiheadAttention: "dictionary onnx_trace adaptive_softmax _incremental_state_id use_xformers "
    "embed_dim kdim vdim qkv_same_dim num_heads head_dim scaling self_attention encoder_decoder_attention "
    "bias_k bias_v add_zero_attn beam_size skip_embed_dim_check backend discards_weights normalizer "
    "gated_norm length_scaling dropout_module k_proj v_proj q_proj out_proj alpha",
    Alpha: "num_heads constant low high multiplier freeze_updates schedule schedule_start schedule_end "
    "schedule_updates updates a",
    LengthScaling: "beta gamma",
    OutputNormalizer: "start end schedule_updates updates",
    SegmentedPositions: "max_positions padding_idx separator alone positions segments",
    SinusoidalPositionalEmbedding: "embedding_dim padding_idx max_positions onnx_trace weights",
    LearnedPositionalEmbedding: _EMBEDDING + " onnx_trace max_positions",
    FairseqDropout: "p module_name apply_during_inference",
    nn.Embedding: _EMBEDDING,
    nn.Linear: _LINEAR,
    Linear: _LINEAR,
    nn.LayerNorm: "normalized_shape eps elementwise_affine weight bias",
    nn.ModuleList: "",
    LayerDropModuleList: "p",
}
"""The types of modules, and the names of what their constructors set. Normalizers are asked."""

OFF: dict[type, str] = {
    AdaptivelySparseEncoder: "return_fc",
    AdaptivelySparseDecoder: "adaptive_softmax prepends_source quant_noise",
    AdaptivelySparseEncoderLayer: "return_fc",
    AdaptivelySparseDecoderLayer: "cross_self_attention attn_ln c_attn ffn_layernorm w_resid",
    EntmaxMultiheadAttention: "bias_k bias_v add_zero_attn use_xformers",
    FairseqDropout: "apply_during_inference",
}
"""What has to be None, False or 0 in a type and those that extend it."""
