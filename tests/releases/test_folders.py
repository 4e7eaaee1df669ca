"""What exports to other programs have in common: the corpora that they refuse, and folders left unwritten."""

import pytest
from tiny_release import tiny_corpus

from user_dir.errors import UserError
from user_dir.releases.folders import new_folder, unsupported_corpus


def test_corpora_that_are_refused(tmp_path):
    assert unsupported_corpus(tiny_corpus(tmp_path / "plain")) is None
    lower = tiny_corpus(tmp_path / "lower", "normalise: {every: [lower_case]}")
    assert "lower_case" in unsupported_corpus(lower)


def test_nothing_is_left_where_something_fails(tmp_path):
    for error in (OSError(28, "no space"), ModuleNotFoundError("onnx", name="onnx")):
        with pytest.raises(UserError), new_folder(tmp_path / "new", "onnx", ("onnx",)) as folder:
            (folder / "half").touch()
            raise error
        assert list(tmp_path.iterdir()) == []
    with new_folder(tmp_path / "new", "onnx", ("onnx",)) as folder:
        (folder / "whole").touch()
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["whole"]
