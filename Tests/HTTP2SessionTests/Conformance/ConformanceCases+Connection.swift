import HTTP2Session

// Connections and frames in general: sections 3.5 (3.4 in RFC 9113), 4 and 5.4 to 5.5, with the public suite's numbers.

private let fourteen = Array(repeating: UInt8(ascii: "x"), count: 16_384)

let connectionCases: [Conformance] = [
  Conformance(
    "3.5/1 a client connection preface",
    raw: TestServer.preface + settings().bytes,
    expect: .sent([settings(ack: true)])
  ),
  Conformance(
    "3.5/2 an invalid preface",
    raw: Array("INVALID CONNECTION PREFACE\r\n\r\n".utf8),
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "3.5/3 an HTTP/1.1 request",
    raw: Array("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".utf8),
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "3.5/4 a TLS ClientHello on the plain port",
    raw: [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3] + fourteen[..<64],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "3.5/5 a preface that is not followed by SETTINGS",
    raw: TestServer.preface + ping().bytes,
    expect: .connectionError([.protocolError])
  ),

  Conformance(
    "4.1/1 a frame of unknown type",
    [Frame(type: 0x16, stream: 0, [1, 2, 3]), ping()],
    expect: .sent([ping(ack: true)])
  ),
  Conformance(
    "4.1/2 a frame with undefined flags",
    [Frame(.ping, flags: 0x16, stream: 0, Array("h2spec!!".utf8))],
    expect: .sent([ping(ack: true)])
  ),
  Conformance(
    "4.1/3 a frame with the reserved bit set",
    [Frame(.ping, stream: Int32.min, Array("h2spec!!".utf8))],
    expect: .sent([ping(ack: true)])
  ),

  Conformance(
    "4.2/1 a DATA frame of 2^14 bytes",
    [post(1), Frame(.data, flags: 1, stream: 1, fourteen)],
    expect: .answer(200)
  ),
  Conformance(
    "4.2/2 a DATA frame beyond SETTINGS_MAX_FRAME_SIZE",
    [post(1), Frame(.data, flags: 1, stream: 1, fourteen + [0])],
    expect: .anyError([.frameSizeError])
  ),
  Conformance(
    "4.2/3 a HEADERS frame beyond SETTINGS_MAX_FRAME_SIZE",
    [
      headers(
        1,
        block: HPACK.plain(getFields) + HPACK.plain([("x-large", String(repeating: "x", count: 17_000))])
      )
    ],
    expect: .connectionError([.frameSizeError])
  ),

  Conformance(
    "4.3/1 an invalid header block",
    [headers(1, block: [0x40, 0xff, 0xff, 0xff, 0xff, 0xff])],
    expect: .connectionError([.compressionError])
  ),
  Conformance(
    "4.3/2 PRIORITY inside a header block",
    [
      Frame(.headers, stream: 1, HPACK.plain(getFields)), priority(1),
      continuation(1, HPACK.plain([("x-more", "1")])),
    ],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "4.3/3 HEADERS of another stream inside a header block",
    [Frame(.headers, stream: 1, HPACK.plain(getFields)), get(3)],
    expect: .connectionError([.protocolError])
  ),

  Conformance(
    "5.4.1/1 after a connection error the connection is closed",
    [Frame(.ping, stream: 0, [1, 2, 3])],
    expect: .connectionError([.frameSizeError])
  ),
  Conformance(
    "5.4.1/2 a connection error sends GOAWAY, with and without other streams",
    [get(1, "/hold"), get(3), Frame(.ping, stream: 1, Array("h2spec!!".utf8))],
    expect: .connectionError([.protocolError])
  ),

  Conformance(
    "5.5/1 an unknown extension frame",
    [Frame(type: 0x16, flags: 0xff, stream: 1, [0]), get(1)],
    expect: .answer(200)
  ),
  Conformance(
    "5.5/2 an unknown extension frame inside a header block",
    [
      Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)), Frame(type: 0x16, stream: 1, [0]),
      continuation(1, HPACK.plain([("x-more", "1")])),
    ],
    expect: .connectionError([.protocolError])
  ),

  Conformance(
    "7/1 GOAWAY with an unknown error code",
    [get(1, "/hold"), goAway(0xff), ping()],
    expect: .sent([ping(ack: true)])
  ),
  Conformance("7/2 RST_STREAM with an unknown error code", [get(1, "/hold"), rst(1, 0xff)], expect: .alive),
]
