"""Our attention in models of transformers, and trained models as folders."""

from importlib.util import find_spec

if find_spec("transformers") is not None:  # a plain folder is written without it
    from .attention_interface import load_sparsified, sparsify
    from .keys_per_query import KeysPerQuery
    from .statistics import head_statistics

    __all__ = ["KeysPerQuery", "head_statistics", "load_sparsified", "sparsify"]
