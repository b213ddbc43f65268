/// The version of Tidemark: of its three programs, which are released together.
///
/// This is the one place that has it; CHANGELOG.md's newest section is of this version. The API's own version is in
/// Proto/openapi.yaml and in its paths, the versions of frames and of the data on disk in Proto/frames.md.
package enum ProductVersion {
  /// As Semantic Versioning 2.0.0 has it.
  package static let current = "0.9.0"

  /// What `--version` prints, as in `tidemark-store 0.9.0`.
  package static func line(of program: String) -> String { "\(program) \(current)" }
}
