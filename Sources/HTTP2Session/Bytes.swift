#if canImport(Glibc)
  import Glibc
#elseif canImport(Musl)
  import Musl
#else
  import Darwin
#endif

/// Return whether two byte ranges of the same length are equal.
@inline(__always)
func equalBytes(_ a: UnsafePointer<UInt8>, _ b: UnsafePointer<UInt8>, _ count: Int) -> Bool {
  memcmp(a, b, count) == 0
}

/// Return whether the bytes equal those of the literal.
@inline(__always)
func isBytes(_ a: UnsafePointer<UInt8>, _ count: Int, _ literal: StaticString) -> Bool {
  count == literal.utf8CodeUnitCount && memcmp(a, literal.utf8Start, count) == 0
}

/// Parse a decimal number of at most 16 digits; nil for anything else.
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

/// Write `value` in decimal so that its last digit is just before `end`. Returns the address of the first digit.
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
