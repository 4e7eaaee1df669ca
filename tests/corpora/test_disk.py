import pytest
from commands import script

from user_dir.corpora import load_corpus
from user_dir.errors import UserError


@pytest.mark.slow
def test_a_full_disk(data, raw):
    """Files are limited to 500 bytes by the system, which simulates a full disk."""
    command = ["prepare", "tiny", "--raw", raw, "--data", data]
    limited = script(*command, check=False, file_size=500)
    assert limited.returncode == 1
    assert limited.stderr.strip().split("\n")[-1].startswith("error: ") and "too large" in limited.stderr
    assert "Traceback" not in limited.stderr
    corpus = load_corpus("tiny", data)
    assert [path.name for path in corpus.folder.rglob("*") if path.is_file()] == ["corpus.yaml"]
    with pytest.raises(UserError, match="not prepared"):
        corpus.require_prepared()
    script(*command)
    assert corpus.require_prepared()
