#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#else
  import Darwin
#endif

/// Whether two runs of the same length hold the same bytes.
@inline(__always)
func equalBytes(_ a: UnsafePointer<UInt8>, _ b: UnsafePointer<UInt8>, _ count: Int) -> Bool {
  memcmp(a, b, count) == 0
}

/// Whether the bytes are those of the literal.
@inline(__always)
func isBytes(_ a: UnsafePointer<UInt8>, _ count: Int, _ literal: StaticString) -> Bool {
  count == literal.utf8CodeUnitCount && memcmp(a, literal.utf8Start, count) == 0
}

/// The number that the bytes spell in decimal; nil if they do not, or it passes 2^53.
func parseDecimal(_ bytes: UnsafePointer<UInt8>, _ count: Int) -> Int? {
  guard count > 0 && count <= 16 else { return nil }
  var value = 0
  for at in 0..<count {
    let digit = Int(bytes[at]) - 48
    guard digit >= 0 && digit <= 9 else { return nil }
    value = value * 10 + digit
  }
  return value
}

/// Writes `value` in decimal so that its last digit is just before `end`, and gives the first digit's place.
@inline(__always)
func writeDecimal(_ value: Int, endingAt end: UnsafeMutablePointer<UInt8>) -> UnsafeMutablePointer<UInt8> {
  var at = end
  var rest = UInt(bitPattern: value)
  repeat {
    at -= 1
    at.pointee = UInt8(truncatingIfNeeded: 48 + rest % 10)
    rest /= 10
  } while rest != 0
  return at
}
