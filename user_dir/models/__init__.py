"""The models and architectures; importing this package registers all else, too, and installs the guards.

fairseq imports every module of this folder to find what it registers.
"""

import sys

from fairseq.models import MODEL_REGISTRY

from ..guards import install

if "adaptively_sparse_transformer" in MODEL_REGISTRY:
    # The package can be loaded under two names, as a folder and as the installed package. Share the modules.
    _here = __package__.removesuffix(".models")
    _first = MODEL_REGISTRY["adaptively_sparse_transformer"].__module__.partition(".models.")[0]
    for _name, _module in list(sys.modules.items()):
        if _name.startswith(_first + "."):
            _inner = _name[len(_first) + 1 :]
            sys.modules[f"{_here}.{_inner}"] = _module
            if "." not in _inner:
                setattr(sys.modules[_here], _inner, _module)
else:
    install()

    from .. import bpe_dropout, criterions  # noqa: F401  registers the task and the criteria
    from . import architectures, post_editor_architectures
    from .adaptively_sparse_transformer import AdaptivelySparseTransformerModel
    from .language_model import AdaptivelySparseLanguageModel

    __all__ = [
        "AdaptivelySparseLanguageModel",
        "AdaptivelySparseTransformerModel",
        "architectures",
        "post_editor_architectures",
    ]
