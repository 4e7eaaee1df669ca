"""Adaptively sparse attention: the mathematics, and a plugin for fairseq (``--user-dir``).

Importing this package imports nothing else. fairseq, given it as ``--user-dir``, imports :mod:`.models`,
which registers the model and installs the :mod:`.guards`.
"""

import importlib
import os

__version__ = "0.1.0"


class _Path(list):
    """The package's ``__path__``, which imports the models as fairseq finds its ``--user-dir`` in it.

    fairseq imports the models of a package that is new to it. Where :mod:`.entmax`, say, was imported
    before, it only asks whether the package that is there has this path.
    """

    def __contains__(self, path: object) -> bool:
        found = os.path.realpath(str(path)) in map(os.path.realpath, self)
        if found:
            importlib.import_module(f"{__name__}.models")
        return found


__path__ = _Path(__path__)
