"""Raw files: downloaded whole or not at all, compared with their checksums, taken out of archives."""

import gzip
import hashlib
import io
import logging
import tarfile
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tiny import DESCRIPTION, GERMAN, lines

from user_dir.corpora import load_corpus
from user_dir.corpora.description import Download
from user_dir.corpora.download import RawFiles, checksum, download, extract
from user_dir.errors import UserError

CONTENT = b"one line\nanother line\n" * 5000
PACKED = gzip.compress(CONTENT, mtime=0)
FILES = {"text.gz": PACKED, "plain": CONTENT, "archive.tgz": PACKED}
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def url():
    """A server: ``/good/NAME``; ``/half/NAME`` breaks off; ``/wrong/NAME`` has other bytes; else 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            _, kind, name = self.path.split("/", 2)
            if kind not in ("good", "half", "wrong"):
                return self.send_error(404)
            body = FILES[name] if kind != "wrong" else bytes(len(FILES[name]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: len(body) // 2] if kind == "half" else body)
            return None

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("name", "checksums"),
    [
        ("text.gz", {"sha256": SHA256}),  # of the decompressed content
        ("plain", {"sha256": SHA256}),
        ("archive.tgz", {"md5": hashlib.md5(PACKED).hexdigest()}),  # of the archive itself
        ("archive.tgz", {}),
    ],
)
def test_the_first_mirror_that_has_the_file(url, tmp_path, name, checksums):
    mirrors = [
        f"{url}/{kind}/{name}" for kind in ("missing", "half", *(["wrong"] if checksums else []), "good")
    ]
    download(Download(mirrors, **checksums), tmp_path / "raw" / name)
    assert (tmp_path / "raw" / name).read_bytes() == FILES[name]
    assert [path.name for path in (tmp_path / "raw").iterdir()] == [name]


def test_without_a_good_mirror_nothing_is_left_and_all_are_named(url, tmp_path):
    mirrors = [f"{url}/{kind}/plain" for kind in ("missing", "half", "wrong")]
    with pytest.raises(UserError) as error:
        download(Download(mirrors, sha256=SHA256), tmp_path / "plain")
    assert all(mirror in str(error.value) for mirror in mirrors) and "\n" not in str(error.value)
    assert "55,000 of 110,000 bytes" in str(error.value) and not list(tmp_path.iterdir())


def test_missing_files_are_downloaded_into_raw(url, data, raw):
    text = DESCRIPTION + f"downloads:\n  dev.de: {{url: '{url}/good/text.gz', sha256: {SHA256}}}\n"
    (data / "tiny" / "corpus.yaml").write_text(text)
    corpus = load_corpus("tiny", data)
    corpus.raw.mkdir()
    for path in raw.iterdir():
        path.rename(corpus.raw / path.name)
    (corpus.raw / "dev.de").unlink()
    assert RawFiles(corpus).digests()["dev.de"] == SHA256
    assert (corpus.raw / "dev.de.gz").read_bytes() == PACKED
    with pytest.raises(UserError, match=r"train\.de is not in .*elsewhere; put it there, or name its folder"):
        RawFiles(corpus, data / "elsewhere").digests()


def test_another_file_than_the_published_is_used_with_a_warning(data, raw, caplog):
    text = DESCRIPTION + f"downloads:\n  dev.de: {{url: 'http://a/b', sha256: {SHA256}}}\n"
    (data / "tiny" / "corpus.yaml").write_text(text)
    with caplog.at_level(logging.WARNING):
        digests = RawFiles(load_corpus("tiny", data), raw).digests()
    assert "dev.de is not the published file" in caplog.text
    assert digests["dev.de"] == checksum(raw / "dev.de", "sha256")
    assert (
        digests["train.de"]
        == hashlib.sha256("".join(f"{line}\n" for line in GERMAN * 10).encode()).hexdigest()
    )


MEMBERS = {"in/a.txt": b"a\n", "../evil": b"x", "in/b.txt": b"b\n" * 9}


def archive(path, members=MEMBERS, before=""):
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as file:
            for name, content in members.items():
                file.writestr(name, content)
        return path
    with tarfile.open(
        path, f"w:{path.suffix[1:] if path.suffix != '.tgz' else 'gz'}".removesuffix("tar")
    ) as file:
        for name, content in members.items():
            entry = tarfile.TarInfo(before + name)
            entry.size = len(content)
            file.addfile(entry, io.BytesIO(content))
    return path


@pytest.mark.parametrize("name", ["x.tgz", "x.tar", "x.zip"])
def test_only_named_members_are_written(tmp_path, name):
    path = archive(tmp_path / name, before="./" if name == "x.tar" else "")
    extract(path, {"in/a.txt"}, tmp_path / "out")
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*.txt")] == ["out/in/a.txt"]
    assert lines(tmp_path / "out" / "in" / "a.txt") == ["a"] and not list(tmp_path.rglob("evil"))
    with pytest.raises(UserError, match=rf"{name} has no member in/c\.txt"):
        extract(path, {"in/a.txt", "in/c.txt"}, tmp_path / "out")
