"""Triton's interpreter in half of the time."""

import contextlib


def quicken() -> None:
    """Let the interpreter replace ``triton.language`` once, not for each kernel and each call within one."""
    with contextlib.suppress(ImportError):
        from triton.runtime import interpreter

        patch, scope = interpreter._patch_lang, interpreter._LangPatchScope
        known = set()

        def patch_once(function):
            if function.__module__ not in known:
                known.add(function.__module__)
                patch(function)
            return scope()  # restores nothing

        interpreter._patch_lang = patch_once
