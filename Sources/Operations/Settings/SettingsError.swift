/// Error in a setting that prevents the start of the process. The executables print ``description`` as their one line
/// and exit with ``exitCode``.
package struct SettingsError: Error, Equatable, CustomStringConvertible {
  /// `EX_CONFIG` of sysexits.h.
  package static let exitCode: Int32 = 78

  /// Problem and remedy, in one line that names the flag.
  package let description: String

  package init(_ description: String) {
    self.description = description
  }

  /// Create an error about the setting `key`: the flag, the environment variable and the file's key.
  package init(_ key: String, _ problem: String) {
    self.init("--\(key) \(problem)")
  }
}
