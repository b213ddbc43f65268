"""The fields of handshakes and of backups."""

from .notation import blob, many, number, opt, raw, string, time
from .values import NONCE_1, NONCE_2, PROOF, SESSION, STORE, T0


def hello_fields(lowest=1, highest=1, age=None, limit=1 << 20, name="gw-1"):
    return [
        raw("magic", b"TDMK".hex()), number("version_lowest", lowest), number("version_highest", highest),
        raw("session", SESSION), opt("session_age", age), raw("nonce", NONCE_1), number("frame_length_max", limit),
        string("name", name),
    ]


def challenge_fields(proof=PROOF, shards=16):
    return [
        number("version", 1), raw("nonce", NONCE_2), blob("proof", proof), number("frame_length_max", 1 << 20),
        number("window", 32768), number("shard_count", shards), raw("store", STORE),
    ]


def backup_part(file, offset, count):
    return [number("file", file), number("offset", offset), number("count", count)]


def backup_contents(indexes, files):
    return [
        raw("store", "0f" * 16), time("time", T0), many("indexes", [[number("index", index)] for index in indexes]),
        many("files", [[string("name", name), number("size", size)] for name, size in files])]
