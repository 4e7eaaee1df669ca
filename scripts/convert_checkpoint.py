#!/usr/bin/env python3
"""The command ``convert_checkpoint`` of the package, from a checkout."""

from _checkout import run

if __name__ == "__main__":
    run("convert_checkpoint")
