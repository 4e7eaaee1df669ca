"""The models that come with the project, by name."""

from __future__ import annotations

import difflib
from pathlib import Path

from ..checkout import DATA, SHARED
from ..errors import UserError
from ..io import shown

_PLACES = tuple(dict.fromkeys(folder / "models" for folder in (DATA, SHARED / "data")))


def named_model(name: str) -> Path:
    """The archive ``data/models/NAME.tar``, here or of the package; raises UserError if there is none."""
    known = {path.stem: path for folder in reversed(_PLACES) for path in sorted(folder.glob("*.tar"))}
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        choose = f"did you mean {close[0]}?" if close else f"there are {', '.join(known) or 'none'}"
        raise UserError(f"there is no model {shown(name)} in {_PLACES[0]}; {choose}")
    return known[name]
