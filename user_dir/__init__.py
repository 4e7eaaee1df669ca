"""Adaptively sparse attention: the mathematics and a plugin for fairseq (``--user-dir``).

Importing this package imports nothing else. When fairseq is given it as ``--user-dir``, it imports
:mod:`.models`, which registers the model and installs the :mod:`.guards`.
"""

import importlib
import os
from typing import Any

__version__ = "0.1.0"


def load_model(model: "str | os.PathLike[str]", **options: object) -> Any:
    """A trained model that translates and shows its attention: ``load_model("de-en")``.

    See :class:`user_dir.translation.translator.LoadedModel`.
    """
    return importlib.import_module(f"{__name__}.translation.translator").LoadedModel(model, **options)


class _Path(list):
    """The package's ``__path__``; a lookup of the package's own folder in it imports the models.

    fairseq imports the models of a ``--user-dir`` only if its package is not imported yet. If it is, for
    instance because :mod:`.entmax` was imported first, fairseq only looks up the folder in ``__path__``.
    """

    def __contains__(self, path: object) -> bool:
        found = os.path.realpath(str(path)) in map(os.path.realpath, self)
        if found:
            importlib.import_module(f"{__name__}.models")
        return found


__path__ = _Path(__path__)
