"""What a training that begins sets for the whole process is set back."""

import logging
import sys
import threading

import pytest


@pytest.fixture
def hooks(monkeypatch):
    monkeypatch.setattr(sys, "excepthook", sys.__excepthook__)
    monkeypatch.setattr(threading, "excepthook", threading.__excepthook__)
    monkeypatch.setattr(logging, "raiseExceptions", True)
