import gzip
import hashlib

import pytest

from user_dir.corpora.checksums import checksums, difference
from user_dir.errors import UserError

CONTENT = b"one line\nanother line\n" * 500


def test_checksums_are_of_the_content_of_text_and_of_archives_themselves(tmp_path):
    packed = gzip.compress(CONTENT)
    for name, data in {"a": CONTENT, "a.gz": packed, "a.tgz": packed, "a.tar.gz": packed}.items():
        (tmp_path / name).write_bytes(data)
    inside, file = (hashlib.sha256(data).hexdigest() for data in (CONTENT, packed))
    found = {
        name: checksums(tmp_path / name, ["sha256"])["sha256"] for name in ("a", "a.gz", "a.tgz", "a.tar.gz")
    }
    assert found == {"a": inside, "a.gz": inside, "a.tgz": file, "a.tar.gz": file}


def test_several_algorithms(tmp_path):
    (tmp_path / "a").write_bytes(CONTENT)
    found = checksums(tmp_path / "a", ["md5", "sha1"])
    assert found == {"md5": hashlib.md5(CONTENT).hexdigest(), "sha1": hashlib.sha1(CONTENT).hexdigest()}


def test_a_truncated_gzip_file(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(CONTENT)[:-9])
    with pytest.raises(UserError, match=r"a\.gz is a truncated or damaged gzip file"):
        checksums(tmp_path / "a.gz", ["sha256"])


def test_the_difference_is_described():
    published = {"md5": "a", "sha1": "b"}
    assert difference({"md5": "a", "sha1": "b", "sha256": "c"}, published) is None
    assert difference({"md5": "a", "sha1": "x"}, published) == "sha1 x instead of b"
