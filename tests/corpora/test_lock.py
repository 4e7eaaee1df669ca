import pytest

from user_dir.corpora.lock import locked
from user_dir.errors import UserError


def test_the_second_run_is_told(tmp_path):
    with (
        locked(tmp_path / "new"),
        pytest.raises(UserError, match="another run is preparing"),
        locked(tmp_path / "new"),
    ):
        pass
    with locked(tmp_path / "new"):
        pass
