"""What `make clean` removes, and that it asks."""

import io

import pytest
from helpers import script_module

from user_dir.errors import UserError


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clean(tmp_path, monkeypatch):
    module = script_module("clean")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "checkpoints" / "toy").mkdir(parents=True)
    (tmp_path / "checkpoints" / "toy" / "average.pt").write_bytes(b"x" * 2**21)
    (tmp_path / "data").mkdir()
    return module


def test_it_refuses_where_nobody_can_answer(clean, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(UserError, match=r"checkpoints/ of trainings \(2 MiB\) would be removed.*CONFIRM=yes"):
        clean.main([])
    assert (tmp_path / "checkpoints" / "toy" / "average.pt").exists()


@pytest.mark.parametrize("words, answer", [([], "y\n"), ([], "YES\n"), (["--yes"], "")])
def test_it_removes_trainings_and_no_data(clean, tmp_path, monkeypatch, words, answer):
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    clean.main(words)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    monkeypatch.setattr("sys.stdin", io.StringIO())
    clean.main([])  # nothing is there, so nothing is asked


def test_what_a_link_leads_to_stays(clean, tmp_path):
    (tmp_path / "checkpoints").rename(tmp_path / "elsewhere")
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    clean.main(["--yes"])
    assert not (tmp_path / "checkpoints").is_symlink()
    assert (tmp_path / "elsewhere" / "toy" / "average.pt").exists()
