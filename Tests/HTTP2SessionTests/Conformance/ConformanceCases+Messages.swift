import HTTP2Session

// HTTP messages (section 8) and header compression (RFC 7541), with the public suite's numbers.

private func without(_ name: String) -> Fields { getFields.filter { $0.0 != name } }

private let indexedGet: [UInt8] = [0x82, 0x86, 0x84, 0x41] + HPACK.string("localhost")

/// Malformed requests are stream errors (section 8.1.1); nghttp2 must not close the connection for them.
private let malformed = Expected.streamError(.protocolError)

let messageCases: [Conformance] = [
  Conformance(
    "8.1/1 a second HEADERS without END_STREAM",
    [post(1), headers(1, [("x-test", "ok")], end: false)],
    expect: malformed
  ),
  Conformance("8.1.2/1 an upper-case name", [get(1, extra: [("X-TEST", "ok")])], expect: malformed),
  Conformance("8.1.2/2 a name with a blank", [get(1, extra: [("x test", "ok")])], expect: malformed),
  Conformance(
    "8.1.2/3 a value with a line break",
    [get(1, extra: [("x-test", "a\r\nb")])],
    expect: malformed
  ),
  Conformance("8.1.2/4 an empty name", [get(1, extra: [("", "ok")])], expect: malformed),
  Conformance(
    "8.1.2.1/1 an unknown pseudo-header",
    [headers(1, getFields + [(":test", "ok")])],
    expect: malformed
  ),
  Conformance(
    "8.1.2.1/2 a response's pseudo-header",
    [headers(1, getFields + [(":status", "200")])],
    expect: malformed
  ),
  Conformance(
    "8.1.2.1/3 a pseudo-header in trailers",
    [post(1), data(1, end: false), headers(1, [(":method", "200")])],
    expect: malformed
  ),
  Conformance(
    "8.1.2.1/4 a pseudo-header after others",
    [headers(1, [("x-test", "ok")] + getFields)],
    expect: malformed
  ),
  Conformance(
    "8.1.2.2/1 a connection-specific header",
    [get(1, extra: [("connection", "keep-alive")])],
    expect: malformed
  ),
  Conformance(
    "8.1.2.2/2 TE other than trailers",
    [get(1, extra: [("te", "trailers, deflate")])],
    expect: malformed
  ),
  Conformance("8.1.2.2/3 TE: trailers", [get(1, extra: [("te", "trailers")])], expect: .answer(200)),
  Conformance(
    "8.1.2.2/4 transfer-encoding",
    [get(1, extra: [("transfer-encoding", "chunked")])],
    expect: malformed
  ),
  Conformance("8.1.2.2/5 upgrade", [get(1, extra: [("upgrade", "h2c")])], expect: malformed),
  Conformance("8.1.2.3/1 an empty :path", [get(1, "")], expect: malformed),
  Conformance("8.1.2.3/2 no :method", [headers(1, without(":method"))], expect: malformed),
  Conformance("8.1.2.3/3 no :scheme", [headers(1, without(":scheme"))], expect: malformed),
  Conformance("8.1.2.3/4 no :path", [headers(1, without(":path"))], expect: malformed),
  Conformance("8.1.2.3/5 two :method", [headers(1, [(":method", "GET")] + getFields)], expect: malformed),
  Conformance("8.1.2.3/6 two :scheme", [headers(1, [(":scheme", "http")] + getFields)], expect: malformed),
  Conformance("8.1.2.3/7 two :path", [headers(1, [(":path", "/")] + getFields)], expect: malformed),
  Conformance("8.1.2.3/8 two :authority", [headers(1, [(":authority", "a")] + getFields)], expect: malformed),
  Conformance("8.1.2.3/9 a :path without slash", [get(1, "nowhere")], expect: malformed),
  Conformance(
    "8.1.2.6/1 content-length other than the DATA frame",
    [post(1, [("content-length", "1")]), data(1)],
    expect: malformed
  ),
  Conformance(
    "8.1.2.6/2 content-length other than the sum of DATA frames",
    [post(1, [("content-length", "1")]), data(1, end: false), data(1)],
    expect: malformed
  ),
  Conformance(
    "8.1.2.6/3 less DATA than content-length",
    [post(1, [("content-length", "5")]), data(1)],
    expect: malformed
  ),
  Conformance(
    "8.1.2.6/4 content-length and no DATA",
    [get(1, extra: [("content-length", "5")])],
    expect: malformed
  ),
  Conformance(
    "8.1.2.6/5 a content-length that is no number",
    [post(1, [("content-length", "x")])],
    expect: malformed
  ),
  Conformance(
    "8.1.2.6/6 two content-lengths",
    [post(1, [("content-length", "4"), ("content-length", "4")])],
    expect: malformed
  ),
  Conformance(
    "8.2/1 PUSH_PROMISE from a client",
    [get(1, "/hold"), Frame(.pushPromise, flags: 4, stream: 1, be32(2) + HPACK.plain(getFields))],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "8.5/1 CONNECT without :path and :scheme",
    [headers(1, [(":method", "CONNECT"), (":authority", "localhost:80")], end: false), data(1)],
    expect: .answer(200)
  ),
]

private let compression = Expected.connectionError([.compressionError])

let hpackCases: [Conformance] = [
  Conformance(
    "hpack 2.3.3/1 an indexed field with an index beyond the tables",
    [headers(1, block: indexedGet + [0xc6])],
    expect: compression
  ),
  Conformance(
    "hpack 2.3.3/2 a literal field whose name's index is beyond the tables",
    [headers(1, block: indexedGet + [0x7f, 0x07] + HPACK.string("empty"))],
    expect: compression
  ),
  Conformance(
    "hpack 4.2/1 a table size update at the end of a block",
    [headers(1, block: indexedGet + [0x3f, 0xe1, 0x0f])],
    expect: compression
  ),
  Conformance(
    "hpack 5.2/1 Huffman padding longer than 7 bits",
    [
      headers(
        1,
        block: indexedGet + [0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x84, 0x49, 0x50, 0x9f, 0xff]
      )
    ],
    expect: compression
  ),
  Conformance(
    "hpack 5.2/2 Huffman padding of zeroes",
    [headers(1, block: indexedGet + [0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x83, 0x49, 0x50, 0x80])],
    expect: compression
  ),
  Conformance(
    "hpack 5.2/3 a Huffman string with EOS",
    [
      headers(
        1,
        block: indexedGet + [
          0x00, 0x85, 0xf2, 0xb2, 0x4a, 0x84, 0xff, 0x86, 0x49, 0x50, 0x9f, 0xff, 0xff, 0xff,
        ]
      )
    ],
    expect: compression
  ),
  Conformance(
    "hpack 6.1/1 an indexed field with index 0",
    [headers(1, block: indexedGet + [0x80])],
    expect: compression
  ),
  Conformance(
    "hpack 6.3/1 a table size update above SETTINGS_HEADER_TABLE_SIZE",
    [headers(1, block: [0x3f, 0xe2, 0x1f] + indexedGet)],
    expect: compression
  ),
  Conformance(
    "hpack 6.3/2 a string longer than its block",
    [headers(1, block: indexedGet + [0x00, 0x7f, 0x20, 0x61])],
    expect: compression
  ),
  Conformance(
    "hpack 6.3/3 an integer that overflows",
    [headers(1, block: [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])],
    expect: compression
  ),
]
