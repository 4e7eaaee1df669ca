"""What the heads do: attention captured from a model, and statistics over it."""

import logging

# Importing fairseq lets all debugging output through, of which these have hundreds of lines for a figure.
for _name in ("matplotlib", "fontTools", "PIL"):
    logging.getLogger(_name).setLevel(logging.WARNING)
