"""Where checkpoints are written."""

import pytest

from user_dir.commands import average_checkpoints, convert_checkpoint


@pytest.mark.parametrize("command", [average_checkpoints, convert_checkpoint])
def test_no_checkpoint_is_written_as_what_it_will_not_be_read_as(command, tmp_path, capsys):
    given = ["--path", str(tmp_path / "model.safetensors"), "--output", str(tmp_path / "new.safetensors")]
    with pytest.raises(SystemExit) as ended:
        command.main(given)
    assert ended.value.code == 2 and "new.safetensors" in capsys.readouterr().err.splitlines()[-1]
