"""Adaptively sparse attention: the mathematics and a plugin for fairseq (``--user-dir``).

Importing this package imports nothing else. When fairseq is given it as ``--user-dir``, it imports
:mod:`.tasks`, which registers the models and installs the :mod:`.guards`.
"""

import importlib
import os
from typing import Any

__version__ = "0.2.0.dev0"


def load_model(model: "str | os.PathLike[str]", **options: object) -> Any:
    """A trained model that translates and shows its attention: ``load_model("de-en")``.

    See :class:`user_dir.analysis.loaded_model.LoadedModel`. It needs the extra ``fairseq``.
    """
    return importlib.import_module(f"{__name__}.analysis.loaded_model").LoadedModel(model, **options)
