"""Every test of α-entmax runs with each implementation."""

import pytest


@pytest.fixture(autouse=True, params=("reference", "native"))
def backend(request, monkeypatch):
    monkeypatch.setenv("ENTMAX_BACKEND", request.param)
    return request.param
