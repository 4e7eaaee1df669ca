"""Binarised sentences, and trainings on them without graphs, which are not modified by tests."""

import functools

import pytest
from trainings import Training
from trainings import data as binarised


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return binarised(tmp_path_factory.mktemp("graphs") / "data")


@pytest.fixture(scope="session")
def plain(data):
    """``plain(updates, flags, **settings)``: a training of so many updates without graphs."""

    @functools.cache
    def train(updates, flags="", **settings):
        return Training(data, f"{flags} --cuda-graphs off", **settings).run(updates)

    return train
