"""How a field is written, by its notation in frames.md, and constructors of fields: [name, notation, value]."""

# Effects nested in others, by the names of their vectors.
EFFECT_BYTES = {}


def varint(value):
    assert 0 <= value < 2**64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode(kind, value):
    """One field by its notation in frames.md."""
    if kind in ("varint", "time"):
        return varint(value)
    if kind == "byte":
        return bytes([value])
    if kind == "bytes":
        return bytes.fromhex(value)
    if kind == "string":
        raw = value.encode("utf-8")
        return varint(len(raw)) + raw
    if kind == "blob":  # a string of bytes that are no text: the proofs
        raw = bytes.fromhex(value)
        return varint(len(raw)) + raw
    if kind == "opt":
        return varint(0 if value is None else value + 1)
    if kind == "effect":  # an effect in an effect, by the name of its vector
        return EFFECT_BYTES[value]
    if kind == "list":
        return varint(len(value)) + b"".join(encode_all(entry) for entry in value)
    raise ValueError(kind)


def encode_all(fields):
    return b"".join(encode(kind, value) for _, kind, value in fields)


# Constructors: a field is [name, notation, value].
def string(name, value):
    return [name, "string", value]


def number(name, value):
    return [name, "varint", value]


def byte(name, value):
    return [name, "byte", value]


def time(name, value):
    return [name, "time", value]


def opt(name, value):
    return [name, "opt", value]


def raw(name, value):
    return [name, "bytes", value]


def blob(name, value):
    return [name, "blob", value]


def many(name, entries):
    return [name, "list", entries]


def options(name, values):
    """`values`: option number to its value's bytes in hexadecimal."""
    return many(name, [[number("option", n), blob("value", v)] for n, v in sorted(values.items())])
