"""The attention normalizers: classes in the files of this folder, added by :func:`register`."""

import importlib
import pkgutil

from .base import NORMALIZERS, Normalizer, register

__all__ = ["NORMALIZERS", "Normalizer", "register"]

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
