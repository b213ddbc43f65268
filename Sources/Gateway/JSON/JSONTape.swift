internal import CRapidJSON

/// Limits on a JSON text, so that a small body cannot cost much memory or time.
package struct JSONLimits: Sendable {
  /// Maximum nesting depth of containers.
  package var depthMax: Int
  /// Maximum number of values and keys in one text. A batch of 1,000 messages with every field has 14,000.
  package var tokenMax: Int
  /// Bytes that each buffer of the parser keeps between bodies.
  package var keptByteMax: Int

  package init(depthMax: Int = 32, tokenMax: Int = 65_536, keptByteMax: Int = 256 * 1024) {
    self.depthMax = depthMax
    self.tokenMax = tokenMax
    self.keptByteMax = keptByteMax
  }
}

/// Why a text was refused as a whole.
package enum JSONSyntaxError: Error, Equatable {
  /// Not JSON (RFC 8259), not UTF-8, or a surrogate escape without its partner.
  case malformed(byteOffset: Int)
  /// The nesting is deeper than ``JSONLimits/depthMax``.
  case tooDeep
  /// More values and keys than ``JSONLimits/tokenMax``.
  case tooManyTokens

  /// A sentence for the `detail` of a problem.
  package var detail: String {
    switch self {
    case .malformed(let byteOffset): "the body is not valid JSON (at byte \(byteOffset))"
    case .tooDeep: "the body nests arrays and objects too deeply"
    case .tooManyTokens: "the body has too many values"
    }
  }
}

/// The gateway's only JSON decoder: parses a text into a flat tape whose memory the next parse reuses.
///
/// One per event loop. A parse allocates nothing once the buffers have grown to the size of the usual bodies.
package final class JSONTape {
  private let parser: OpaquePointer
  private let keptByteMax: Int

  /// Trap where there is no memory for an empty parser.
  package init(limits: JSONLimits = JSONLimits()) {
    guard let parser = tm_json_parser_new(UInt32(limits.depthMax), UInt32(limits.tokenMax)) else {
      preconditionFailure("no memory for a JSON parser")
    }
    self.parser = parser
    self.keptByteMax = limits.keptByteMax
  }

  deinit { tm_json_parser_free(parser) }

  /// Parse a whole text, whose bytes are copied.
  ///
  /// The value, and every value and span derived from it, is valid until the next `parse` or `shrink`. Of duplicate
  /// keys in an object the last counts.
  @_lifetime(borrow self)
  package func parse(_ bytes: RawSpan) throws(JSONSyntaxError) -> JSONValue {
    let result = bytes.withUnsafeBytes { tm_json_parse(parser, $0.baseAddress, $0.count) }
    switch result {
    case TM_JSON_OK: break
    case TM_JSON_TOO_DEEP: throw .tooDeep
    case TM_JSON_TOO_MANY_TOKENS: throw .tooManyTokens
    default: throw .malformed(byteOffset: tm_json_error_offset(parser))
    }
    let value = JSONValue(tokens: tm_json_tape(parser)!, text: tm_json_text(parser)!, index: 0)
    return _overrideLifetime(value, borrowing: self)
  }

  /// Free buffer memory that a large body has claimed. Call it between bodies, not while a value is in use.
  package func shrink() {
    tm_json_shrink(parser, keptByteMax)
  }
}
