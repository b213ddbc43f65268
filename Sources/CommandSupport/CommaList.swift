package import ArgumentParser

/// Value of an option that takes a list: elements separated by commas. Every such option takes several values and may
/// be repeated; all forms are equivalent.
package struct CommaList<Element: ExpressibleByArgument & Sendable>: ExpressibleByArgument, Sendable {
  package let elements: [Element]

  package init(_ elements: [Element]) { self.elements = elements }

  package init?(argument: String) {
    let parts = argument.split(separator: ",", omittingEmptySubsequences: false)
    let elements = parts.compactMap { $0.isEmpty ? nil : Element(argument: String($0)) }
    guard elements.count == parts.count else { return nil }
    self.elements = elements
  }

  package var defaultValueDescription: String {
    elements.map(\.defaultValueDescription).joined(separator: ",")
  }

  package static var allValueStrings: [String] { Element.allValueStrings }
}

extension Array {
  /// Concatenate the elements of all values of an option.
  package func joined<Value>() -> [Value] where Element == CommaList<Value> { flatMap(\.elements) }
}
