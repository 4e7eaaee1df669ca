"""fairseq makes all libraries log at level DEBUG.

``fairseq.models.wav2vec`` configures the root logger when it is imported (0.12.2 and later), so plotting
libraries flood the terminal. Unnecessary once fairseq leaves the root logger alone.
"""

import logging


def install() -> None:
    """Silence libraries that log a lot below WARNING."""
    for name in ("matplotlib", "fontTools", "PIL"):
        logging.getLogger(name).setLevel(logging.WARNING)
