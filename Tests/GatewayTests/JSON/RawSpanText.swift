extension RawSpan {
  var text: String { withUnsafeBytes { String(decoding: $0, as: UTF8.self) } }
}
