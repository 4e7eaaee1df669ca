"""`make setup` on different Pythons and existing environments. No network: pip does not run."""

import os
import sys

import pytest
from helpers import script_module


@pytest.fixture
def install(tmp_path, monkeypatch):
    """The script for a project in an empty folder; its commands are recorded in ``install.commands``."""
    module = script_module("install")
    venv = tmp_path / ".venv"
    files = [tmp_path / name for name in ("requirements.txt", "requirements-dev.txt", "constraints.txt")]
    for file in files:
        file.write_text("", encoding="utf-8")
    monkeypatch.setattr(module, "VENV", venv)
    monkeypatch.setattr(module, "STAMP", venv / ".installed")
    monkeypatch.setattr(module, "REQUIREMENTS", files[:2])
    monkeypatch.setattr(module, "CONSTRAINTS", files[2])
    module.commands = []

    def run(*command):
        module.commands.append(" ".join(map(str, command)))
        if "venv" in command:
            (venv / "bin").mkdir(parents=True, exist_ok=True)
            python = venv / "bin" / "python"
            python.unlink(missing_ok=True)
            python.symlink_to(sys.executable)

    monkeypatch.setattr(module, "run", run)
    return module


def test_a_finished_setup_is_not_repeated(install):
    install.main([])
    assert "venv --clear" in install.commands[0]
    assert all("--constraint" in command for command in install.commands[1:-1])
    assert "uninstall" in install.commands[-1] and "torchaudio" in install.commands[-1]
    install.commands.clear()
    install.main(["--this-python"])
    assert not install.commands


def test_new_requirements_are_installed_into_the_existing_environment(install):
    install.main([])
    install.commands.clear()
    later = install.STAMP.stat().st_mtime + 1
    os.utime(install.CONSTRAINTS, (later, later))
    install.main([])
    assert install.commands and not any("venv --clear" in command for command in install.commands)


def test_the_python_of_the_environment_is_kept_unless_one_is_named(install, monkeypatch):
    install.main([])
    install.commands.clear()
    other = (3, 12) if sys.version_info[:2] != (3, 12) else (3, 11)
    monkeypatch.setattr(install.sys, "version_info", (*other, 0))
    install.main([])
    assert not install.commands
    install.main(["--this-python"])
    assert "venv --clear" in install.commands[0]


def test_unsupported_python(install, monkeypatch):
    monkeypatch.setattr(install.sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit, match=r"error: Python .* is not supported, only 3\.1\d to 3\.12"):
        install.main([])
    assert not install.commands


def test_no_compiler_where_fairseq_is_compiled(install, monkeypatch):
    monkeypatch.setenv("CXX", "/nowhere/compiler -m64")
    monkeypatch.setattr(install.sys, "version_info", (3, 11, 7))
    with pytest.raises(SystemExit, match=r"error: fairseq is compiled .*/nowhere/compiler"):
        install.main([])
    monkeypatch.setattr(install.sys, "version_info", (3, 12, 1))
    monkeypatch.setattr(install.platform, "system", lambda: "Linux")
    monkeypatch.setattr(install.platform, "machine", lambda: "x86_64")
    install.main([])
