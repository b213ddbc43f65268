import HTTP2Session
import Testing

/// RFC 9110 section 8.3.1.
@Suite("Content types")
struct ContentTypeTests {
  @Test(
    "a content type matches in any case and with any parameters",
    arguments: [
      ("application/x-ndjson", true), ("Application/X-NDJSON", true),
      ("application/x-ndjson;charset=utf-8", true), ("application/x-ndjson ; charset=utf-8", true),
      ("application/x-ndjson\t;a=b", true), ("application/x-ndjson;", true), ("", false),
      ("application/x-ndjso", false), ("application/x-ndjson2", false), ("application/json", false),
      (" application/x-ndjson", false), ("application/x\u{4d}ndjson", false),
      ("application/x-ndjson, a/b", false),
    ]
  )
  func contentTypeMatchesInAnyCaseAndWithAnyParameters(_ header: String, _ isNamed: Bool) {
    let bytes = Array(header.utf8)
    let (isOne, isNone) = (
      HTTP2ContentType.ndjson.isNamed(by: bytes.span.bytes),
      HTTP2ContentType.none.isNamed(by: bytes.span.bytes)
    )
    #expect(isOne == isNamed && !isNone)
  }
}
