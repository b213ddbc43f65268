/// Setup error on this machine, in one line for the person at the terminal.
package struct StackError: Error, Hashable, CustomStringConvertible {
  package let description: String

  package init(_ description: String) { self.description = description }
}
