#!/usr/bin/env python3
"""Writes the golden vectors of the frame protocol, from frames.md alone, and of tickets, from tickets.md.

The encoder (the package `generator`) shares nothing with the Swift code, so that a mistake has to be made twice to go
unseen. Python's standard library only; the hashes come from the foreign tool xxhsum (Debian package xxhash).

    ./generate.py            writes the .json files beside it
    ./generate.py --check    exits 1 if one of them is not what it would write
"""

import pathlib
import sys

from generator.files import FILES, render

HERE = pathlib.Path(__file__).resolve().parent


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, make in FILES.items():
        text = render(make())
        path = HERE / name
        if check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.exit("not as generate.py would write them: " + ", ".join(stale))


main()
