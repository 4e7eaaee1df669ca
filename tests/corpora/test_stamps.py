import pytest

from user_dir.corpora.stamps import building, fingerprint, is_whole, read_stamp


def build(stamp, inputs, files):
    with building(stamp, inputs) as made:
        for name, text in files.items():
            (made.folder / name).write_text(text)
        made.report = {"files": len(files)}


@pytest.fixture
def stamp(tmp_path):
    return tmp_path / "out" / "stamp.json"


def test_complete_only_after_building_and_for_the_same_inputs(stamp):
    assert not is_whole(stamp, {"size": (1, 2)})
    build(stamp, {"size": (1, 2)}, {"a": "text", "b": "more"})
    assert is_whole(stamp, {"size": (1, 2)})
    assert not is_whole(stamp, {"size": (1, 3)})
    assert read_stamp(stamp)["report"] == {"files": 2}
    assert sorted(path.name for path in stamp.parent.iterdir()) == ["a", "b", "stamp.json"]


def test_a_missing_or_truncated_file_is_noticed(stamp):
    build(stamp, {}, {"a": "text"})
    (stamp.parent / "a").write_text("te")
    assert not is_whole(stamp, {})
    (stamp.parent / "a").unlink()
    assert not is_whole(stamp, {})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"inputs": {}}'])
def test_a_corrupt_stamp(stamp, text):
    build(stamp, {"a": 1}, {})
    stamp.write_text(text)
    assert not is_whole(stamp, {"a": 1})


def test_files_of_the_previous_build_are_removed(stamp):
    build(stamp, {"n": 2}, {"a": "1", "b": "2"})
    (stamp.parent / "mine").write_text("of the user")
    build(stamp, {"n": 1}, {"a": "3"})
    assert sorted(path.name for path in stamp.parent.iterdir()) == ["a", "mine", "stamp.json"]


def test_a_failure_keeps_the_old_files(stamp):
    build(stamp, {}, {"a": "old"})
    with pytest.raises(RuntimeError), building(stamp, {"new": 1}) as made:
        (made.folder / "a").write_text("new")
        raise RuntimeError
    assert is_whole(stamp, {}) and (stamp.parent / "a").read_text() == "old"
    assert sorted(path.name for path in stamp.parent.iterdir()) == ["a", "stamp.json"]


def test_fingerprints_follow_the_inputs(stamp):
    found = []
    for inputs in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1, "b": 3}):
        build(stamp, inputs, {})
        found.append(fingerprint(stamp))
    assert found[0] == found[1] != found[2]
