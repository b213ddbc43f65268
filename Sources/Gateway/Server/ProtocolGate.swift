/// Detection of the protocol that a client speaks, from its first bytes. A pure state machine: bytes and an expired
/// timer go in, an action comes out.
///
/// An HTTP/2 client begins with a preface that no HTTP/1 request resembles (RFC 9113 section 3.4). A client that begins
/// like an HTTP/1 request is refused once its head is complete, too long or too late. Any other input is passed to the
/// HTTP/2 session, which reports the error.
package struct ProtocolGate: Equatable, Sendable {
  /// What to do with the connection.
  package enum Action: Equatable, Sendable {
    /// Keep the bytes received.
    case wait
    /// Pass the bytes received, and all later ones, to the HTTP/2 session.
    case passOn
    /// The client speaks HTTP/1: drop the bytes received and wait for the rest of the request's head.
    case awaitHead
    /// Answer 505 and close; a response to HEAD has no content (RFC 9110 section 9.3.2).
    case refuse(isHead: Bool)
    /// Close without a response.
    case close
    /// Drop the bytes received.
    case drop
  }

  /// deciding → passed, head, refused, ended; head → refused; refused → ended.
  private enum State: Equatable {
    /// `matched` bytes were received; all of them match the preface.
    case deciding(matched: Int)
    case head(RequestHead)
    case passed
    /// `dropped` bytes were received after the response.
    case refused(dropped: Int)
    case ended
  }

  /// `PRI * HTTP/2.0`, an empty line, `SM`, an empty line.
  static let preface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8)
  /// Maximum size of an HTTP/1 request's head in bytes.
  static let headByteCountMax = 64 << 10
  /// Bytes to read and drop after the response: a client may not read the response while it is sending.
  static let droppedByteCountMax = 1 << 20

  private let takesHTTP2: Bool
  private var state = State.deciding(matched: 0)

  /// - Parameter takesHTTP2: false where the TLS handshake has not agreed on `h2` (RFC 9113 section 3.2); a client that
  ///   sends HTTP/2 nevertheless is disconnected.
  package init(takesHTTP2: Bool) { self.takesHTTP2 = takesHTTP2 }

  /// Process bytes from the client.
  package mutating func received(_ bytes: RawSpan) -> Action {
    switch state {
    case .deciding(let matched): return decide(bytes, matched)
    case .head(let head): return read(bytes, from: 0, head)
    case .passed: return .passOn
    case .refused(let dropped):
      guard dropped + bytes.byteCount <= Self.droppedByteCountMax else {
        state = .ended
        return .close
      }
      state = .refused(dropped: dropped + bytes.byteCount)
      return .drop
    case .ended: return .drop
    }
  }

  /// Handle the expiry of the timer.
  package mutating func timedOut() -> Action {
    switch state {
    case .deciding(let matched):
      guard matched > 0 else { return .wait }
      return refuse(isHead: false)
    case .head(let head): return refuse(isHead: head.isHead)
    case .passed: return .wait
    case .refused:
      state = .ended
      return .close
    case .ended: return .wait
    }
  }

  private mutating func decide(_ bytes: RawSpan, _ matched: Int) -> Action {
    var matched = matched
    for at in 0..<bytes.byteCount {
      let byte = bytes.unsafeLoad(fromByteOffset: at, as: UInt8.self)
      if byte == Self.preface[matched] {
        matched += 1
        guard matched == Self.preface.count else { continue }
        state = takesHTTP2 ? .passed : .ended
        return takesHTTP2 ? .passOn : .close
      }
      guard Self.canContinueRequest(byte, after: matched) else {
        state = takesHTTP2 ? .passed : .ended
        return takesHTTP2 ? .passOn : .close
      }
      var head = RequestHead()
      for seen in Self.preface[..<matched] { _ = head.isComplete(behind: seen) }
      return read(bytes, from: at, head)
    }
    state = .deciding(matched: matched)
    return .wait
  }

  /// Return whether a request line can have this byte after `matched` bytes of the preface: at first a byte of a method
  /// (RFC 9110 section 5.6.2), later any visible one.
  private static func canContinueRequest(_ byte: UInt8, after matched: Int) -> Bool {
    switch byte {
    case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
      true
    case 0x20: matched > 0
    case 0x0D, 0x0A, 0x21...0x7E: matched > 3
    default: false
    }
  }

  private mutating func read(_ bytes: RawSpan, from start: Int, _ head: RequestHead) -> Action {
    var head = head
    for at in start..<bytes.byteCount {
      if head.isComplete(behind: bytes.unsafeLoad(fromByteOffset: at, as: UInt8.self)) {
        return refuse(isHead: head.isHead)
      }
    }
    state = .head(head)
    return .awaitHead
  }

  private mutating func refuse(isHead: Bool) -> Action {
    state = .refused(dropped: 0)
    return .refuse(isHead: isHead)
  }
}

/// Parser for the parts of an HTTP/1 request's head that matter here: its method, and where it ends.
private struct RequestHead: Equatable {
  private static let method = Array("HEAD ".utf8)

  private var byteCount = 0
  /// How many bytes match `HEAD `.
  private var matched = 0
  private var isLineEmpty = true

  var isHead: Bool { matched == Self.method.count }

  /// Process a byte. True where the head ends with it: an empty line, or too many bytes.
  mutating func isComplete(behind byte: UInt8) -> Bool {
    if byteCount == matched, matched < Self.method.count, byte == Self.method[matched] { matched += 1 }
    byteCount += 1
    switch byte {
    case UInt8(ascii: "\n"):
      if isLineEmpty { return true }
      isLineEmpty = true
    case UInt8(ascii: "\r"): break
    default: isLineEmpty = false
    }
    return byteCount >= ProtocolGate.headByteCountMax
  }
}
