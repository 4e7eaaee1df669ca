"""The door: what fairseq imports first of ``--user-dir``, which registers all that the plugin brings.

It installs the guards, then imports the models, the post-editor, the tasks and the criterions. Whoever has
imported another part of the package before fairseq reads ``--user-dir`` imports this package, too.
"""

from ..guards import install

install()

from .. import models, post_editing  # noqa: E402
from . import bpe_dropout, entmax_loss  # noqa: E402

__all__ = ["bpe_dropout", "entmax_loss", "models", "post_editing"]
