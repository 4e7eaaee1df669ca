"""fairseq has every library log at DEBUG.

``fairseq.models.wav2vec`` configures the root logger when it is imported, in 0.12.2 and later. Drawing
libraries then fill the terminal. Unnecessary once fairseq leaves the root logger alone.
"""

from __future__ import annotations

import logging


def install() -> None:
    """Keep the libraries that say much below WARNING quiet."""
    for name in ("matplotlib", "fontTools", "PIL"):
        logging.getLogger(name).setLevel(logging.WARNING)
