"""Models by name: those of the folder where commands work before those of the package."""

from __future__ import annotations

import pytest

from user_dir.errors import UserError
from user_dir.releases import named


@pytest.fixture
def places(tmp_path, monkeypatch):
    folders = tmp_path / "here", tmp_path / "package"
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(named, "_PLACES", folders)
    return folders


def test_a_model_is_found_by_its_name(places):
    here, package = places
    (package / "de-en.tar").touch()
    assert named.named_model("de-en") == package / "de-en.tar"
    (here / "de-en.tar").touch()
    assert named.named_model("de-en") == here / "de-en.tar"


def test_an_unknown_name_is_told_what_there_is(places):
    with pytest.raises(UserError, match="none"):
        named.named_model("de-en")
    (places[1] / "de-en.tar").touch()
    with pytest.raises(UserError, match=r"did you mean de-en\?"):
        named.named_model("de-eng")
