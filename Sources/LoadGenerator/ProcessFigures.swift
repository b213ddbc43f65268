internal import Foundation

/// What a running process and its data take, as the system says.
package enum ProcessFigures {
  /// Resident memory of a process in bytes; nil where it is gone.
  package static func residentBytes(of processID: Int32) -> Int? {
    guard let data = FileManager.default.contents(atPath: "/proc/\(processID)/status") else { return nil }
    return residentBytes(status: String(decoding: data, as: UTF8.self))
  }

  static func residentBytes(status: String) -> Int? {
    for line in status.split(separator: "\n") where line.hasPrefix("VmRSS:") {
      return line.split(whereSeparator: { $0 == " " || $0 == "\t" }).dropFirst().first
        .flatMap { Int($0) }.map { $0 << 10 }
    }
    return nil
  }

  /// Bytes of the files right in a directory, of all and of those with this ending.
  package static func fileBytes(in directory: String, ending: String = "") -> Int {
    let names = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    return names.filter { $0.hasSuffix(ending) }.reduce(0) { sum, name in
      let attributes = try? FileManager.default.attributesOfItem(atPath: directory + "/" + name)
      return sum + ((attributes?[.size] as? Int) ?? 0)
    }
  }

  /// A metric without labels in the Prometheus text of an operations listener; nil where it is not there.
  static func metric(_ name: String, in text: String) -> Double? {
    for line in text.split(separator: "\n") where line.hasPrefix(name + " ") {
      return Double(line.dropFirst(name.count + 1))
    }
    return nil
  }
}
