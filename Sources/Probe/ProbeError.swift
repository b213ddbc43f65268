/// Error in a line, in bytes or on a connection, for the terminal.
package struct ProbeError: Error, Hashable, CustomStringConvertible {
  package var description: String

  package init(_ description: String) { self.description = description }
}
