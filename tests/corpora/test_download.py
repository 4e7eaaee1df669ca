import gzip
import hashlib
import logging
import resource

import pytest
from server import serving

from user_dir.corpora import download as module
from user_dir.corpora.description import Download
from user_dir.corpora.download import download
from user_dir.errors import UserError

CONTENT = b"one line\nanother line\n" * 5000
PACKED = gzip.compress(CONTENT, mtime=0)
FILES = {"text.gz": PACKED, "plain": CONTENT, "archive.tgz": PACKED}
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(PACKED).hexdigest()


@pytest.fixture
def requests():
    return []


@pytest.fixture
def url(requests):
    with serving(FILES, requests) as address:
        yield address


def published(url, *paths, size=None, **checksums):
    return Download([f"{url}/{path}" for path in paths], size, **checksums)


@pytest.mark.parametrize(
    ("name", "checksums"),
    [
        ("text.gz", {"sha256": SHA256}),  # of the decompressed content
        ("plain", {"sha256": SHA256}),
        ("archive.tgz", {"md5": MD5}),  # of the archive itself
        ("archive.tgz", {}),
        ("plain", {}),
    ],
)
@pytest.mark.parametrize("how", ["good", "moved", "norange"])
def test_a_good_file(url, tmp_path, name, checksums, how):
    target = download(published(url, f"{how}/{name}", **checksums), tmp_path / "raw" / name)
    assert target.read_bytes() == FILES[name]
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("path", "size", "checksums", "complaint"),
    [
        ("good/text.gz", None, {"sha256": "0" * 64}, f"sha256 {SHA256} instead of {'0' * 64}"),
        ("good/archive.tgz", None, {"md5": "0" * 32}, f"md5 {MD5} instead of {'0' * 32}"),
        ("wrong/plain", None, {"sha256": SHA256}, "is not the expected file: sha256"),
        ("good/plain", 99, {}, r"is not the expected file: 110,000 bytes instead of 99"),
        ("missing/text.gz", None, {"sha256": SHA256}, "answered 404 Not Found"),
        ("half/text.gz", None, {}, r"broke after [\d,]+ of [\d,]+ bytes"),
        ("unsized/text.gz", None, {"sha256": SHA256}, "an incomplete gzip file"),
        ("unsized/text.gz", None, {}, "an incomplete gzip file"),
        ("unsized/plain", None, {"sha256": SHA256}, "is not the expected file: sha256"),
    ],
)
def test_a_bad_file_leaves_nothing_behind(url, tmp_path, path, size, checksums, complaint):
    with pytest.raises(UserError, match=complaint) as caught:
        download(published(url, path, size=size, **checksums), tmp_path / path.split("/")[1])
    assert path in str(caught.value) and "--raw" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["plain", "archive.tgz"])
@pytest.mark.parametrize("part", [b"", CONTENT[:9]])
def test_invalid_headers_of_a_server(url, tmp_path, name, part):
    whole = hashlib.sha256(FILES[name]).hexdigest()
    if part:
        (tmp_path / f"{name}.part").write_bytes(part)
    download(published(url, f"lying/{name}", f"good/{name}", sha256=whole), tmp_path / name)
    assert (tmp_path / name).read_bytes() == FILES[name]


def test_a_server_that_redirects(url, tmp_path):
    with pytest.raises(UserError, match="could not be downloaded: Invalid IPv6 URL"):
        download(published(url, "astray/plain", sha256=SHA256), tmp_path / "plain")
    download(published(url, "astray/plain", "good/plain", sha256=SHA256), tmp_path / "plain")
    assert (tmp_path / "plain").read_bytes() == CONTENT


def test_no_server_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 2)
    with pytest.raises(UserError, match=r"could not be downloaded: .*; run again, or .* --raw"):
        download(published("http://127.0.0.1:9", "file.gz", sha256=SHA256), tmp_path / "file.gz")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_download_is_resumed(url, tmp_path, requests):
    """Each run gets half of the remainder, then a good mirror sends the rest; no byte is requested twice."""
    broken = published(url, "half/archive.tgz", md5=MD5)
    for _ in range(2):
        with pytest.raises(UserError, match=r"broke after .*; run again"):
            download(broken, tmp_path / "archive.tgz")
        assert not (tmp_path / "archive.tgz").exists()
    arrived = (tmp_path / "archive.tgz.part").stat().st_size
    assert arrived == len(PACKED) // 2 + (len(PACKED) - len(PACKED) // 2) // 2
    download(published(url, "moved/archive.tgz", md5=MD5), tmp_path / "archive.tgz")
    assert (tmp_path / "archive.tgz").read_bytes() == PACKED
    assert requests[-1] == ("/good/archive.tgz", f"bytes={arrived}-")
    assert [path.name for path in tmp_path.iterdir()] == ["archive.tgz"]


def test_the_next_mirror_resumes(url, tmp_path, requests, caplog):
    paths = ["missing/plain", "half/plain", "good/plain"]
    with caplog.at_level(logging.WARNING):
        download(published(url, *paths, sha256=SHA256), tmp_path / "plain")
    assert (tmp_path / "plain").read_bytes() == CONTENT
    assert requests == [
        ("/missing/plain", None),
        ("/half/plain", None),
        ("/good/plain", f"bytes={len(CONTENT) // 2}-"),
    ]
    assert "answered 404" in caplog.text and "broke after" in caplog.text


def test_the_response_of_every_mirror_is_reported(url, tmp_path):
    with pytest.raises(
        UserError, match=r"missing/plain answered 404 .*; .*wrong/plain is not the expected file"
    ):
        download(published(url, "missing/plain", "wrong/plain", sha256=SHA256), tmp_path / "plain")


@pytest.mark.parametrize(
    "part",
    [PACKED[:100], b"of another version", PACKED, PACKED + b"too long", b""],
    ids=["beginning", "wrong beginning", "whole", "too long", "empty"],
)
@pytest.mark.parametrize("how", ["good", "norange"])
def test_any_partial_file_of_an_earlier_run(url, tmp_path, part, how):
    (tmp_path / "archive.tgz.part").write_bytes(part)
    download(published(url, f"{how}/archive.tgz", md5=MD5), tmp_path / "archive.tgz")
    assert (tmp_path / "archive.tgz").read_bytes() == PACKED
    assert [path.name for path in tmp_path.iterdir()] == ["archive.tgz"]


def test_without_a_checksum_nothing_is_resumed(url, tmp_path, requests):
    (tmp_path / "plain.part").write_bytes(CONTENT[:100])
    download(published(url, "good/plain"), tmp_path / "plain")
    assert requests == [("/good/plain", None)]


def test_mirrors_are_not_tried_after_a_full_disk(url, tmp_path, requests):
    soft, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, most))
    try:
        with pytest.raises(UserError, match=r"cannot write .*plain\.part: File too large"):
            download(published(url, "good/plain", "good/plain", sha256=SHA256), tmp_path / "plain")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, most))
    assert len(requests) == 1
    assert not (tmp_path / "plain").exists()
