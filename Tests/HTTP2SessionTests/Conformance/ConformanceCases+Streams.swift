import HTTP2Session

// Streams: sections 5.1 to 5.3, with the public suite's numbers, and some cases of our own.

private func limited() -> HTTP2Limits {
  var limits = HTTP2Limits()
  limits.concurrentStreamsMax = 2
  return limits
}

let streamCases: [Conformance] = [
  Conformance("5.1/1 idle: DATA", [data(1)], expect: .connectionError([.protocolError])),
  Conformance("5.1/2 idle: RST_STREAM", [rst(1)], expect: .connectionError([.protocolError])),
  Conformance(
    "5.1/3 idle: WINDOW_UPDATE",
    [windowUpdate(1, 100)],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "5.1/4 idle: CONTINUATION",
    [continuation(1, HPACK.plain(getFields))],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "5.1/5 half-closed (remote): DATA",
    [get(1, "/hold"), data(1)],
    expect: .anyError([.streamClosed])
  ),
  Conformance(
    "5.1/6 half-closed (remote): HEADERS",
    [get(1, "/hold"), get(1)],
    expect: .anyError([.streamClosed])
  ),
  Conformance(
    "5.1/7 half-closed (remote): CONTINUATION",
    [get(1, "/hold"), continuation(1, HPACK.plain([("x-more", "1")]))],
    expect: .anyError([.streamClosed, .protocolError])
  ),
  Conformance(
    "5.1/8 closed by RST_STREAM: DATA",
    [post(1), rst(1), data(1)],
    expect: .streamError(.streamClosed)
  ),
  Conformance(
    "5.1/9 closed by RST_STREAM: HEADERS",
    [post(1), rst(1), get(1)],
    expect: .streamError(.streamClosed)
  ),
  Conformance(
    "5.1/10 closed by RST_STREAM: CONTINUATION",
    [post(1), rst(1), continuation(1, HPACK.plain([("x-more", "1")]))],
    expect: .anyError([.streamClosed, .protocolError])
  ),
  Conformance("5.1/11 closed: DATA", [get(1)], [data(1)], expect: .anyError([.streamClosed])),
  Conformance("5.1/12 closed: HEADERS", [get(1)], [get(1)], expect: .connectionError([.streamClosed])),
  Conformance(
    "5.1/13 closed: CONTINUATION",
    [get(1)],
    [continuation(1, HPACK.plain([("x-more", "1")]))],
    expect: .anyError([.streamClosed, .protocolError])
  ),
  Conformance(
    "5.1/14 closed: WINDOW_UPDATE is ignored",
    [get(1)],
    [windowUpdate(1, 10)],
    expect: .answer(200)
  ),
  Conformance("5.1/15 closed: RST_STREAM is ignored", [get(1)], [rst(1)], expect: .answer(200)),
  Conformance(
    "5.1/16 closed by our own RST_STREAM: DATA and trailers are ignored",
    [post(1, [("content-length", "2")]), data(1, "three", end: false)],
    [data(1, "more", end: false), headers(1, [("x-trailer", "1")])],
    expect: .streamError(.protocolError)
  ),
  Conformance(
    "5.1/17 closed long ago: HEADERS",
    [get(1)],
    [get(3)],
    [get(5)],
    [get(1)],
    expect: .connectionError([.streamClosed])
  ),

  Conformance("5.1.1/1 an even stream identifier", [get(2)], expect: .connectionError([.protocolError])),
  Conformance(
    "5.1.1/2 a stream identifier below the last",
    [get(5)],
    [get(3)],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "5.1.1/3 a stream identifier below the last, which is still open",
    [get(5, "/hold"), get(3)],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "5.1.1/4 identifiers may be skipped",
    [get(1), get(7), get(101)],
    expect: .answer(200, stream: 101)
  ),
  Conformance(
    "5.1.1/5 DATA on a skipped stream",
    [get(5)],
    [data(3)],
    expect: .anyError([.streamClosed], stream: 3)
  ),

  Conformance(
    "5.1.2/1 more concurrent streams than allowed",
    limits: limited(),
    [get(1, "/hold"), get(3, "/hold"), get(5)],
    expect: .anyError([.refusedStream, .protocolError], stream: 5)
  ),
  Conformance(
    "5.1.2/2 a stream that has ended makes room",
    limits: limited(),
    [get(1, "/hold"), get(3)],
    [get(5)],
    expect: .answer(200, stream: 5)
  ),

  Conformance(
    "5.3.1/1 HEADERS that depends on itself",
    [Frame(.headers, flags: 0x25, stream: 1, be32(1) + [255] + HPACK.plain(getFields))],
    expect: .anyError([.protocolError])
  ),
  Conformance(
    "5.3.1/2 PRIORITY that depends on itself",
    [priority(1, dependsOn: 1)],
    expect: .anyError([.protocolError])
  ),
]
