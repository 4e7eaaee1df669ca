"""The attention types of a Transformer, as named in flags and files."""

ATTENTION_TYPES = ("encoder_self", "decoder_self", "decoder_context")
TITLES = {
    "encoder_self": "encoder self-attention",
    "decoder_self": "decoder self-attention",
    "decoder_context": "context attention",
}
