#!/usr/bin/env python3
"""The command ``head_stats`` of the package, from a checkout."""

from _checkout import run

if __name__ == "__main__":
    run("head_stats")
