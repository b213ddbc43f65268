/// HTTP date format: "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 section 5.6.7).
enum HTTPDate {
  static let byteCount = 29

  private static let days: StaticString = "ThuFriSatSunMonTueWed"
  private static let months: StaticString = "JanFebMarAprMayJunJulAugSepOctNovDec"

  /// Write ``byteCount`` bytes. Valid from 1970 to 9999.
  static func write(secondsSince1970 seconds: Int, to out: UnsafeMutablePointer<UInt8>) {
    let day = seconds / 86_400
    let date = CivilDate(daysSince1970: UInt32(day))
    var at = out

    func put(_ name: StaticString, _ index: Int) {
      at.update(from: name.utf8Start + index * 3, count: 3)
      at += 3
    }
    func put(_ text: StaticString) {
      at.update(from: text.utf8Start, count: text.utf8CodeUnitCount)
      at += text.utf8CodeUnitCount
    }
    func put(_ number: Int) {
      at[0] = UInt8(48 + number / 10 % 10)
      at[1] = UInt8(48 + number % 10)
      at += 2
    }

    put(days, day % 7)
    put(", ")
    put(Int(date.day))
    put(" ")
    put(months, Int(date.month) - 1)
    put(" ")
    put(Int(date.year) / 100)
    put(Int(date.year) % 100)
    put(" ")
    put(seconds % 86_400 / 3_600)
    put(":")
    put(seconds % 3_600 / 60)
    put(":")
    put(seconds % 60)
    put(" GMT")
  }
}
