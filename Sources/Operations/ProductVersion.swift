/// Version of Tidemark's programs, which are released together.
///
/// This is the only definition; CHANGELOG.md's newest section is of this version. The API's own version is in
/// Proto/openapi.yaml and in its paths. Proto/frames.md has the versions of frames and of the data on disk.
package enum ProductVersion {
  /// Version number, as defined by Semantic Versioning 2.0.0.
  package static let current = "0.9.0"

  /// Return the output of `--version`, such as `tidemark-store 0.9.0`.
  package static func line(of program: String) -> String { "\(program) \(current)" }
}
