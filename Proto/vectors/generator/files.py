"""The files of vectors: their names, contents and text."""

import json

from .frames import FRAMES
from .hashes import shard_hash
from .log import BAD_BATCHES, BATCH_VECTORS, EFFECT_VECTORS, PAGE_VECTORS
from .malformed import BAD_FRAMES
from .tickets import tickets

FILES = {
    "shard-hash.json": shard_hash,
    "tickets.json": tickets,
    "frames.json": lambda: {
        "about": "Whole frames. A field is [name, notation, value]; blob: a string whose bytes are no text.",
        "frames": FRAMES},
    "bad-frames.json": lambda: {
        "about": "What a receiver refuses, and as what (ReceiptWire's WireError). Limit 1048576 unless it is named.",
        "frames": BAD_FRAMES},
    "log.json": lambda: {
        "about": "Effects, batches and pages; and batches that are refused.",
        "effects": EFFECT_VECTORS, "batches": BATCH_VECTORS, "pages": PAGE_VECTORS, "bad_batches": BAD_BATCHES},
}


def render(value):
    """One entry of a list on a line: such files can be read, and compared line by line."""
    lines = ["{"]
    for index, (key, entry) in enumerate(value.items()):
        comma = "," if index < len(value) - 1 else ""
        if isinstance(entry, list):
            lines.append(f"  {json.dumps(key)}: [")
            lines += [
                "    " + json.dumps(e, ensure_ascii=False) + ("," if i < len(entry) - 1 else "")
                for i, e in enumerate(entry)]
            lines.append("  ]" + comma)
        else:
            lines.append(f"  {json.dumps(key)}: {json.dumps(entry, ensure_ascii=False)}{comma}")
    return "\n".join(lines + ["}"]) + "\n"
