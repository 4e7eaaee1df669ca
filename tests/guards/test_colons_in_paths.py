"""A path with a colon is one path if it exists; shards and ensembles are several, as ever."""

from fairseq import utils

from user_dir.config import data_folders


def test_what_exists_is_not_split(tmp_path):
    folder = tmp_path / "run-10:30" / "bin"
    folder.mkdir(parents=True)
    (folder / "a:b.pt").write_text("")
    assert utils.split_paths(str(folder)) == [str(folder)]
    assert utils.split_paths(str(folder / "a:b.pt")) == [str(folder / "a:b.pt")]
    assert data_folders("run-10:30/bin", tmp_path) == ["run-10:30/bin"]


def test_several_paths(tmp_path):
    assert utils.split_paths(f"{tmp_path}:{tmp_path}") == [str(tmp_path)] * 2
    assert data_folders("a:b", tmp_path) == ["a", "b"]
