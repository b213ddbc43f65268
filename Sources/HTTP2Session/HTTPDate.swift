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

/// Date of the proleptic Gregorian calendar, in UTC.
package struct CivilDate: Equatable, Sendable {
  package var year: UInt32
  /// 1 to 12.
  package var month: UInt32
  /// 1 to 31.
  package var day: UInt32

  @inlinable
  package init(year: UInt32, month: UInt32, day: UInt32) {
    self.year = year
    self.month = month
    self.day = day
  }

  /// Convert days since 1970-01-01, up to the year 9999.
  @inlinable
  package init(daysSince1970 days: UInt32) {
    // Years that begin in March put the leap day last, so that a month's start is a linear formula (Hinnant,
    // "chrono-compatible low-level date algorithms", civil_from_days). A division by a constant is one multiplication.
    let shifted = days + 719_468
    let era = shifted / 146_097
    let dayOfEra = shifted % 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let marchMonth = (5 * dayOfYear + 2) / 153
    day = dayOfYear - (153 * marchMonth + 2) / 5 + 1
    month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9
    year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  }

  /// Days since 1970-01-01, negative before.
  package var daysSince1970: Int {
    let marchYear = Int(month <= 2 ? year - 1 : year)
    let era = marchYear / 400
    let yearOfEra = marchYear % 400
    let dayOfYear = (153 * Int(month > 2 ? month - 3 : month + 9) + 2) / 5 + Int(day) - 1
    let dayOfEra = yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear
    return era * 146_097 + dayOfEra - 719_468
  }
}
