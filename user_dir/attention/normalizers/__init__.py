"""The attention normalizers: each is a class in a file of this folder, which :func:`register` adds."""

import importlib
import pkgutil

from .base import NORMALIZERS, Normalizer, register

__all__ = ["NORMALIZERS", "Normalizer", "register"]

for module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{module.name}")
