"""What a checkpoint translates."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers import checkpoint_state
from tiny_splits import described

from user_dir.errors import UserError
from user_dir.translation.direction import translation_direction


@pytest.mark.parametrize("name", ["transformer_lm", "masked_lm"])
def test_a_model_that_does_not_translate_is_refused_by_its_name(name, tmp_path):
    """Its task has no languages, so there is no direction to compare."""
    side = {"transformer_lm": "decoder", "masked_lm": "encoder"}[name]
    state = checkpoint_state({"_name": name}, model={f"{side}.embed_tokens.weight": torch.zeros(8, 2)})
    with pytest.raises(UserError, match=rf"lm\.pt .*{name}"):
        translation_direction(state, Path("lm.pt"), described(tmp_path))
