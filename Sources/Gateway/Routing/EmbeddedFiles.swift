internal import CEmbeddedFiles
internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// A file in the program: one copy for all loops.
struct EmbeddedFile: Sendable {
  /// One form of a file's bytes.
  struct Form: Sendable {
    let body: ByteBuffer
    let isCompressed: Bool
    /// A strong entity tag, equal for the same bytes on every gateway (RFC 9110 section 8.8.3).
    let tag: String

    init(_ body: ByteBuffer, isCompressed: Bool = false) {
      self.body = body
      self.isCompressed = isCompressed
      tag = "\"" + String(StableHash.hash(body.readableBytesSpan), radix: 16) + "\""
    }

    /// Return whether an `if-none-match` matches (RFC 9110 section 13.1.2): one of its tags, weak or not, is this one,
    /// or it is `*`.
    func isAmong(_ tags: RawSpan) -> Bool {
      let text = tags.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      return text.split(separator: ",").contains { given in
        var given = given.drop { $0 == " " }
        while given.last == " " { given.removeLast() }
        if given.hasPrefix("W/") { given.removeFirst(2) }
        return given == tag || given == "*"
      }
    }
  }

  let contentType: HTTP2ContentType
  let plain: Form
  /// Nil: the file cannot be compressed.
  let gzip: Form?

  /// All files, by the names of CEmbeddedFiles.
  static let all: [String: EmbeddedFile] = {
    var count = 0
    let files = UnsafeBufferPointer(start: tm_files(&count), count: count)
    return Dictionary(uniqueKeysWithValues: files.map { (String(cString: $0.name), EmbeddedFile($0)) })
  }()

  /// Proto/openapi.yaml.
  static let apiDocument = EmbeddedFile.all["openapi.yaml"]!

  private init(_ file: tm_file) {
    contentType = Self.contentType(of: String(cString: file.name))
    plain = Form(ByteBuffer(bytes: UnsafeRawBufferPointer(start: file.start, count: file.count)))
    var compressed = ByteBuffer()
    compressed.writeWithUnsafeMutableBytes(minimumWritableBytes: file.count) { space in
      tm_gzip(file.start, file.count, space.baseAddress!, space.count)
    }
    gzip = compressed.readableBytes > 0 ? Form(compressed, isCompressed: true) : nil
  }

  private static func contentType(of name: String) -> HTTP2ContentType {
    switch name.split(separator: ".").last {
    case "js": .javaScript
    case "html": .html
    case "css": .css
    case "yaml": .yaml
    default: .text
    }
  }

  /// Return whether an `accept-encoding` allows gzip (RFC 9110 section 12.5.3): it is named, and not with weight 0.
  static func allowsGzip(_ header: RawSpan) -> Bool {
    let text = header.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }.lowercased()
    return text.split(separator: ",").contains { entry in
      let parts = entry.split(separator: ";").map { $0.filter { $0 != " " } }
      guard parts.first == "gzip" || parts.first == "*" else { return false }
      return !parts.dropFirst().contains { $0.hasPrefix("q=0") && !$0.contains { ("1"..."9").contains($0) } }
    }
  }
}
