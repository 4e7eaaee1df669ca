import gzip
import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from user_dir.corpora import download as module
from user_dir.corpora.download import content_sha256, download
from user_dir.errors import UserError

CONTENT = b"one line\nanother line\n" * 5000
PACKED = gzip.compress(CONTENT)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing.gz":
            return self.send_error(404, "Not Found")
        body = CONTENT if self.path == "/plain" else PACKED
        self.send_response(200)
        if self.path != "/unsized.gz":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        half = self.path in ("/half.gz", "/unsized.gz")
        self.wfile.write(body[: len(body) // 2] if half else body)
        return None

    def log_message(self, *_):
        pass


@pytest.fixture
def url():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["good.gz", "plain"])
@pytest.mark.parametrize("sha256", [SHA256, None])
def test_a_good_file(url, tmp_path, name, sha256):
    target = download(f"{url}/{name}", tmp_path / "raw" / name, sha256)
    assert target.read_bytes() == (PACKED if name == "good.gz" else CONTENT)
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("name", "sha256", "complaint"),
    [
        ("good.gz", "0" * 64, f"sha256 {SHA256} instead of {'0' * 64}"),
        ("missing.gz", SHA256, "answered 404 Not Found"),
        ("half.gz", SHA256, r"broke after [\d,]+ of [\d,]+ bytes"),
        ("unsized.gz", SHA256, "not a whole gzip file"),
    ],
)
def test_a_bad_file_leaves_nothing_behind(url, tmp_path, name, sha256, complaint):
    with pytest.raises(UserError, match=complaint) as caught:
        download(f"{url}/{name}", tmp_path / name, sha256)
    assert name in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_nobody_answers(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 2)
    with pytest.raises(UserError, match=r"could not be downloaded: .*; run again, or .* --raw"):
        download("http://127.0.0.1:9/file.gz", tmp_path / "file.gz", SHA256)
    assert list(tmp_path.iterdir()) == []


def test_a_download_cut_short_by_a_kill_is_begun_again(url, tmp_path):
    (tmp_path / "good.gz.part").write_bytes(PACKED[:100])
    download(f"{url}/good.gz", tmp_path / "good.gz", SHA256)
    assert (tmp_path / "good.gz").read_bytes() == PACKED


def test_the_hash_is_of_the_content(tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    (tmp_path / "file.gz").write_bytes(gzip.compress(CONTENT, compresslevel=1))
    assert content_sha256(tmp_path / "file") == content_sha256(tmp_path / "file.gz") == SHA256
