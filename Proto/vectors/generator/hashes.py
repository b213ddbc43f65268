"""XXH64, by the foreign tool xxhsum (Debian package xxhash), and the vectors of the shard hash."""

import subprocess


def xxh64(data):
    out = subprocess.run(["xxhsum", "-H1", "-"], input=data, capture_output=True, check=True).stdout
    return out.split()[0].decode()


def shard_hash():
    lengths = sorted(set(range(0, 101)) | {127, 128, 129, 193, 255, 256, 257, 300})
    texts = ["", "a", "messaging:general", "messaging:general-42", "team:!members-abc", "auth0|5f7c",
             "@bob:example.org", "messaging:Zo\u00eb", "messaging:Zoe\u0308", "livestream:0",
             "t" * 64 + ":" + "c" * 128]
    counts = [1, 2, 3, 7, 16, 64, 1000, 65535]
    return {
        "about": "XXH64, seed 0, by xxhsum -H1. Byte i of a sequence is (31 * i + 7) mod 256.",
        "sequences": [
            {"length": n, "hash": xxh64(bytes((31 * i + 7) & 255 for i in range(n)))} for n in lengths],
        "texts": [{"text": t, "hash": xxh64(t.encode())} for t in texts],
        "shards": [
            {"cid": t, "shard_count": c, "shard": int(xxh64(t.encode()), 16) % c} for t in texts[2:] for c in counts],
    }
