import HTTP2Session

// Frame types: section 6, with the public suite's numbers.

let frameCases: [Conformance] = [
  Conformance("6.1/1 DATA on stream 0", [data(0)], expect: .connectionError([.protocolError])),
  Conformance(
    "6.1/2 DATA on a stream that is not open",
    [get(1, "/hold"), data(1)],
    expect: .anyError([.streamClosed])
  ),
  Conformance(
    "6.1/3 DATA with too much padding",
    [post(1), Frame(.data, flags: 0x9, stream: 1, [5] + Array("test".utf8))],
    expect: .connectionError([.protocolError])
  ),

  Conformance(
    "6.2/1 HEADERS without END_HEADERS, then PRIORITY",
    [Frame(.headers, stream: 1, HPACK.plain(getFields)), priority(1)],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.2/2 HEADERS without END_HEADERS, then HEADERS of another stream",
    [Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)), get(3)],
    expect: .connectionError([.protocolError])
  ),
  Conformance("6.2/3 HEADERS on stream 0", [get(0)], expect: .connectionError([.protocolError])),
  Conformance(
    "6.2/4 HEADERS with too much padding",
    [Frame(.headers, flags: 0xd, stream: 1, [200] + HPACK.plain(getFields))],
    expect: .connectionError([.protocolError])
  ),

  Conformance("6.3/1 PRIORITY on stream 0", [priority(0)], expect: .connectionError([.protocolError])),
  Conformance(
    "6.3/2 PRIORITY of another length",
    [get(1, "/hold"), Frame(.priority, stream: 1, [0x80, 0, 0, 1])],
    expect: .anyError([.frameSizeError])
  ),

  Conformance("6.4/1 RST_STREAM on stream 0", [rst(0)], expect: .connectionError([.protocolError])),
  Conformance("6.4/2 RST_STREAM on an idle stream", [rst(1)], expect: .connectionError([.protocolError])),
  Conformance(
    "6.4/3 RST_STREAM of another length",
    [get(1, "/hold"), Frame(.rstStream, stream: 1, [0, 0, 0])],
    expect: .connectionError([.frameSizeError])
  ),

  Conformance(
    "6.5/1 SETTINGS acknowledgement with a payload",
    [Frame(.settings, flags: 1, stream: 0, [0])],
    expect: .connectionError([.frameSizeError])
  ),
  Conformance(
    "6.5/2 SETTINGS on a stream",
    [Frame(.settings, stream: 1, [0, 3, 0, 0, 0, 100])],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.5/3 SETTINGS of a length that is no multiple of 6",
    [Frame(.settings, stream: 0, [0, 3, 0])],
    expect: .connectionError([.frameSizeError])
  ),
  Conformance(
    "6.5.2/1 SETTINGS_ENABLE_PUSH 2",
    [settings([(2, 2)])],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.5.2/2 SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1",
    [settings([(4, 0x8000_0000)])],
    expect: .connectionError([.flowControlError])
  ),
  Conformance(
    "6.5.2/3 SETTINGS_MAX_FRAME_SIZE below 2^14",
    [settings([(5, 16_383)])],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.5.2/4 SETTINGS_MAX_FRAME_SIZE above 2^24-1",
    [settings([(5, 1 << 24)])],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.5.2/5 an unknown setting",
    [settings([(0xff, 1)]), ping()],
    expect: .sent([ping(ack: true)])
  ),
  Conformance(
    "6.5.3/1 the last of several values of a setting counts",
    [settings([(4, 100), (4, 1)]), get(1)],
    expect: .sent([Frame(.data, stream: 1, [UInt8(ascii: "0")])])
  ),
  Conformance(
    "6.5.3/2 SETTINGS is acknowledged",
    [settings([(3, 100)])],
    expect: .sent([settings(ack: true)])
  ),

  Conformance("6.7/1 PING is answered", [ping("opaque!!")], expect: .sent([ping("opaque!!", ack: true)])),
  Conformance(
    "6.7/2 a PING acknowledgement is not",
    [ping("invalid!", ack: true), ping()],
    expect: .sent([ping(ack: true)])
  ),
  Conformance(
    "6.7/3 PING on a stream",
    [Frame(.ping, stream: 1, Array("h2spec!!".utf8))],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.7/4 PING of another length",
    [Frame(.ping, stream: 0, [1, 2, 3, 4, 5, 6])],
    expect: .connectionError([.frameSizeError])
  ),

  Conformance("6.8/1 GOAWAY on a stream", [goAway(stream: 1)], expect: .connectionError([.protocolError])),

  Conformance("6.9/1 WINDOW_UPDATE by 0", [windowUpdate(0, 0)], expect: .connectionError([.protocolError])),
  Conformance(
    "6.9/2 WINDOW_UPDATE by 0 on a stream",
    [get(1, "/hold"), windowUpdate(1, 0)],
    expect: .anyError([.protocolError])
  ),
  Conformance(
    "6.9/3 WINDOW_UPDATE of another length",
    [Frame(.windowUpdate, stream: 0, [0, 0, 1])],
    expect: .connectionError([.frameSizeError])
  ),
  Conformance(
    "6.9.1/1 no more is sent than the window allows",
    [settings([(4, 1)]), get(1)],
    expect: .sent([Frame(.data, stream: 1, [UInt8(ascii: "0")])])
  ),
  Conformance(
    "6.9.1/2 the connection's window grows above 2^31-1",
    [windowUpdate(0, 0x7fff_ffff), windowUpdate(0, 0x7fff_ffff)],
    expect: .connectionError([.flowControlError])
  ),
  Conformance(
    "6.9.1/3 a stream's window grows above 2^31-1",
    [get(1, "/hold"), windowUpdate(1, 0x7fff_ffff), windowUpdate(1, 0x7fff_ffff)],
    expect: .anyError([.flowControlError])
  ),
  Conformance(
    "6.9.2/1 a later SETTINGS_INITIAL_WINDOW_SIZE changes open streams",
    [settings([(4, 0)]), get(1)],
    [settings([(4, 1)])],
    expect: .sent([Frame(.data, stream: 1, [UInt8(ascii: "0")])])
  ),
  Conformance(
    "6.9.2/2 a window may become negative",
    [settings([(4, 3)]), get(1)],
    [settings([(4, 2)])],
    [windowUpdate(1, 2)],
    expect: .sent([Frame(.data, stream: 1, Array("012".utf8)), Frame(.data, stream: 1, Array("3".utf8))])
  ),
  Conformance(
    "6.9.2/3 SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1 with a stream open",
    [get(1, "/hold"), settings([(4, 0xffff_ffff)])],
    expect: .connectionError([.flowControlError])
  ),
  Conformance(
    "6.9.2/4 SETTINGS_INITIAL_WINDOW_SIZE that takes a stream's window above 2^31-1",
    [get(1, "/hold"), windowUpdate(1, 0x7fff_0000), settings([(4, 0x7fff_ffff)])],
    expect: .anyError([.flowControlError])
  ),

  Conformance(
    "6.10/1 several CONTINUATION frames",
    [
      Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)),
      continuation(1, HPACK.plain([("x-a", "1")]), end: false), continuation(1, HPACK.plain([("x-b", "2")])),
    ],
    expect: .answer(200)
  ),
  Conformance(
    "6.10/2 CONTINUATION, then another frame",
    [
      Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)),
      continuation(1, HPACK.plain([("x-a", "1")]), end: false), data(1),
    ],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.10/3 CONTINUATION on stream 0",
    [
      Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)),
      continuation(0, HPACK.plain([("x-a", "1")])),
    ],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.10/4 CONTINUATION after HEADERS with END_HEADERS",
    [post(1), continuation(1, HPACK.plain([("x-a", "1")]))],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.10/5 CONTINUATION after CONTINUATION with END_HEADERS",
    [
      Frame(.headers, stream: 1, HPACK.plain(postFields)), continuation(1, HPACK.plain([("x-a", "1")])),
      continuation(1, HPACK.plain([("x-b", "2")])),
    ],
    expect: .connectionError([.protocolError])
  ),
  Conformance(
    "6.10/6 CONTINUATION after DATA",
    [post(1), data(1, end: false), continuation(1, HPACK.plain([("x-a", "1")]))],
    expect: .connectionError([.protocolError])
  ),
]
