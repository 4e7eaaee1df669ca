"""The model that comes with the project, before anything is prepared or trained."""

import pytest
from commands import ROOT, script

MODEL = ROOT / "data" / "models" / "de-en" / "model.pt"


@pytest.mark.slow
def test_it_translates_and_shows_its_heads(tmp_path):
    page = tmp_path / "heads.html"
    sentences = "Wo hast du das Buch gekauft?", "Klicken Sie auf OK."
    done = script("translate", "--model", "de-en", "--report", page, *sentences)
    assert done.stdout.splitlines()[:2] == ["Where did you buy the book?", "Click OK."]
    assert page.stat().st_size > 50_000
    assert MODEL.stat().st_size <= 30_000_000
