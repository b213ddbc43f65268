// Input that every server must accept: the public suite's "generic" part, with its numbers.

private let padding: [UInt8] = Array(repeating: 0, count: 6)

/// Index of the static table (RFC 7541 appendix A).
private let indexedGet: [UInt8] = [0x82, 0x86, 0x84, 0x41] + HPACK.string("localhost")

let genericCases: [Conformance] = [
  Conformance("generic 1/1 a client connection preface", [ping()], expect: .sent([ping(ack: true)])),

  Conformance("generic 2/1 PRIORITY on an idle stream", [priority(1)], [get(1)], expect: .answer(200)),
  Conformance(
    "generic 2/2 WINDOW_UPDATE on a half-closed (remote) stream",
    [get(1, "/hold"), windowUpdate(1, 100)],
    expect: .alive
  ),
  Conformance(
    "generic 2/3 PRIORITY on a half-closed (remote) stream",
    [get(1, "/hold"), priority(1)],
    expect: .alive
  ),
  Conformance(
    "generic 2/4 RST_STREAM on a half-closed (remote) stream",
    [get(1, "/hold"), rst(1)],
    expect: .alive
  ),
  Conformance("generic 2/5 PRIORITY on a closed stream", [get(1)], [priority(1)], expect: .answer(200)),

  Conformance("generic 3.1/1 a DATA frame", [post(1), data(1)], expect: .answer(200)),
  Conformance(
    "generic 3.1/2 several DATA frames",
    [post(1), data(1, end: false), data(1)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.1/3 a DATA frame with padding",
    [post(1), Frame(.data, flags: 0x9, stream: 1, [6] + Array("test".utf8) + padding)],
    expect: .answer(200)
  ),
  Conformance("generic 3.2/1 a HEADERS frame", [get(1)], expect: .answer(200)),
  Conformance(
    "generic 3.2/2 a HEADERS frame with padding",
    [Frame(.headers, flags: 0xd, stream: 1, [6] + HPACK.plain(getFields) + padding)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.2/3 a HEADERS frame with priority",
    [Frame(.headers, flags: 0x25, stream: 1, be32(0) + [255] + HPACK.plain(getFields))],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.3/1 PRIORITY with weight 1",
    [priority(1, weight: 0)],
    [get(1)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.3/2 PRIORITY with weight 256",
    [priority(1, weight: 255)],
    [get(1)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.3/3 PRIORITY with a dependency",
    [priority(1), priority(3, dependsOn: 1)],
    [get(1)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.3/4 PRIORITY that is exclusive",
    [priority(1), priority(3, dependsOn: 1, exclusive: true)],
    [get(1)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.3/5 PRIORITY on an idle stream, then HEADERS on a lower one",
    [priority(5)],
    [get(1)],
    expect: .answer(200)
  ),
  Conformance("generic 3.4/1 a RST_STREAM frame", [get(1, "/hold")], [rst(1)], expect: .alive),
  Conformance(
    "generic 3.5/1 a SETTINGS frame",
    [settings([(3, 100), (1, 4096)])],
    expect: .sent([settings(ack: true)])
  ),
  Conformance("generic 3.7/1 a PING frame", [ping()], expect: .sent([ping(ack: true)])),
  Conformance(
    "generic 3.8/1 a GOAWAY frame, then a PING before the close",
    [get(1, "/hold"), goAway(), ping()],
    expect: .sent([ping(ack: true)])
  ),
  Conformance(
    "generic 3.9/1 WINDOW_UPDATE on the connection",
    [windowUpdate(0, 1), get(1)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.9/2 WINDOW_UPDATE on a stream",
    [post(1), windowUpdate(1, 1), data(1)],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.10/1 a CONTINUATION frame",
    [
      Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)),
      continuation(1, HPACK.plain([("x-more", "1")])),
    ],
    expect: .answer(200)
  ),
  Conformance(
    "generic 3.10/2 several CONTINUATION frames",
    [
      Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)),
      continuation(1, HPACK.plain([("x-more", "1")]), end: false),
      continuation(1, HPACK.plain([("x-most", "2")])),
    ],
    expect: .answer(200)
  ),

  Conformance("generic 4/1 GET", [get(1)], expect: .answer(200)),
  Conformance(
    "generic 4/2 HEAD",
    [headers(1, [(":method", "HEAD"), (":scheme", "http"), (":authority", "localhost"), (":path", "/")])],
    expect: .answer(200)
  ),
  Conformance("generic 4/3 POST", [post(1), data(1)], expect: .answer(200)),
  Conformance(
    "generic 4/4 POST with trailers",
    [post(1, [("trailer", "x-test")]), data(1, end: false), headers(1, [("x-test", "ok")])],
    expect: .answer(200)
  ),
  Conformance(
    "generic 4/5 OPTIONS of the server itself",
    [headers(1, [(":method", "OPTIONS"), (":scheme", "http"), (":authority", "localhost"), (":path", "*")])],
    expect: .answer(200)
  ),

  Conformance("generic hpack/1 an indexed field", [headers(1, block: indexedGet)], expect: .answer(200)),
  Conformance(
    "generic hpack/2 literal with incremental indexing, indexed name",
    [headers(1, block: indexedGet + [0x7a] + HPACK.string("h2spec"))],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/3 literal with incremental indexing, indexed name, Huffman",
    [headers(1, block: indexedGet + [0x7a, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff])],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/4 literal with incremental indexing, new name",
    [headers(1, block: indexedGet + [0x40] + HPACK.string("x-test") + HPACK.string("h2spec"))],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/5 literal with incremental indexing, new name, Huffman",
    [headers(1, block: indexedGet + [0x40, 0x85, 0xf2, 0xb4, 0xa8, 0x42, 0x7f, 0x81, 0x1f])],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/6 literal without indexing, indexed name",
    [headers(1, block: indexedGet + [0x0f, 0x2b] + HPACK.string("h2spec"))],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/7 literal without indexing, indexed name, Huffman",
    [headers(1, block: indexedGet + [0x0f, 0x2b, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff])],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/8 literal without indexing, new name",
    [headers(1, block: indexedGet + [0x00] + HPACK.string("x-test") + HPACK.string("h2spec"))],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/9 literal without indexing, new name, Huffman",
    [headers(1, block: indexedGet + [0x00, 0x85, 0xf2, 0xb4, 0xa8, 0x42, 0x7f, 0x81, 0x1f])],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/10 literal never indexed, indexed name",
    [headers(1, block: indexedGet + [0x1f, 0x2b] + HPACK.string("h2spec"))],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/11 literal never indexed, indexed name, Huffman",
    [headers(1, block: indexedGet + [0x1f, 0x2b, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff])],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/12 literal never indexed, new name",
    [headers(1, block: indexedGet + [0x10] + HPACK.string("x-test") + HPACK.string("h2spec"))],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/13 literal never indexed, new name, Huffman",
    [headers(1, block: indexedGet + [0x10, 0x85, 0xf2, 0xb4, 0xa8, 0x42, 0x7f, 0x81, 0x1f])],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/14 a dynamic table size update",
    [headers(1, block: [0x3f, 0xe1, 0x0f] + indexedGet)],
    expect: .answer(200)
  ),
  Conformance(
    "generic hpack/15 several dynamic table size updates",
    [headers(1, block: [0x3f, 0x9f, 0x01, 0x3f, 0xe1, 0x1f] + indexedGet)],
    expect: .answer(200)
  ),
]
