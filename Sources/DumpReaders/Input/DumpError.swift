/// Why a dump cannot be converted at all. Its text names the file, the place and the remedy.
package struct DumpError: Error, Hashable, CustomStringConvertible {
  package var description: String

  package init(_ description: String) { self.description = description }
}
