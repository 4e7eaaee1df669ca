import resource
import subprocess
import sys
from pathlib import Path

import pytest

from user_dir.corpora import load_corpus
from user_dir.errors import UserError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_a_disk_that_takes_no_more(data, raw):
    """Files of at most 500 bytes, which the system refuses to let grow, as it does on a full disk."""
    command = [
        sys.executable,
        str(ROOT / "scripts" / "prepare.py"),
        "tiny",
        "--raw",
        str(raw),
        "--data",
        str(data),
    ]
    limited = subprocess.run(
        command,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500)),
    )
    assert limited.returncode == 1
    assert limited.stderr.strip().split("\n")[-1].startswith("error: ") and "too large" in limited.stderr
    assert "Traceback" not in limited.stderr
    corpus = load_corpus("tiny", data)
    assert [path.name for path in corpus.folder.rglob("*") if path.is_file()] == ["corpus.yaml"]
    with pytest.raises(UserError, match="not prepared"):
        corpus.require_prepared()
    assert subprocess.run(command, capture_output=True).returncode == 0
    assert corpus.require_prepared()
