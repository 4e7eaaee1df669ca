"""A local web server that serves files correctly and incorrectly."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def serving(files: dict[str, bytes], requests: list[tuple[str, str | None]] | None = None):
    """Serve ``files`` (name → content) and yield the address; ``requests`` records each path and range.

    The folder of a path determines the behaviour: ``/good/NAME``; ``/half/NAME`` disconnects after half of
    the content; ``/unsized/NAME`` does so without a Content-Length; ``/norange/NAME`` does not support
    ranges; ``/moved/NAME`` redirects; ``/missing/NAME`` answers 404; ``/wrong/NAME`` serves other bytes of
    the same length; ``/lying/NAME`` sends an invalid Content-Length and Content-Range; ``/astray/NAME``
    redirects to an invalid address.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if requests is not None:
                requests.append((self.path, self.headers.get("Range")))
            _, kind, name = self.path.split("/", 2)
            if kind in ("moved", "astray"):
                self.send_response(302)
                self.send_header("Location", f"/good/{name}" if kind == "moved" else f"http://[::1/{name}")
                return self.end_headers()
            if kind == "missing" or name not in files:
                return self.send_error(404)
            body = files[name] if kind != "wrong" else bytes(len(files[name]))
            begins = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
            start = int(begins[1]) if begins and kind != "norange" else 0
            if start >= len(body) and start:
                return self.send_error(416)
            self.send_response(206 if start else 200)
            if kind == "lying":
                self.send_header("Content-Range", f"bytes {'9' * 5000}-")
                self.send_header("Content-Length", "abc" if name == "plain" else "9" * 5000)
            elif start:
                self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            rest = body[start:]
            if kind not in ("unsized", "lying"):
                self.send_header("Content-Length", str(len(rest)))
            self.end_headers()
            self.wfile.write(rest[: len(rest) // 2] if kind in ("half", "unsized") else rest)
            return None

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
