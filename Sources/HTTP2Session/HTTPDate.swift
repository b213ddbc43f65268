/// The date format of HTTP: "Sun, 06 Nov 1994 08:49:37 GMT" (RFC 9110 section 5.6.7).
enum HTTPDate {
  static let byteCount = 29

  private static let days: StaticString = "ThuFriSatSunMonTueWed"
  private static let months: StaticString = "JanFebMarAprMayJunJulAugSepOctNovDec"

  /// Writes ``byteCount`` bytes. From 1970 to 9999.
  static func write(secondsSince1970 seconds: Int, to out: UnsafeMutablePointer<UInt8>) {
    let day = seconds / 86_400
    let (year, month, dayOfMonth) = civil(day)
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
    put(dayOfMonth)
    put(" ")
    put(months, month - 1)
    put(" ")
    put(year / 100)
    put(year % 100)
    put(" ")
    put(seconds % 86_400 / 3_600)
    put(":")
    put(seconds % 3_600 / 60)
    put(":")
    put(seconds % 60)
    put(" GMT")
  }

  /// Year, month and day of the proleptic Gregorian calendar, counted in eras of 400 years that begin in
  /// March.
  private static func civil(_ day: Int) -> (Int, Int, Int) {
    let shifted = day + 719_468
    let era = shifted / 146_097
    let dayOfEra = shifted % 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let shiftedMonth = (5 * dayOfYear + 2) / 153
    let month = shiftedMonth < 10 ? shiftedMonth + 3 : shiftedMonth - 9
    return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfYear - (153 * shiftedMonth + 2) / 5 + 1)
  }
}
